//! DLPack's tensors in and out of Python's capsules.

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi;
use crate::calls::answer;

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

fn name_of(object: &Bound<'_, PyAny>) -> Option<&'static CStr> {
    // SAFETY: any object may be asked.
    [VERSIONED, LEGACY].into_iter().find(|name| unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), name.as_ptr()) } != 0)
}

/// Whether it is a capsule with a tensor that nobody has taken.
#[pyfunction]
pub fn is_dlpack(object: &Bound<'_, PyAny>) -> bool {
    name_of(object).is_some()
}

/// A capsule with a tensor of a buffer; unless it is consumed, the tensor ends with it.
#[pyfunction]
pub fn buffer_to_dlpack(py: Python<'_>, buffer: usize, versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    unsafe extern "C" fn delete(capsule: *mut ffi::PyObject) {
        // SAFETY: the interpreter ends a capsule with a tensor once.
        unsafe { abi::forebay_dlpack_capsule_delete(capsule.cast()) }
    }
    let mut out = 0_usize;
    // SAFETY: the buffer is alive.
    let status = py.detach(|| unsafe {
        let (buffer, out) = (buffer as *mut _, &raw mut out);
        if versioned {
            abi::forebay_buffer_to_dlpack(buffer, out.cast())
        } else {
            abi::forebay_buffer_to_dlpack_legacy(buffer, out.cast())
        }
    });
    let tensor = answer(py, status, out)?;
    let name = if versioned { VERSIONED } else { LEGACY };
    // SAFETY: the names are static, and the tensor is the capsule's from here on.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor as *mut c_void, name.as_ptr(), Some(delete))) }
}

/// The buffer of the tensor in a capsule, which it takes over.
#[pyfunction]
pub fn buffer_from_dlpack(py: Python<'_>, capsule: &Bound<'_, PyAny>, stream: u64) -> PyResult<usize> {
    let Some(name) = name_of(capsule) else {
        return Err(PyValueError::new_err(
            "the capsule holds no DLPack tensor: it was consumed before, or is another kind of capsule",
        ));
    };
    let mut out = 0_usize;
    // SAFETY: the capsule has this name, and so a tensor of that kind.
    let status = unsafe {
        let tensor = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) as usize;
        py.detach(|| {
            let (stream, out) = (stream as *mut c_void, (&raw mut out).cast());
            if name == VERSIONED {
                abi::forebay_buffer_from_dlpack(tensor as *mut _, stream, out)
            } else {
                abi::forebay_buffer_from_dlpack_legacy(tensor as *mut _, stream, out)
            }
        })
    };
    let buffer = answer(py, status, out)?;
    let used = if name == VERSIONED { c"used_dltensor_versioned" } else { c"used_dltensor" };
    // Only now is the tensor the buffer's; had the call failed, the capsule would still end it.
    // SAFETY: the name is static.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) };
    Ok(buffer)
}
