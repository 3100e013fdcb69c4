//! Memory as a `memoryview` that keeps its owner.

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Bytes of somebody's.
#[pyclass(frozen, subclass, module = "forebay._core")]
struct Memory {
    address: usize,
    size: isize,
    _owner: Py<PyAny>,
}

/// The class of [`Memory`] that has Python's buffer protocol. The stable ABI has its two slots from 3.11 on; every interpreter takes
/// them from 3.9 on, by these numbers.
static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

const PY_BF_GETBUFFER: c_int = 1;

unsafe extern "C" {
    fn PyBuffer_FillInfo(
        view: *mut c_void,
        exporter: *mut ffi::PyObject,
        address: *mut c_void,
        size: isize,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

unsafe extern "C" fn get_buffer(exporter: *mut ffi::PyObject, view: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: the interpreter calls the slot of a class derived from `Memory` attached, with an instance and a view to fill; the view
    // keeps the instance, and that the memory.
    unsafe {
        let py = Python::assume_attached();
        let memory = Bound::from_borrowed_ptr(py, exporter).cast_into_unchecked::<Memory>();
        let memory = memory.get();
        PyBuffer_FillInfo(view, exporter, memory.address as *mut c_void, memory.size, 0, flags)
    }
}

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let make = || {
        let mut slots = [
            ffi::PyType_Slot { slot: PY_BF_GETBUFFER, pfunc: get_buffer as *mut c_void },
            ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"forebay._core.Memory".as_ptr(),
            // That of the class it derives from.
            basicsize: 0,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as u32,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the slots end with 0, and the name is static.
        unsafe {
            let made = ffi::PyType_FromSpecWithBases(&raw mut spec, py.get_type::<Memory>().as_ptr());
            Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into::<PyType>()?.unbind())
        }
    };
    CLASS.get_or_try_init(py, make).map(|class| class.bind(py))
}

#[pymethods]
impl Memory {
    #[new]
    fn new(address: usize, size: isize, owner: Py<PyAny>) -> Self {
        Self { address, size, _owner: owner }
    }
}

/// A writable view of bytes, which keeps `owner` with every view made of it.
#[pyfunction]
pub fn memory_view<'py>(py: Python<'py>, address: usize, size: isize, owner: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let memory = class(py)?.call1((address, size, owner))?;
    // SAFETY: an object with the buffer protocol; the answer is a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(memory.as_ptr())) }
}
