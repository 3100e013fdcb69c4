//! CuPy's hooks, for `cupy.cuda.memory.CFunctionAllocator`. They use the shared pool.
//!
//! CuPy passes no stream; its current stream is had from a C function of CuPy's own, set once with
//! `forebay_cupy_set_stream_getter`. It holds the GIL in every call and does not check for NULL, so a failed allocation
//! leaves a Python exception behind, and the pointer -1.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cxx;
use super::guard;
use super::handle::{address, pointer};
use super::memory::ForebayFramework;
use super::python;
use crate::resource::{existing, shared};
use crate::units::StreamHandle;

/// Gives the stream that CuPy's calling thread uses now.
pub type ForebayStreamGetter = Option<extern "C" fn() -> isize>;

/// The getter's address; 0 for none.
static GETTER: AtomicUsize = AtomicUsize::new(0);

/// CuPy's current stream; `None` when the getter failed, with CuPy's own exception pending.
fn current_stream() -> Option<StreamHandle> {
    match GETTER.load(Ordering::Acquire) {
        0 => Some(StreamHandle::LEGACY),
        getter => {
            // SAFETY: only forebay_cupy_set_stream_getter stores here, a function of this type.
            let getter: extern "C" fn() -> isize = unsafe { std::mem::transmute(getter) };
            let stream = getter();
            (stream != FAILED).then_some(StreamHandle(stream as u64))
        }
    }
}

/// What CuPy's functions, compiled by Cython as `except? -1`, return to say: look for an exception. Ours too.
const FAILED: isize = -1;

/// Sets the function that gives CuPy's current stream: the C function inside the capsule
/// `cupy_backends.cuda.stream.__pyx_capi__["get_current_stream_ptr"]`. NULL, the state at the start: the legacy default
/// stream. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_cupy_set_stream_getter(getter: ForebayStreamGetter) {
    GETTER.store(getter.map_or(0, |getter| getter as usize), Ordering::Release);
}

/// Allocates `size` bytes on `device` in the order of CuPy's current stream. `param` is not used.
///
/// On failure a Python exception is pending: `cupy.cuda.memory.OutOfMemoryError` with the pool's report for want of
/// memory (`MemoryError` where CuPy's own is not to be had), `RuntimeError` else. The pointer is then -1, the value after
/// which CuPy's caller looks for an exception. In a program without Python a `std::runtime_error` is thrown; NULL where
/// there is no C++ runtime either.
///
/// # Safety
/// Called as CuPy does, holding the GIL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_cupy_malloc(_param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    let failed = FAILED as *mut c_void;
    let Some(stream) = current_stream() else { return failed };
    let result = guard::result(|| Ok(shared()?.malloc(size as u64, device, stream, ForebayFramework::Cupy as u8)?));
    match result {
        Ok(address) => pointer(address),
        Err(fault) => {
            let live = existing().and_then(|pool| pool.stats(device).ok()).map_or(0, |stats| stats.live);
            if python::raise(&fault, size as u64, live) {
                return failed;
            }
            let exception = cxx::prepare(fault);
            cxx::throw(exception);
            std::ptr::null_mut()
        }
    }
}

/// Frees a block in the order of CuPy's current stream, and of the stream it was allocated on, since CuPy frees an array
/// wherever its last reference goes. A pointer that is no live block's is refused and changes nothing. Never raises: CuPy
/// frees in destructors, also while the interpreter ends.
///
/// # Safety
/// Called as CuPy does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_free(_param: *mut c_void, ptr: *mut c_void, _device: c_int) {
    let stream = current_stream().unwrap_or_else(|| {
        // Nobody looks for an exception after a free.
        python::clear();
        StreamHandle::LEGACY
    });
    let result = guard::result(|| match existing() {
        Some(pool) => Ok(pool.free_behind_both(address(ptr), stream)?),
        None => Ok(()),
    });
    if let Err(fault) = result {
        tracing::error!(hook = "forebay_cupy_free", "{}", fault.text());
    }
}
