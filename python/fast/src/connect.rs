//! What the package hands over once: the library's functions, and its own for all that is rare.

use std::ffi::c_void;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::buffer::BufferBase;

/// An object of the library.
pub type Object = *mut c_void;

/// The functions whose addresses [`connect`] takes, in this order. `include/forebay.h` declares them.
pub const FUNCTIONS: [&str; 6] = [
    "forebay_resource_allocate",
    "forebay_resource_allocate_at_once",
    "forebay_resource_destroy",
    "forebay_buffer_close",
    "forebay_buffer_close_at_once",
    "forebay_buffer_destroy",
];

type Allocate = unsafe extern "C" fn(resource: Object, bytes: u64, stream: *mut c_void, out: *mut Object) -> u32;
type Close = unsafe extern "C" fn(buffer: Object) -> u32;
type Destroy = unsafe extern "C" fn(object: Object);

pub struct Library {
    pub allocate: Allocate,
    pub allocate_at_once: Allocate,
    pub destroy_resource: Destroy,
    pub close: Close,
    pub close_at_once: Close,
    pub destroy_buffer: Destroy,
}

/// The package's parts that are called, or looked for.
pub struct Package {
    pub library: Library,
    /// `Stream`, whose `_created` is read here.
    pub stream: Py<PyType>,
    /// `_stream.resolve`: a stream of any make to its handle and what keeps it alive.
    pub resolve: Py<PyAny>,
    /// `_arguments.as_size`: any integer to a number of bytes, or its exception.
    pub as_size: Py<PyAny>,
    /// `_errors.failure`: the exception for a status.
    pub failure: Py<PyAny>,
    /// `Buffer`, the class of what resources give.
    pub buffer: Py<PyType>,
    /// What makes an instance of it past its own `__new__`, which refuses.
    new: ffi::newfunc,
    nothing: Py<PyTuple>,
}

static PACKAGE: PyOnceLock<Package> = PyOnceLock::new();

/// The package. An object of this module exists before [`connect`] only if somebody makes one by hand.
pub fn package(py: Python<'_>) -> PyResult<&Package> {
    PACKAGE.get(py).ok_or_else(|| PyRuntimeError::new_err("forebay._fast is used by importing forebay"))
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

    /// The exception for a failed call, the last one of this thread.
    pub fn failed(&self, py: Python<'_>, status: u32) -> PyErr {
        match self.failure.bind(py).call1((status,)) {
            Ok(failure) => PyErr::from_value(failure),
            Err(error) => error,
        }
    }
}

/// Whether `connect` was called: one copy of the package can use this module.
#[pyfunction]
pub fn is_connected(py: Python<'_>) -> bool {
    PACKAGE.get(py).is_some()
}

/// Hands over the addresses of `FUNCTIONS`, and the package's parts.
#[pyfunction]
pub fn connect(
    py: Python<'_>,
    addresses: [usize; FUNCTIONS.len()],
    buffer: Bound<'_, PyType>,
    stream: Py<PyType>,
    resolve: Py<PyAny>,
    as_size: Py<PyAny>,
    failure: Py<PyAny>,
) -> PyResult<()> {
    if addresses.contains(&0) {
        return Err(PyValueError::new_err(format!(
            "addresses is {addresses:x?}: every one of {FUNCTIONS:?} is needed"
        )));
    }
    let base = py.get_type::<BufferBase>();
    if !buffer.is_subclass(&base)? {
        return Err(PyValueError::new_err("buffer must be a class derived from BufferBase"));
    }
    let [allocate, allocate_at_once, destroy_resource, close, close_at_once, destroy_buffer] = addresses;
    // SAFETY: the package read these addresses from the library under the names in `FUNCTIONS`, and never closes it; the
    // types are those of the header. The slot of a class is a function of its type, and not NULL for one with `#[new]`.
    let (library, new) = unsafe {
        let library = Library {
            allocate: std::mem::transmute::<usize, Allocate>(allocate),
            allocate_at_once: std::mem::transmute::<usize, Allocate>(allocate_at_once),
            destroy_resource: std::mem::transmute::<usize, Destroy>(destroy_resource),
            close: std::mem::transmute::<usize, Close>(close),
            close_at_once: std::mem::transmute::<usize, Close>(close_at_once),
            destroy_buffer: std::mem::transmute::<usize, Destroy>(destroy_buffer),
        };
        let slot = ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new);
        (library, std::mem::transmute::<*mut c_void, ffi::newfunc>(slot))
    };
    let nothing = PyTuple::empty(py).unbind();
    let package = Package { library, stream, resolve, as_size, failure, buffer: buffer.unbind(), new, nothing };
    PACKAGE.set(py, package).map_err(|_| PyRuntimeError::new_err("forebay._fast is connected already"))
}
