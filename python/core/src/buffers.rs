//! Buffers: of memory that exists, what is known of them, and their descriptors for other processes.

use std::ffi::c_void;
use std::ptr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::abi;
use crate::calls::answer;

/// A buffer of memory that exists. `release` is called, once, when the memory is free: maybe later than the close, since a DLPack
/// tensor or a view may hold it, and on any thread.
#[pyfunction]
pub fn buffer_from_handle(
    py: Python<'_>,
    ptr: usize,
    size: u64,
    resource: usize,
    release: Option<Py<PyAny>>,
    stream: u64,
) -> PyResult<usize> {
    unsafe extern "C" fn released(context: *mut c_void) {
        // At the interpreter's end no Python can run: the object stays.
        Python::try_attach(|py| {
            // SAFETY: the reference was handed over, and this is called once.
            let release = unsafe { Bound::from_owned_ptr(py, context.cast()) };
            if let Err(error) = release.call0() {
                error.write_unraisable(py, Some(&release));
            }
        });
    }
    let context = release.as_ref().map_or(ptr::null_mut(), Py::as_ptr) as usize;
    let mut out = 0_usize;
    // SAFETY: the resource is alive or NULL, and the memory the caller's to hand over.
    let status = py.detach(|| unsafe {
        let function: abi::forebay_release_fn = if context == 0 { None } else { Some(released) };
        let (ptr, resource, stream) = (ptr as *mut c_void, resource as *mut _, stream as *mut c_void);
        abi::forebay_buffer_from_handle(
            ptr,
            size,
            resource,
            function,
            context as *mut c_void,
            stream,
            (&raw mut out).cast(),
        )
    });
    let made = answer(py, status, out)?;
    // The buffer has the reference now.
    let _ = release.map(Py::into_ptr);
    Ok(made)
}

/// What is known of a buffer.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct BufferInfo {
    handle: u64,
    size: u64,
    stream: u64,
    device_id: i32,
    is_device_accessible: bool,
    is_host_accessible: bool,
    is_managed: bool,
    is_mapped: bool,
    is_closed: bool,
    ipc_path: u32,
    has_resource: bool,
    stream_device: i32,
}

#[pyfunction]
pub fn buffer_get_info(py: Python<'_>, buffer: usize) -> PyResult<BufferInfo> {
    // SAFETY: numbers alone, which may be 0.
    let mut raw: abi::forebay_buffer_info = unsafe { std::mem::zeroed() };
    (raw.size, raw.version) = (size_of_val(&raw) as u32, abi::FOREBAY_INFO_VERSION);
    // SAFETY: the buffer is alive.
    let status = py.detach(|| unsafe { abi::forebay_buffer_get_info(buffer as *const _, &raw mut raw) });
    let info = BufferInfo {
        handle: raw.handle,
        size: raw.bytes,
        stream: raw.stream,
        device_id: raw.device_id,
        is_device_accessible: raw.is_device_accessible != 0,
        is_host_accessible: raw.is_host_accessible != 0,
        is_managed: raw.is_managed != 0,
        is_mapped: raw.is_mapped != 0,
        is_closed: raw.is_closed != 0,
        ipc_path: raw.ipc_path,
        has_resource: raw.has_resource != 0,
        stream_device: raw.stream_device,
    };
    answer(py, status, info)
}

/// The bytes of the descriptor that `describe` writes.
fn described(
    py: Python<'_>,
    describe: impl FnOnce(*mut abi::forebay_ipc_descriptor) -> u32 + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let mut raw = abi::forebay_ipc_descriptor { bytes: [0; 256] };
    let status = py.detach(|| describe(&raw mut raw));
    answer(py, status, PyBytes::new(py, &raw.bytes))
}

#[pyfunction]
pub fn buffer_get_ipc_descriptor(py: Python<'_>, buffer: usize) -> PyResult<Bound<'_, PyBytes>> {
    // SAFETY: the buffer is alive.
    described(py, |out| unsafe { abi::forebay_buffer_get_ipc_descriptor(buffer as *mut _, out) })
}

#[pyfunction]
pub fn ipc_export(py: Python<'_>, pool: usize, ptr: usize) -> PyResult<Bound<'_, PyBytes>> {
    // SAFETY: the pool is alive; the pointer is looked up.
    described(py, |out| unsafe { abi::forebay_ipc_export(pool as *mut _, ptr as *const c_void, out) })
}

#[pyfunction]
pub fn ipc_export_foreign(py: Python<'_>, ptr: usize, size: u64) -> PyResult<Bound<'_, PyBytes>> {
    // SAFETY: the driver is asked for the pointer.
    described(py, |out| unsafe { abi::forebay_ipc_export_foreign(ptr as *const c_void, size, out) })
}

fn descriptor(bytes: &[u8]) -> PyResult<abi::forebay_ipc_descriptor> {
    let wrong = |_| {
        let room = size_of::<abi::forebay_ipc_descriptor>();
        PyValueError::new_err(format!("the data has {} bytes: a descriptor has {room}", bytes.len()))
    };
    Ok(abi::forebay_ipc_descriptor { bytes: bytes.try_into().map_err(wrong)? })
}

/// The size of the buffer that a descriptor names.
#[pyfunction]
pub fn ipc_descriptor_size(py: Python<'_>, bytes: &[u8]) -> PyResult<u64> {
    let (raw, mut size) = (descriptor(bytes)?, 0);
    // SAFETY: the descriptor has as many bytes as is said.
    let status = py.detach(|| unsafe {
        abi::forebay_ipc_descriptor_size(&raw const raw, size_of_val(&raw) as u64, &raw mut size)
    });
    answer(py, status, size)
}

/// The buffer that another process named.
#[pyfunction]
pub fn buffer_from_ipc_descriptor(py: Python<'_>, resource: usize, bytes: &[u8], stream: u64) -> PyResult<usize> {
    let (raw, mut out) = (descriptor(bytes)?, 0_usize);
    // SAFETY: the resource is alive or NULL, and the descriptor has as many bytes as is said.
    let status = py.detach(|| unsafe {
        let (resource, size, stream) = (resource as *mut _, size_of_val(&raw) as u64, stream as *mut c_void);
        abi::forebay_buffer_from_ipc_descriptor(resource, &raw const raw, size, stream, (&raw mut out).cast())
    });
    answer(py, status, out)
}
