//! What the library's memory resources have of this module.

use pyo3::prelude::*;

use crate::abi;
use crate::buffer::BufferBase;
use crate::cell::Field;
use crate::connect::{failed, package};
use crate::stream;

/// A resource of the library, with the call that is made for every piece of memory.
#[pyclass(subclass, frozen, module = "forebay._core")]
#[derive(Default)]
pub struct ResourceBase {
    /// The library's object; `None` before the constructor made one.
    handle: Field<Option<usize>>,
}

#[pymethods]
impl ResourceBase {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter(_handle)]
    fn handle(&self, py: Python<'_>) -> Option<usize> {
        self.handle.get(py)
    }

    #[setter(_handle)]
    fn set_handle(&self, py: Python<'_>, handle: Option<usize>) {
        let _ = self.handle.replace(py, handle);
    }

    /// Gives a buffer of `size` bytes, usable by work queued on `stream` from now on.
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     Bytes. 0 gives a buffer without memory.
    /// stream : stream, optional
    ///     In whose order the memory is given and, unless `Buffer.close` names another, taken back. None: the device's
    ///     default stream.
    ///
    /// Raises
    /// ------
    /// MemoryError
    ///     If there is no memory, after everything that could be given back was.
    /// TypeError
    ///     If `size` is no integer, or `stream` no stream.
    /// ValueError
    ///     If `size` is negative.
    /// RuntimeError
    ///     If the resource is closed, mapped from another process, or the stream is being captured.
    #[pyo3(signature = (size, stream = None))]
    fn allocate<'py>(
        slf: &Bound<'py, Self>,
        size: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, BufferBase>> {
        let py = slf.py();
        let package = package(py)?;
        let bytes = package.size(size)?;
        let (raw, keep) = match stream {
            None => (0, None),
            Some(stream) => stream::resolve(package, stream)?,
        };
        // Before the memory, so that no failure is left to give memory back after.
        // SAFETY: `connect` saw that it derives from that class.
        let buffer = unsafe { package.new_buffer(package.buffer.bind(py))? };
        let resource = slf.get().handle.get(py).unwrap_or(0);
        let made = allocate(py, resource, bytes, raw).map_err(|status| failed(py, status))?;
        buffer.get().fill(py, made, Some(slf.clone().into_any().unbind()), keep);
        Ok(buffer)
    }
}

/// A buffer object, or a status. pre: the resource lives through the call.
fn allocate(py: Python<'_>, resource: usize, bytes: u64, stream: u64) -> Result<usize, u32> {
    let mut out = std::ptr::null_mut();
    // SAFETY: the resource is alive or NULL, and the stream as who asks for memory promises.
    if unsafe { abi::forebay_resource_try_allocate(resource as *mut _, bytes, stream as *mut _, &raw mut out) } != 0 {
        return Ok(out as usize);
    }
    py.detach(|| {
        let mut out = std::ptr::null_mut();
        // SAFETY: as above.
        match unsafe { abi::forebay_resource_allocate(resource as *mut _, bytes, stream as *mut _, &raw mut out) } {
            0 => Ok(out as usize),
            status => Err(status),
        }
    })
}

impl Drop for ResourceBase {
    fn drop(&mut self) {
        // SAFETY: an object of the interpreter ends with its lock held.
        let py = unsafe { Python::assume_attached() };
        let Some(handle) = self.handle.get(py) else { return };
        // The end of a pool waits for the device.
        // SAFETY: the object is this one's alone, and nobody has this one any more.
        py.detach(|| unsafe { abi::forebay_resource_destroy(handle as *mut _) });
    }
}
