//! What the package hands over once: its own classes and functions, for all that is rare.

use std::ffi::{CStr, c_void};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTuple, PyType};

use crate::buffer::BufferBase;

/// An object of the library.
pub type Object = *mut c_void;

/// CPython's `PyObject_Vectorcall`, and `PyObject_VectorcallMethod` with a method's name in its place. The stable ABI has them
/// only from 3.12 on; they are exported, and the same, since 3.9.
pub type Vectorcall = unsafe extern "C" fn(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Both; the interpreters that have one have the other.
pub struct Vectorcalls {
    pub function: Vectorcall,
    pub method: Vectorcall,
}

impl Vectorcalls {
    fn find() -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: a C string; what is found is a function of this type, and NULL is `None`.
            unsafe {
                let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                std::mem::transmute::<*mut c_void, Option<Vectorcall>>(address)
            }
        };
        Some(Self { function: find(c"PyObject_Vectorcall")?, method: find(c"PyObject_VectorcallMethod")? })
    }
}

/// The package's parts that are called, or looked for.
pub struct Package {
    /// `Stream`, whose `_created` is read here.
    pub stream: Py<PyType>,
    /// `_stream.resolve`: a stream of any make to its handle and what keeps it alive.
    pub resolve: Py<PyAny>,
    /// `_arguments.as_size`: any number of bytes to an integer, or its exception.
    pub as_size: Py<PyAny>,
    /// `_arguments.as_pointer`: any address to an integer, or its exception.
    pub as_pointer: Py<PyAny>,
    /// `_errors.failure`: the exception for a status.
    failure: Py<PyAny>,
    /// `Buffer`, the class of what resources give.
    pub buffer: Py<PyType>,
    /// What makes an instance of it past its own `__new__`, which refuses.
    new: ffi::newfunc,
    nothing: Py<PyTuple>,
    /// `None` where this interpreter does not export it.
    pub vectorcall: Option<Vectorcalls>,
}

static PACKAGE: PyOnceLock<Package> = PyOnceLock::new();

/// The package. An object of this module exists before [`connect`] only if somebody makes one by hand.
pub fn package(py: Python<'_>) -> PyResult<&Package> {
    PACKAGE.get(py).ok_or_else(|| PyRuntimeError::new_err("forebay._core is used by importing forebay"))
}

impl Package {
    /// A buffer that holds nothing yet.
    ///
    /// # Safety
    /// `class` derives from `BufferBase`.
    pub unsafe fn new_buffer<'py>(&self, class: &Bound<'py, PyType>) -> PyResult<Bound<'py, BufferBase>> {
        // SAFETY: `new` is the slot of `BufferBase`, which takes every class derived from that, and answers an instance.
        unsafe {
            let made = (self.new)(class.as_type_ptr(), self.nothing.as_ptr(), std::ptr::null_mut());
            Ok(Bound::from_owned_ptr_or_err(class.py(), made)?.cast_into_unchecked())
        }
    }

    /// A number of bytes, as Python code passes it.
    pub fn size(&self, size: &Bound<'_, PyAny>) -> PyResult<u64> {
        let plain = if size.is_exact_instance_of::<PyInt>() { size.extract().ok() } else { None };
        match plain {
            Some(bytes) => Ok(bytes),
            None => self.as_size.bind(size.py()).call1((size,))?.extract(),
        }
    }

    /// An address, as Python code passes it.
    pub fn pointer(&self, pointer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let plain = if pointer.is_exact_instance_of::<PyInt>() { pointer.extract().ok() } else { None };
        match plain {
            Some(address) => Ok(address),
            None => self.as_pointer.bind(pointer.py()).call1((pointer,))?.extract(),
        }
    }
}

/// The exception for a failed call, the last one of this thread.
pub fn failed(py: Python<'_>, status: u32) -> PyErr {
    match package(py).and_then(|package| package.failure.bind(py).call1((status,))) {
        Ok(failure) => PyErr::from_value(failure),
        Err(error) => error,
    }
}

/// Hands over the package's parts. Once: a second copy of the package in one process is refused.
#[pyfunction]
pub fn connect(
    py: Python<'_>,
    buffer: Bound<'_, PyType>,
    stream: Py<PyType>,
    resolve: Py<PyAny>,
    as_size: Py<PyAny>,
    as_pointer: Py<PyAny>,
    failure: Py<PyAny>,
) -> PyResult<()> {
    let base = py.get_type::<BufferBase>();
    if !buffer.is_subclass(&base)? {
        return Err(PyValueError::new_err("buffer must be a class derived from BufferBase"));
    }
    // SAFETY: the slot of a class is a function of its type, and not NULL for one with `#[new]`.
    let new = unsafe {
        let slot = ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new);
        std::mem::transmute::<*mut c_void, ffi::newfunc>(slot)
    };
    let nothing = PyTuple::empty(py).unbind();
    let (buffer, vectorcall) = (buffer.unbind(), Vectorcalls::find());
    let package = Package { stream, resolve, as_size, as_pointer, failure, buffer, new, nothing, vectorcall };
    let twice = |_| PyRuntimeError::new_err("forebay was imported twice: one process has one copy of the package");
    PACKAGE.set(py, package).map_err(twice)
}
