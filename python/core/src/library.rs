//! The library itself: where it is, its log, and functions that are passed on by their addresses.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;

use pyo3::exceptions::{PyLookupError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi;

/// The path that the library was loaded from.
#[pyfunction]
pub fn library_path() -> PyResult<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let function = abi::forebay_version as *const c_void;
    // SAFETY: a function of the library, and room for what is told.
    unsafe {
        if libc::dladdr(function, info.as_mut_ptr()) == 0 {
            return Err(PyRuntimeError::new_err("the loader does not know libforebay.so"));
        }
        Ok(CStr::from_ptr(info.assume_init().dli_fname).to_string_lossy().into_owned())
    }
}

/// The address of a function of the library's, for C code that calls it without Python.
///
/// Raises
/// ------
/// LookupError
///     If the library has no function of that name.
#[pyfunction]
pub fn address_of(name: &str) -> PyResult<usize> {
    let (path, name) = (CString::new(library_path()?)?, CString::new(name)?);
    // SAFETY: two C strings; the library is loaded, so it is only looked up, and stays when the handle is closed.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return Err(PyRuntimeError::new_err(format!("{path:?} is not loaded any more")));
        }
        let address = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        if address.is_null() {
            return Err(PyLookupError::new_err(format!("{path:?} has no function {name:?}")));
        }
        Ok(address as usize)
    }
}

fn text(text: *const c_char) -> String {
    // SAFETY: the library's texts are C strings, valid until this thread calls again.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The version of the library.
#[pyfunction]
pub fn version() -> String {
    // SAFETY: no condition.
    text(unsafe { abi::forebay_version() })
}

/// What went wrong in this thread's last failing call.
#[pyfunction]
pub fn last_error_message() -> String {
    // SAFETY: no condition.
    text(unsafe { abi::forebay_last_error_message() })
}

/// Has `callback` told every event up to a level, with the level and the text; None: nobody. It is kept for good, since a call may be
/// under way. In a forked child there is nothing to hear, and no error.
#[pyfunction]
pub fn log_set_callback(py: Python<'_>, callback: Option<Py<PyAny>>, level: u32) {
    unsafe extern "C" fn told(user: *mut c_void, level: u32, message: *const c_char) {
        let message = text(message);
        Python::try_attach(|py| {
            // SAFETY: the callback is kept for good.
            let callback = unsafe { Bound::from_borrowed_ptr(py, user.cast()) };
            if let Err(error) = callback.call1((level, message)) {
                error.write_unraisable(py, Some(&callback));
            }
        });
    }
    let user = callback.map_or(0, |callback| callback.into_ptr() as usize);
    py.detach(|| {
        let function: abi::forebay_log_fn = if user == 0 { None } else { Some(told) };
        // SAFETY: the callback is kept for good.
        unsafe { abi::forebay_log_set_callback(function, user as *mut c_void, level) }
    });
}

/// Takes a reference that is never given back: for who ends an object after the interpreter's end.
#[pyfunction]
pub fn keep_for_good(object: Py<PyAny>) {
    let _ = object.into_ptr();
}

/// The pointer in a capsule of that name.
#[pyfunction]
pub fn capsule_pointer(py: Python<'_>, capsule: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    let name = CString::new(name)?;
    // SAFETY: any object may be asked; NULL comes with an exception.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    if pointer.is_null() { Err(PyErr::fetch(py)) } else { Ok(pointer as usize) }
}

/// The address of CuPy's function for the current stream; 0: none.
#[pyfunction]
pub fn cupy_set_stream_getter(getter: usize) {
    // SAFETY: a function of that type as the caller found it, and NULL is `None`.
    unsafe { abi::forebay_cupy_set_stream_getter(std::mem::transmute::<usize, abi::forebay_stream_getter>(getter)) }
}

/// The address of CuPy's function for the memory hooks, and who calls them, which is kept for good; 0 and None: nobody.
#[pyfunction]
pub fn cupy_set_memory_hooks(py: Python<'_>, getter: usize, tell: Option<Py<PyAny>>) {
    let tell = tell.map_or(0, |tell| tell.into_ptr() as usize);
    // SAFETY: a function of that type as the caller found it, and NULL is `None`; `tell` is kept for good.
    py.detach(|| unsafe {
        let getter = std::mem::transmute::<usize, abi::forebay_hook_getter>(getter);
        abi::forebay_cupy_set_memory_hooks(getter, tell as *mut c_void);
    });
}

/// Lets go of a private pool of PyTorch's.
#[pyfunction]
pub fn torch_release_pool(py: Python<'_>, device: i32, id_first: u64, id_second: u64) {
    // SAFETY: no condition; an unknown pool is passed over.
    py.detach(|| unsafe { abi::forebay_torch_release_pool(device, id_first, id_second) });
}
