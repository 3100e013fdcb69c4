//! What `forebay.cuda_core.MemoryResource` has of this module.

use std::ptr;

use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyTuple};

use crate::abi::{FOREBAY_FRAMEWORK_CUDA_CORE, FOREBAY_STATUS_FORKED};
use crate::blocks;
use crate::cell::Field;
use crate::connect::{Package, failed, package};

/// A memory resource of cuda.core's on a pool, with the two calls that are made for every piece of memory.
#[pyclass(subclass, frozen, module = "forebay._core")]
#[derive(Default)]
pub struct CoreBase {
    /// The library's pool; 0 before the derived class told.
    pool: Field<usize>,
    /// What makes that live. Not cleared in a cycle, since buffers may give back later; it refers to nothing.
    keep: Field<Option<Py<PyAny>>>,
    device: Field<i32>,
    /// Whether it is pinned memory of the host.
    on_host: Field<bool>,
    calls: Field<Option<Py<Calls>>>,
}

/// The Python code that is called.
#[pyclass(frozen, module = "forebay._core")]
struct Calls {
    /// `cuda.core.Buffer.from_handle`.
    from_handle: Py<PyAny>,
    /// The handle of a stream that is not plainly one, or its exception.
    handle: Py<PyAny>,
}

#[pymethods]
impl CoreBase {
    #[new]
    #[pyo3(signature = (*_arguments, **_named))]
    fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Says what to allocate from, what keeps that, how cuda.core makes a buffer, and who knows an unusual stream's handle.
    #[expect(clippy::too_many_arguments, reason = "called once for an object, with each part by its place")]
    fn _connect(
        &self,
        py: Python<'_>,
        pool: usize,
        keep: Py<PyAny>,
        device: i32,
        on_host: bool,
        from_handle: Py<PyAny>,
        handle: Py<PyAny>,
    ) -> PyResult<()> {
        let calls = Py::new(py, Calls { from_handle, handle })?;
        let _ = (self.pool.replace(py, pool), self.device.replace(py, device), self.on_host.replace(py, on_host));
        let old = (self.calls.replace(py, Some(calls)), self.keep.replace(py, Some(keep)));
        drop(old);
        Ok(())
    }

    /// Gives a buffer, usable by work queued on `stream` from now on.
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     Bytes. 0 gives a buffer without memory.
    /// stream : cuda.core.Stream or GraphBuilder
    ///     In whose order the memory is given and, unless the buffer is told another one, taken back.
    ///
    /// Returns
    /// -------
    /// cuda.core.Buffer
    ///
    /// Raises
    /// ------
    /// MemoryError
    ///     If there is no memory, after everything that could be given back was. The text has the pool's report.
    /// RuntimeError
    ///     If the stream is being captured without a private pool.
    #[pyo3(signature = (size, *, stream))]
    fn allocate<'py>(
        slf: &Bound<'py, Self>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this, package) = (slf.py(), slf.get(), package(slf.py())?);
        let bytes = package.size(size)?;
        let size = if size.is_exact_instance_of::<PyInt>() { size } else { &bytes.into_pyobject(py)?.into_any() };
        let (calls, queue) = this.queue(package, stream)?;
        let (pool, device) = (this.pool.get(py), this.device.get(py));
        let taken = if this.on_host.get(py) {
            blocks::take_ready(py, pool, bytes, device)
        } else {
            blocks::take(py, pool, FOREBAY_FRAMEWORK_CUDA_CORE, bytes, device, queue)
        };
        let address = taken.map_err(|status| failed(py, status))?;
        let made = buffer(package, calls.get(), address, size, slf, stream);
        made.inspect_err(|error| {
            // No stream of cuda.core's. Whatever fails later ends a buffer that has the memory already.
            if error.is_instance_of::<PyTypeError>(py) {
                let _ = blocks::give(py, pool, address, queue);
            }
        })
    }

    /// Takes memory back in the order of `stream`. cuda.core calls this when a buffer ends. Does nothing in a forked child.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the pool gave no such memory.
    #[pyo3(signature = (ptr, size, *, stream))]
    fn deallocate(
        slf: &Bound<'_, Self>,
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = size;
        let (py, this, package) = (slf.py(), slf.get(), package(slf.py())?);
        let address = package.pointer(ptr)?;
        let (_, queue) = this.queue(package, stream)?;
        match blocks::give(py, this.pool.get(py), address, queue) {
            // cuda.core's buffers end in finalizers in a child of `fork`, too, and those cannot be told.
            0 | FOREBAY_STATUS_FORKED => Ok(()),
            status => Err(failed(py, status)),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector runs with the interpreter's lock held, and its visits only count.
        unsafe { self.calls.visit(|held| visit.call(held)) }
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.calls.replace(py, None));
    }
}

impl CoreBase {
    /// The CUstream of what cuda.core calls a stream.
    fn queue(&self, package: &Package, stream: &Bound<'_, PyAny>) -> PyResult<(Py<Calls>, u64)> {
        let py = stream.py();
        let missing = || PyRuntimeError::new_err("the memory resource was not initialized");
        let calls = self.calls.share(py).ok_or_else(missing)?;
        let queue = match plain_queue(package, stream)? {
            Some(queue) => queue,
            None => calls.get().handle.bind(py).call1((stream,))?.extract()?,
        };
        Ok((calls, queue))
    }
}

/// What a call's count of arguments has besides: the place in front of the first one is free for the callee to use.
const FREE_PLACE: usize = 1 << (usize::BITS - 1);

/// The handle in what `stream.__cuda_stream__()` answers; `None` for what has no such method.
fn plain_queue(package: &Package, stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = stream.py();
    let name = intern!(py, "__cuda_stream__");
    let answer = match &package.vectorcall {
        None => stream.call_method0(name),
        // SAFETY: the method's name, and its object as the only argument behind a free place; the answer is a new reference,
        // or NULL with an exception.
        Some(vectorcall) => unsafe {
            let arguments = [ptr::null_mut(), stream.as_ptr()];
            let from = arguments.as_ptr().add(1);
            Bound::from_owned_ptr_or_err(py, (vectorcall.method)(name.as_ptr(), from, 1 | FREE_PLACE, ptr::null_mut()))
        },
    };
    match answer {
        Ok(answer) => match answer.cast_exact::<PyTuple>() {
            Ok(answer) if answer.len() == 2 => Ok(answer.get_borrowed_item(1)?.extract().ok()),
            _ => Ok(None),
        },
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `from_handle(address, size, resource, stream=stream)`.
fn buffer<'py>(
    package: &Package,
    calls: &Calls,
    address: usize,
    size: &Bound<'py, PyAny>,
    resource: &Bound<'py, CoreBase>,
    stream: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static NAMES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let py = resource.py();
    let address = address.into_pyobject(py)?;
    let from_handle = calls.from_handle.bind(py);
    let Some(vectorcall) = &package.vectorcall else {
        let named = PyDict::new(py);
        named.set_item(intern!(py, "stream"), stream)?;
        return from_handle.call((address, size, resource), Some(&named));
    };
    let names = NAMES.get_or_try_init(py, || PyTuple::new(py, [intern!(py, "stream")]).map(Bound::unbind))?.bind(py);
    let arguments = [ptr::null_mut(), address.as_ptr(), size.as_ptr(), resource.as_ptr(), stream.as_ptr()];
    // SAFETY: every argument lives through the call; three by position, one by its name; the answer is a new reference, or
    // NULL with an exception.
    unsafe {
        let from = arguments.as_ptr().add(1);
        let made = (vectorcall.function)(from_handle.as_ptr(), from, 3 | FREE_PLACE, names.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)
    }
}
