//! What buffers have of this module.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::PyType;

use crate::abi;
use crate::cell::Field;
use crate::connect::{failed, package};

/// A buffer of the library, with its end.
#[pyclass(subclass, frozen, module = "forebay._core")]
#[derive(Default)]
pub struct BufferBase {
    /// The library's object; 0 for none. Freed when this object ends, so that any thread can ask a closed buffer.
    handle: Field<usize>,
    /// The resource that the memory goes back to. Kept past a close, see [`BufferBase::drop`].
    resource: Field<Option<Py<PyAny>>>,
    /// What makes the buffer's stream live. The cycle collector is not told of it: to the collector somebody outside holds
    /// the stream, so it is never collected before the buffer, in whose end the stream is used, not even with both in one
    /// cycle. A cycle through the stream's own attributes back to the buffer therefore lives until the buffer is closed;
    /// this package's streams have no such attributes.
    keep: Field<Option<Py<PyAny>>>,
    /// What the library said of the buffer, until that can have changed.
    info: Field<Option<Py<PyAny>>>,
    /// What few buffers have; see `_buffer.py`.
    special: Field<Option<Py<PyAny>>>,
}

impl BufferBase {
    /// Takes a library's object over. pre: the buffer is new.
    pub fn fill(&self, py: Python<'_>, handle: usize, resource: Option<Py<PyAny>>, keep: Option<Py<PyAny>>) {
        let _ = self.handle.replace(py, handle);
        let old = (self.resource.replace(py, resource), self.keep.replace(py, keep));
        drop(old);
    }
}

#[pymethods]
impl BufferBase {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Takes the library's object over. `keep` is what makes the buffer's stream live.
    #[classmethod]
    fn _of<'py>(
        cls: &Bound<'py, PyType>,
        handle: Option<usize>,
        resource: Option<Py<PyAny>>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        // SAFETY: the interpreter calls a class method with the class that has it, or one derived from that.
        let buffer = unsafe { package(cls.py())?.new_buffer(cls)? };
        buffer.get().fill(cls.py(), handle.unwrap_or(0), resource, keep);
        Ok(buffer)
    }

    #[getter(_handle)]
    fn handle(&self, py: Python<'_>) -> usize {
        self.handle.get(py)
    }

    #[getter(_resource)]
    fn resource(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.resource.share(py)
    }

    #[setter(_resource)]
    fn set_resource(&self, py: Python<'_>, resource: Option<Py<PyAny>>) {
        drop(self.resource.replace(py, resource));
    }

    #[getter(_info)]
    fn info(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.info.share(py)
    }

    #[setter(_info)]
    fn set_info(&self, py: Python<'_>, info: Option<Py<PyAny>>) {
        drop(self.info.replace(py, info));
    }

    #[getter(_special)]
    fn special(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.special.share(py)
    }

    #[setter(_special)]
    fn set_special(&self, py: Python<'_>, special: Option<Py<PyAny>>) {
        drop(self.special.replace(py, special));
    }

    /// Gives the memory back. Twice is harmless.
    ///
    /// Parameters
    /// ----------
    /// stream : stream, optional
    ///     In whose order; None: that of the allocation, or of the import.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If it cannot be closed there, as on a stream that is being captured; the buffer is then still open.
    #[pyo3(signature = (stream = None))]
    fn close<'py>(slf: &Bound<'py, Self>, stream: Option<&Bound<'py, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if stream.is_some() || this.special.is_some(py) {
            slf.call_method1(intern!(py, "_close_with"), (stream,))?;
        } else {
            close(py, this.handle.get(py))?;
        }
        let ended = (this.keep.replace(py, None), this.info.replace(py, None), this.special.replace(py, None));
        drop(ended);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for field in [&self.resource, &self.info, &self.special] {
            // SAFETY: the collector runs with the interpreter's lock held, and its visits only count.
            unsafe { field.visit(|held| visit.call(held))? };
        }
        Ok(())
    }

    fn __clear__(&self, py: Python<'_>) {
        let ended = (self.resource.replace(py, None), self.info.replace(py, None), self.special.replace(py, None));
        drop(ended);
    }
}

/// pre: the object, if any, lives through the call.
fn close(py: Python<'_>, handle: usize) -> PyResult<()> {
    // SAFETY: the object is alive or NULL, and its stream as the caller of `allocate` promised.
    if unsafe { abi::forebay_buffer_try_close(handle as *mut _) } != 0 {
        return Ok(());
    }
    // SAFETY: as above.
    match py.detach(|| unsafe { abi::forebay_buffer_close(handle as *mut _) }) {
        0 => Ok(()),
        status => Err(failed(py, status)),
    }
}

impl Drop for BufferBase {
    fn drop(&mut self) {
        // SAFETY: an object of the interpreter ends with its lock held.
        let py = unsafe { Python::assume_attached() };
        let handle = self.handle.get(py);
        if handle == 0 {
            return;
        }
        // A closed object goes without a wait while somebody else has its resource, as `self.resource` does: the end of a
        // resource may wait for the device.
        // SAFETY: the object is this one's alone, and nobody has this one any more. `self.keep` still makes the stream live:
        // fields end after this function.
        unsafe {
            if self.resource.is_some(py) && abi::forebay_buffer_try_close(handle as *mut _) != 0 {
                abi::forebay_buffer_destroy(handle as *mut _);
            } else {
                py.detach(|| abi::forebay_buffer_destroy(handle as *mut _));
            }
        }
    }
}
