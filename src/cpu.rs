//! What the processor can be told and asked.

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

/// A number that no other living thread has; never 0.
#[inline(always)]
pub fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let thread: usize;
        // SAFETY: the ABI of x86-64 keeps a thread's own address there, which is read and never changes.
        unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(pure, nomem, nostack, preserves_flags)) };
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(std::ptr::from_ref).addr()
    }
}
