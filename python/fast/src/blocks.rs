//! Blocks of a pool, as the plug-ins of the frameworks take them.

use std::ffi::c_void;
use std::ptr;

use pyo3::prelude::*;

use crate::connect::{Library, Object, package};

/// A block's address, or a status; 0 for 0 bytes. pre: the pool lives through the call.
pub fn take(
    py: Python<'_>,
    library: &Library,
    pool: usize,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: u64,
) -> Result<usize, u32> {
    let (pool, mut out) = (pool as Object, ptr::null_mut());
    // SAFETY: the pool is alive or NULL, and the stream as who asks for memory promises.
    if unsafe { (library.try_malloc)(pool, framework, bytes, device, stream as *mut c_void, &raw mut out) } != 0 {
        return Ok(out as usize);
    }
    // SAFETY: as above.
    without_lock(py, library.malloc, pool, move |malloc, pool, out| unsafe {
        malloc(pool, framework, bytes, device, stream as *mut c_void, out)
    })
}

/// The same for memory that the host may touch at once, of a pinned pool.
pub fn take_ready(py: Python<'_>, library: &Library, pool: usize, bytes: u64, device: i32) -> Result<usize, u32> {
    // SAFETY: the pool is alive or NULL.
    without_lock(py, library.malloc_ready, pool as Object, move |malloc, pool, out| unsafe {
        malloc(pool, bytes, device, ptr::null_mut(), out)
    })
}

/// Gives a block back in the order of a stream: a status. pre: the pool lives through the call.
pub fn give(py: Python<'_>, library: &Library, pool: usize, block: usize, stream: u64) -> u32 {
    // SAFETY: the pool is alive or NULL, and the stream as who frees promises.
    if unsafe { (library.try_free)(pool as Object, block as *mut c_void, stream as *mut c_void) } != 0 {
        return 0;
    }
    let free = library.free;
    // SAFETY: as above.
    py.detach(|| unsafe { free(pool as Object, block as *mut c_void, stream as *mut c_void) })
}

/// Calls with the interpreter's lock given up: such a call may wait for a stream, or have others give back.
fn without_lock<F: Send>(
    py: Python<'_>,
    function: F,
    pool: Object,
    call: impl FnOnce(F, Object, *mut *mut c_void) -> u32 + Send,
) -> Result<usize, u32> {
    let pool = pool as usize;
    py.detach(move || {
        let mut out = ptr::null_mut();
        match call(function, pool as Object, &raw mut out) {
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
    let package = package(py)?;
    let taken = take(py, &package.library, pool, framework, size, device, stream.unwrap_or(0));
    taken.map_err(|status| package.failed(py, status))
}

/// The address of a new block of pinned memory that the host may touch at once.
#[pyfunction]
pub fn malloc_ready(py: Python<'_>, pool: usize, size: u64, device: i32) -> PyResult<usize> {
    let package = package(py)?;
    take_ready(py, &package.library, pool, size, device).map_err(|status| package.failed(py, status))
}

/// Gives a block back in the order of a stream: a status, since not everybody who frees can be told.
#[pyfunction]
pub fn free(py: Python<'_>, pool: usize, ptr: usize, stream: u64) -> PyResult<u32> {
    Ok(give(py, &package(py)?.library, pool, ptr, stream))
}

/// Gives a block back behind everything that its device has: a status, since who frees late forgives some.
#[pyfunction]
pub fn free_after_all(py: Python<'_>, pool: usize, ptr: usize) -> PyResult<u32> {
    let free = package(py)?.library.free_after_all;
    // SAFETY: the pool is alive or NULL, as the caller promises.
    Ok(py.detach(|| unsafe { free(pool as Object, ptr as *mut c_void) }))
}
