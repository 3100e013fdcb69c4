//! Pools: making them, their figures, and the callback before a request fails.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::abi;
use crate::calls::answer;

/// A pool with a limit, unless that is None, in memory of FOREBAY_LOCATION_*.
#[pyfunction]
pub fn pool_create(py: Python<'_>, limit: Option<u64>, location: u32, numa_id: i32) -> PyResult<usize> {
    let mut out = 0_usize;
    // SAFETY: the options are read once they were filled.
    let status = py.detach(|| unsafe {
        let mut options = MaybeUninit::<abi::forebay_pool_options>::uninit();
        match abi::forebay_pool_options_init(options.as_mut_ptr()) {
            abi::FOREBAY_STATUS_OK => {
                let mut options = options.assume_init();
                options.limit = limit.unwrap_or(options.limit);
                (options.location, options.numa_id) = (location, numa_id);
                abi::forebay_pool_create(&raw const options, (&raw mut out).cast())
            }
            status => status,
        }
    });
    answer(py, status, out)
}

/// A capsule that ends a pool with its last reference: no sooner, while `__del__` is called in any order in a cycle, and at exit.
#[pyfunction]
pub fn pool_capsule(py: Python<'_>, pool: usize) -> PyResult<Bound<'_, PyAny>> {
    unsafe extern "C" fn delete(capsule: *mut ffi::PyObject) {
        // SAFETY: the interpreter ends a capsule with this name once.
        unsafe { abi::forebay_pool_capsule_delete(capsule.cast()) }
    }
    // SAFETY: the name is static, and the pool the caller's to hand over.
    unsafe {
        let capsule = ffi::PyCapsule_New(pool as *mut c_void, c"forebay_pool".as_ptr(), Some(delete));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// "cuda" or "host"; None in a forked child.
#[pyfunction]
pub fn pool_driver_name(py: Python<'_>, pool: usize) -> Option<&'static str> {
    let name = py.detach(|| {
        // SAFETY: the pool is alive.
        unsafe { abi::forebay_pool_driver_name(pool as *const _) as usize }
    });
    if name == 0 {
        return None;
    }
    // SAFETY: the text is static.
    unsafe { CStr::from_ptr(name as *const c_char) }.to_str().ok()
}

/// Bytes free to everybody on a device, and all there are.
#[pyfunction]
pub fn pool_memory_info(py: Python<'_>, pool: usize, device: i32) -> PyResult<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pool is alive.
    let status =
        py.detach(|| unsafe { abi::forebay_pool_memory_info(pool as *const _, device, &raw mut free, &raw mut total) });
    answer(py, status, (free, total))
}

/// The figures of a device, by the names of `forebay_pool_stats`.
#[pyfunction]
pub fn pool_get_stats(py: Python<'_>, pool: usize, device: i32) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: numbers alone, which may be 0.
    let mut raw: abi::forebay_pool_stats = unsafe { std::mem::zeroed() };
    (raw.size, raw.version) = (size_of_val(&raw) as u32, abi::FOREBAY_STATS_VERSION);
    // SAFETY: the pool is alive.
    let status = py.detach(|| unsafe { abi::forebay_pool_get_stats(pool as *const _, device, &raw mut raw) });
    answer(py, status, ())?;
    let figures = PyDict::new(py);
    macro_rules! put {
        ($($name:ident)*) => { $(figures.set_item(stringify!($name), raw.$name)?;)* };
    }
    put! {
        live live_peak physical physical_peak limit free_bytes largest_free private_bytes allocations frees hits misses steals
        growths waits releases out_of_memory live_by_framework streams free_blocks making_ns waiting_ns
    }
    Ok(figures)
}

/// A few lines about a device.
#[pyfunction]
pub fn pool_report(py: Python<'_>, pool: usize, device: i32) -> PyResult<String> {
    let (mut text, mut needed) = (Vec::<u8>::new(), 0);
    loop {
        // SAFETY: the pool is alive, and the text as long as is said.
        let status = py.detach(|| unsafe {
            abi::forebay_pool_report(pool as *const _, device, text.as_mut_ptr().cast(), text.len(), &raw mut needed)
        });
        answer(py, status, ())?;
        if needed <= text.len() {
            text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        // It may have grown between two calls.
        text.resize(needed, 0);
    }
}

/// A block of a pool.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Block {
    address: u64,
    bytes: u64,
    state: u32,
    stream: u64,
    is_private: bool,
    private_first: u64,
    private_second: u64,
}

/// Every block of a device's pool, in address order.
#[pyfunction]
pub fn pool_snapshot(py: Python<'_>, pool: usize, device: i32) -> PyResult<Vec<Block>> {
    unsafe extern "C" fn visit(context: *mut c_void, block: *const abi::forebay_block) {
        // SAFETY: the context is the list below, and the block valid in this call.
        unsafe { (*context.cast::<Vec<abi::forebay_block>>()).push(*block) }
    }
    let mut found = Vec::<abi::forebay_block>::new();
    // SAFETY: the pool is alive, and the list until the call is over.
    let status = py.detach(|| unsafe {
        abi::forebay_pool_snapshot(pool as *const _, device, Some(visit), (&raw mut found).cast())
    });
    let block = |raw: abi::forebay_block| Block {
        address: raw.address,
        bytes: raw.bytes,
        state: raw.state,
        stream: raw.stream,
        is_private: raw.is_private != 0,
        private_first: raw.private_first,
        private_second: raw.private_second,
    };
    answer(py, status, found.into_iter().map(block).collect())
}

/// Has `callback` asked with a device and a number of bytes before a request fails; the number by which it is removed. A call may be
/// under way when it is removed, so the callback is kept for good.
#[pyfunction]
pub fn pool_add_pressure_callback(py: Python<'_>, pool: usize, callback: Py<PyAny>) -> PyResult<u64> {
    unsafe extern "C" fn ask(user: *mut c_void, device: i32, bytes: u64) -> bool {
        let asked = Python::try_attach(|py| {
            // SAFETY: the callback is kept for good.
            let callback = unsafe { Bound::from_borrowed_ptr(py, user.cast()) };
            let helped = callback.call1((device, bytes)).and_then(|helped| helped.is_truthy());
            helped.unwrap_or_else(|error| {
                error.write_unraisable(py, Some(&callback));
                false
            })
        });
        asked.unwrap_or(false)
    }
    let (user, mut id) = (callback.into_ptr() as usize, 0);
    // SAFETY: the pool is alive.
    let status = py.detach(|| unsafe {
        abi::forebay_pool_add_pressure_callback(pool as *mut _, Some(ask), user as *mut c_void, &raw mut id)
    });
    answer(py, status, id)
}
