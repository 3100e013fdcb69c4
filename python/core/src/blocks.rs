//! Blocks of a pool, as the plug-ins of the frameworks take them.

use std::ffi::c_void;
use std::ptr;

use pyo3::prelude::*;

use crate::abi;
use crate::connect::{Object, failed};

/// A block's address, or a status; 0 for 0 bytes. pre: the pool lives through the call.
pub fn take(py: Python<'_>, pool: usize, framework: u32, bytes: u64, device: i32, stream: u64) -> Result<usize, u32> {
    let (pool, mut out) = (pool as Object, ptr::null_mut());
    // SAFETY: the pool is alive or NULL, and the stream as who asks for memory promises.
    if unsafe {
        abi::forebay_pool_try_malloc(pool.cast(), framework, bytes, device, stream as *mut c_void, &raw mut out)
    } != 0
    {
        return Ok(out as usize);
    }
    // SAFETY: as above.
    without_lock(py, pool, move |pool, out| unsafe {
        abi::forebay_pool_malloc_for(pool.cast(), framework, bytes, device, stream as *mut c_void, out)
    })
}

/// The same for memory that the host may touch at once, of a pinned pool.
pub fn take_ready(py: Python<'_>, pool: usize, bytes: u64, device: i32) -> Result<usize, u32> {
    // SAFETY: the pool is alive or NULL.
    without_lock(py, pool as Object, move |pool, out| unsafe {
        abi::forebay_pool_malloc_ready(pool.cast(), bytes, device, ptr::null_mut(), out)
    })
}

/// Gives a block back in the order of a stream: a status. pre: the pool lives through the call.
pub fn give(py: Python<'_>, pool: usize, block: usize, stream: u64) -> u32 {
    // SAFETY: the pool is alive or NULL, and the stream as who frees promises.
    if unsafe { abi::forebay_pool_try_free(pool as *mut _, block as *mut c_void, stream as *mut c_void) } != 0 {
        return 0;
    }
    // SAFETY: as above.
    py.detach(|| unsafe { abi::forebay_pool_free(pool as *mut _, block as *mut c_void, stream as *mut c_void) })
}

/// Calls with the interpreter's lock given up: such a call may wait for a stream, or have others give back.
fn without_lock(
    py: Python<'_>,
    pool: Object,
    call: impl FnOnce(Object, *mut *mut c_void) -> u32 + Send,
) -> Result<usize, u32> {
    let pool = pool as usize;
    py.detach(move || {
        let mut out = ptr::null_mut();
        match call(pool as Object, &raw mut out) {
            0 => Ok(out as usize),
            status => Err(status),
        }
    })
}

/// The address of a new block, in the order of a stream; 0 for a size of 0.
#[pyfunction]
pub fn malloc(
    py: Python<'_>,
    pool: usize,
    framework: u32,
    size: u64,
    device: i32,
    stream: Option<u64>,
) -> PyResult<usize> {
    let taken = take(py, pool, framework, size, device, stream.unwrap_or(0));
    taken.map_err(|status| failed(py, status))
}

/// The address of a new block of pinned memory that the host may touch at once.
#[pyfunction]
pub fn malloc_ready(py: Python<'_>, pool: usize, size: u64, device: i32) -> PyResult<usize> {
    take_ready(py, pool, size, device).map_err(|status| failed(py, status))
}

/// Gives a block back in the order of a stream: a status, since not everybody who frees can be told.
#[pyfunction]
pub fn free(py: Python<'_>, pool: usize, ptr: usize, stream: u64) -> u32 {
    give(py, pool, ptr, stream)
}

/// Gives a block back behind everything that its device has: a status, since who frees late forgives some.
#[pyfunction]
pub fn free_after_all(py: Python<'_>, pool: usize, ptr: usize) -> u32 {
    // SAFETY: the pool is alive or NULL, as the caller promises.
    py.detach(|| unsafe { abi::forebay_pool_free_after_all(pool as *mut _, ptr as *mut c_void) })
}
