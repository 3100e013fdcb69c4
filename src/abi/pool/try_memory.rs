//! The fast path alone, for callers that hold a lock which others need meanwhile.

use std::ffi::c_void;

use super::memory::{malloc_fast, tag};
use crate::abi::core::guard;
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};

/// `forebay_pool_malloc_for` on the fast path alone: from what the stream freed last, or from free memory that is
/// mapped. Takes no lock under which anybody waits. Asks the driver at most which stream the handle names and whether
/// it is captured. For callers that hold a lock which others need meanwhile, such as an interpreter's. Any thread.
///
/// Returns 1 and writes `out`, or 0: nothing happened then, and `forebay_pool_malloc_for` does it or says why not.
///
/// # Safety
/// As `forebay_pool_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_try_malloc(
    pool: *mut ForebayPool,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> u32 {
    // SAFETY: as the caller promises.
    if unsafe { malloc_fast(pool, framework, bytes, device, stream, out) } {
        return 1;
    }
    let done = guard::result(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        let at = pool.malloc_without_wait(bytes, device, handle(stream), tag(framework)?);
        Ok(at.map(|at| out.write(pointer(at))).is_some())
    });
    done.unwrap_or(false).into()
}

/// `forebay_pool_free` on the fast path alone, as `forebay_pool_try_malloc` allocates. Records no event. Any thread.
///
/// Returns 1, or 0: nothing happened then, and `forebay_pool_free` does it or says why not.
///
/// # Safety
/// As `forebay_pool_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_try_free(pool: *mut ForebayPool, ptr: *mut c_void, stream: *mut c_void) -> u32 {
    // SAFETY: as the caller promises.
    let Ok(pool) = (unsafe { ForebayPool::get(pool) }) else { return 0 };
    let (at, stream) = (address(ptr), handle(stream));
    let taken = pool.free_fast(at, stream, |_, _, _| Some(())).is_some();
    (taken || guard::result(|| Ok(pool.free_without_wait(at, stream))).unwrap_or(false)).into()
}
