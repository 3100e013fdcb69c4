//! CuPy's hooks, for `cupy.cuda.memory.CFunctionAllocator`, on a pool of Forebay's. `cupy_pool` has those on other
//! resources.
//!
//! CuPy passes no stream; its current stream is had from a C function of CuPy's own, set once with
//! `forebay_cupy_set_stream_getter`. It holds the GIL in every call and does not check for NULL, so a failed allocation
//! leaves a Python exception behind, and the pointer -1.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::hooks;
use crate::abi::core::cxx;
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address, pointer};
use crate::abi::core::log::shared;
use crate::abi::pool::memory::{ForebayFramework, release};
use crate::abi::python::exception;
use crate::pool::{FreeAfter, Pool, existing};
use crate::units::{Address, StreamHandle};

/// Gives the stream that CuPy's calling thread uses on a device now.
pub type ForebayStreamGetter = Option<extern "C" fn(device: c_int) -> isize>;

/// The getter's address; 0 for none.
static GETTER: AtomicUsize = AtomicUsize::new(0);

/// CuPy's current stream on that device; `None` when the getter failed, with CuPy's own exception pending.
fn current_stream(device: c_int) -> Option<StreamHandle> {
    match GETTER.load(Ordering::Acquire) {
        0 => Some(StreamHandle::LEGACY),
        getter => {
            // SAFETY: only forebay_cupy_set_stream_getter stores here, a function of this type.
            let getter: extern "C" fn(c_int) -> isize = unsafe { std::mem::transmute(getter) };
            let stream = getter(device);
            (stream != FAILED).then_some(StreamHandle(stream as u64))
        }
    }
}

/// What CuPy's functions, compiled by Cython as `except? -1`, return to say: look for an exception. Ours too.
const FAILED: isize = -1;

/// Under which a free is in the log.
pub(crate) const HOOK: &str = "free of CuPy";

/// What the hooks allocate from.
pub(crate) trait Target {
    /// Allocates in the order of `stream`. What goes wrong is the thread's last error already.
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault>;

    /// Frees in the order of `stream`, and of the stream of the allocation. What goes wrong is in the log.
    fn free(&self, at: Address, stream: StreamHandle);

    /// Bytes given out and bytes held on `device`; zeros where that cannot be told.
    fn figures(&self, device: i32) -> (u64, u64);

    /// The bytes of the live block that starts there; 0 where there is none.
    fn size(&self, at: Address) -> u64;
}

impl Target for Pool {
    #[inline]
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault> {
        let tag = ForebayFramework::Cupy as u8;
        match self.malloc_fast(bytes, device, stream, tag) {
            Some(at) => Ok(at),
            // CuPy captures graphs and tells no allocator.
            None => guard::result(|| Ok(self.malloc_also_captured(bytes, device, stream, tag)?)),
        }
    }

    #[inline]
    fn free(&self, at: Address, stream: StreamHandle) {
        release(self, at, stream, FreeAfter::BothStreams, HOOK);
    }

    fn figures(&self, device: i32) -> (u64, u64) {
        self.stats(device).map_or((0, 0), |stats| (stats.live, stats.physical))
    }

    fn size(&self, at: Address) -> u64 {
        self.block_size(at).unwrap_or(0)
    }
}

/// One allocation. `find` gives the target, and is not called by one that fails before it.
#[inline]
pub(crate) fn malloc<'a, T: Target + 'a>(
    find: impl Fn() -> Result<&'a T, Fault>,
    size: usize,
    device: c_int,
) -> *mut c_void {
    if !hooks::watching() {
        return malloc_unseen(&find, size, device);
    }
    let held = || guard::result(|| Ok(find()?.figures(device).1)).unwrap_or(0);
    let failed = FAILED as *mut c_void;
    let watched = hooks::malloc(size, device, held, || {
        let at = malloc_unseen(&find, size, device);
        (at != failed && !at.is_null()).then_some(at)
    });
    match watched {
        Ok(at) => at,
        Err(None) => failed,
        Err(Some(at)) => {
            // A hook raised: nobody will own the block. Freeing asks CuPy for its stream, and takes any exception for that
            // question's.
            let raised = exception::take();
            free_unseen(&find, at, device);
            exception::put_back(raised);
            failed
        }
    }
}

