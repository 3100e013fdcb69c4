//! What the library's memory resources have of this module.

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::buffer::BufferBase;
use crate::cell::Field;
use crate::connect::{Object, package};
use crate::stream;

/// A resource of the library, with the call that is made for every piece of memory.
#[pyclass(subclass, frozen, module = "forebay._fast")]
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

    // Documented where `MemoryResource` declares it.
    #[pyo3(signature = (size, stream = None))]
    fn allocate<'py>(
        slf: &Bound<'py, Self>,
        size: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, BufferBase>> {
        let py = slf.py();
        let package = package(py)?;
        let plain = if size.is_exact_instance_of::<PyInt>() { size.extract().ok() } else { None };
        let bytes: u64 = match plain {
            Some(bytes) => bytes,
            None => package.as_size.bind(py).call1((size,))?.extract()?,
        };
        let (raw, keep) = match stream {
            None => (0, None),
            Some(stream) => stream::resolve(package, stream)?,
        };
        // Before the memory, so that no failure is left to give memory back after.
        let buffer = package.new_buffer(py)?;
        let made = allocate(py, slf.get().handle.get(py), bytes, raw).map_err(|status| package.failed(py, status))?;
        buffer.get().fill(py, made, Some(slf.clone().into_any().unbind()), keep);
        Ok(buffer)
    }
}

/// pre: the object, if any, lives through the call.
fn allocate(py: Python<'_>, resource: Option<usize>, bytes: u64, stream: u64) -> Result<usize, u32> {
    let Ok(package) = package(py) else { return Ok(0) };
    let (resource, mut out) = (resource.unwrap_or(0), 0_usize);
    let place = (&raw mut out).cast::<Object>();
    // SAFETY: the object is alive or NULL, the stream as the caller of `allocate` promises, and `out` is a local.
    if unsafe { (package.library.allocate_at_once)(resource as Object, bytes, stream as Object, place) } != 0 {
        return Ok(out);
    }
    let call = package.library.allocate;
    let status = py.detach(|| {
        let mut made: Object = std::ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { call(resource as Object, bytes, stream as Object, &raw mut made) };
        (status, made as usize)
    });
    if status.0 == 0 { Ok(status.1) } else { Err(status.0) }
}

impl Drop for ResourceBase {
    fn drop(&mut self) {
        // SAFETY: an object of the interpreter ends with its lock held.
        let py = unsafe { Python::assume_attached() };
        let (Some(handle), Ok(package)) = (self.handle.get(py), package(py)) else { return };
        let destroy = package.library.destroy_resource;
        // The end of a pool waits for the device.
        // SAFETY: the object is this one's alone, and nobody has this one any more.
        py.detach(|| unsafe { destroy(handle as Object) });
    }
}
