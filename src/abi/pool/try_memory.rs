//! Calls that never wait, for callers that hold a lock such as Python's GIL.

use std::ffi::c_void;

use super::memory::{malloc_fast, tag};
use crate::abi::core::guard;
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};

/// `forebay_pool_malloc_for` without waiting: serves the request from the stream cache or from free memory that is
/// mapped. Takes no lock that another thread holds while it waits, and makes no driver call but queries of the stream's
/// identity and capture status. For callers that hold a lock which other threads need, such as Python's GIL. Any
/// thread.
///
/// Returns 1 and writes `out`; or returns 0 and changes nothing: then call `forebay_pool_malloc_for`, which serves the
/// request or returns the error.
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

/// `forebay_pool_free` without waiting, under the rules of `forebay_pool_try_malloc`. Records no event. Any thread.
///
/// Returns 1; or returns 0 and changes nothing: then call `forebay_pool_free`, which frees the block or returns the
/// error.
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