#[inline]
fn malloc_unseen<'a, T: Target + 'a>(
    find: &impl Fn() -> Result<&'a T, Fault>,
    size: usize,
    device: c_int,
) -> *mut c_void {
    let failed = FAILED as *mut c_void;
    let Some(stream) = current_stream(device) else { return failed };
    match find().and_then(|target| target.allocate(size as u64, device, stream)) {
        Ok(address) => pointer(address),
        Err(fault) => {
            let live = guard::result(|| Ok(find()?.figures(device).0)).unwrap_or(0);
            if exception::raise(&fault, size as u64, live) {
                return failed;
            }
            let exception = cxx::prepare(fault);
            cxx::throw(exception);
            std::ptr::null_mut()
        }
    }
}

/// One free, likewise. Never raises: CuPy frees in destructors, also while the interpreter ends.
#[inline]
pub(crate) fn free<'a, T: Target + 'a>(find: impl Fn() -> Result<&'a T, Fault>, ptr: *mut c_void, device: c_int) {
    if ptr.is_null() || !hooks::watching() {
        return free_unseen(&find, ptr, device);
    }
    let size = guard::result(|| Ok(find()?.size(address(ptr)))).unwrap_or(0);
    hooks::free(ptr, size, device, || free_unseen(&find, ptr, device));
}

#[inline]
fn free_unseen<'a, T: Target + 'a>(find: &impl Fn() -> Result<&'a T, Fault>, ptr: *mut c_void, device: c_int) {
    let stream = current_stream(device).unwrap_or_else(|| {
        // Nobody looks for an exception after a free.
        exception::clear();
        StreamHandle::LEGACY
    });
    match find() {
        Ok(target) => target.free(address(ptr), stream),
        Err(fault) => tracing::warn!(hook = HOOK, address = %address(ptr), %stream, "{}", fault.text()),
    }
}

/// The pool that `param` names; `None` if that is the shared one and it is not made yet.
///
/// # Safety
/// `param` is NULL or a pool object that outlives the returned reference.
#[inline(always)]
unsafe fn near<'a>(param: *mut c_void) -> Option<&'a Pool> {
    match param.is_null() {
        true => existing().map(|pool| &**pool),
        // SAFETY: as the caller promises.
        false => unsafe { ForebayPool::get(param.cast()) }.ok(),
    }
}

/// The same; the shared pool is made where it is not there yet.
///
/// # Safety
/// As [`near`].
#[inline(always)]
unsafe fn named<'a>(param: *mut c_void) -> Result<&'a Pool, Fault> {
    // SAFETY: as the caller promises.
    match unsafe { near(param) } {
        Some(pool) => Ok(pool),
        None => guard::result(|| Ok(&**shared()?)),
    }
}

/// Sets the function that gives CuPy's current stream on a device: the C function inside the capsule
/// `cupy_backends.cuda.stream.__pyx_capi__["get_stream_ptr"]`. NULL, the state at the start: the legacy default
/// stream. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_cupy_set_stream_getter(getter: ForebayStreamGetter) {
    GETTER.store(getter.map_or(0, |getter| getter as usize), Ordering::Release);
}

/// Allocates `size` bytes on `device` in the order of CuPy's current stream there. `param` is a forebay_pool; NULL: the
/// shared pool.
///
/// On failure a Python exception is pending: `cupy.cuda.memory.OutOfMemoryError` with the pool's report for want of
/// memory (`MemoryError` where CuPy's own is not to be had), `RuntimeError` else. The pointer is then -1, the value
/// after which CuPy's caller looks for an exception. In a program without Python a `std::runtime_error` is thrown; NULL
/// where there is no C++ runtime either.
///
/// # Safety
/// Called as CuPy does, holding the GIL. `param` is NULL or a pool object that lives as long as what was allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    // SAFETY: as the caller promises.
    malloc(|| unsafe { named(param) }, size, device)
}

/// Frees a block in the order of CuPy's current stream on `device`, and of the stream it was allocated on, since CuPy
/// frees an array wherever its last reference goes. A pointer that is no live block's is refused and changes nothing.
/// Never raises: CuPy frees in destructors, also while the interpreter ends.
///
/// # Safety
/// Called as CuPy does, with the `param` of the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_free(param: *mut c_void, ptr: *mut c_void, device: c_int) {
    // SAFETY: as the caller promises.
    if unsafe { near(param) }.is_none() {
        return;
    }
    // SAFETY: as the caller promises.
    free(|| unsafe { named(param) }, ptr, device);
}
