//! What the package hands over once: the library's functions, and its own for all that is rare.

use std::ffi::c_void;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTuple, PyType};

use crate::buffer::BufferBase;

/// An object of the library.
pub type Object = *mut c_void;

/// The functions whose addresses [`connect`] takes, in this order. `include/forebay.h` declares them.
pub const FUNCTIONS: [&str; 12] = [
    "forebay_resource_allocate",
    "forebay_resource_try_allocate",
    "forebay_resource_destroy",
    "forebay_buffer_close",
    "forebay_buffer_try_close",
    "forebay_buffer_destroy",
    "forebay_pool_malloc_for",
    "forebay_pool_try_malloc",
    "forebay_pool_malloc_ready",
    "forebay_pool_free",
    "forebay_pool_try_free",
    "forebay_pool_free_after_all",
];

type Malloc = unsafe extern "C" fn(
    pool: Object,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> u32;
type MallocReady =
    unsafe extern "C" fn(pool: Object, bytes: u64, device: i32, stream: *mut c_void, out: *mut *mut c_void) -> u32;
type Free = unsafe extern "C" fn(pool: Object, ptr: *mut c_void, stream: *mut c_void) -> u32;
type FreeAfterAll = unsafe extern "C" fn(pool: Object, ptr: *mut c_void) -> u32;
/// CPython's `PyObject_Vectorcall`, and `PyObject_VectorcallMethod` with a method's name in its place. The stable ABI has them
/// only from 3.12 on; they are exported, and the same, since 3.11.
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

type Allocate = unsafe extern "C" fn(resource: Object, bytes: u64, stream: *mut c_void, out: *mut Object) -> u32;
type Close = unsafe extern "C" fn(buffer: Object) -> u32;
type Destroy = unsafe extern "C" fn(object: Object);

pub struct Library {
    pub allocate: Allocate,
    pub try_allocate: Allocate,
    pub destroy_resource: Destroy,
    pub close: Close,
    pub try_close: Close,
    pub destroy_buffer: Destroy,
    pub malloc: Malloc,
    pub try_malloc: Malloc,
    pub malloc_ready: MallocReady,
    pub free: Free,
    pub try_free: Free,
    pub free_after_all: FreeAfterAll,
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
    /// `_arguments.as_pointer`: any address to an integer, or its exception.
    pub as_pointer: Py<PyAny>,
    /// `_errors.failure`: the exception for a status.
    pub failure: Py<PyAny>,
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

/// Hands over the addresses of `FUNCTIONS`, the package's parts, and the addresses of `PyObject_Vectorcall` and
/// `PyObject_VectorcallMethod`, 0 for none.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "called once, with each part by its name")]
pub fn connect(
    py: Python<'_>,
    addresses: [usize; FUNCTIONS.len()],
    buffer: Bound<'_, PyType>,
    stream: Py<PyType>,
    resolve: Py<PyAny>,
    as_size: Py<PyAny>,
    as_pointer: Py<PyAny>,
    failure: Py<PyAny>,
    vectorcall: [usize; 2],
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
    let [allocate, try_allocate, destroy_resource, close, try_close, destroy_buffer, blocks @ ..] = addresses;
    let [malloc, try_malloc, malloc_ready, free, try_free, free_after_all] = blocks;
    // SAFETY: the package read these addresses from the library under the names in `FUNCTIONS`, and never closes it; the
    // types are those of the header. The slot of a class is a function of its type, and not NULL for one with `#[new]`. An
    // option of a function is NULL for `None`.
    let (library, new, vectorcall) = unsafe {
        let library = Library {
            allocate: std::mem::transmute::<usize, Allocate>(allocate),
            try_allocate: std::mem::transmute::<usize, Allocate>(try_allocate),
            destroy_resource: std::mem::transmute::<usize, Destroy>(destroy_resource),
            close: std::mem::transmute::<usize, Close>(close),
            try_close: std::mem::transmute::<usize, Close>(try_close),
            destroy_buffer: std::mem::transmute::<usize, Destroy>(destroy_buffer),
            malloc: std::mem::transmute::<usize, Malloc>(malloc),
            try_malloc: std::mem::transmute::<usize, Malloc>(try_malloc),
            malloc_ready: std::mem::transmute::<usize, MallocReady>(malloc_ready),
            free: std::mem::transmute::<usize, Free>(free),
            try_free: std::mem::transmute::<usize, Free>(try_free),
            free_after_all: std::mem::transmute::<usize, FreeAfterAll>(free_after_all),
        };
        let slot = ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new);
        let [function, method] = vectorcall.map(|address| std::mem::transmute::<usize, Option<Vectorcall>>(address));
        let vectorcall = function.zip(method).map(|(function, method)| Vectorcalls { function, method });
        (library, std::mem::transmute::<*mut c_void, ffi::newfunc>(slot), vectorcall)
    };
    let nothing = PyTuple::empty(py).unbind();
    let buffer = buffer.unbind();
    let package = Package { library, stream, resolve, as_size, as_pointer, failure, buffer, new, nothing, vectorcall };
    PACKAGE.set(py, package).map_err(|_| PyRuntimeError::new_err("forebay._fast is connected already"))
}
