//! What the processor can be told.

/// Fetches what `of` is stored in into the cache nearest to this processor, and waits for nothing.
#[inline(always)]
pub fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: reads nothing, at whatever address; this one is a live reference's.
        unsafe { _mm_prefetch(std::ptr::from_ref(of).cast(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = of;
}
