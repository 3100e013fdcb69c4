//! CuPy's hooks for `cupy.cuda.memory.CFunctionAllocator` on a Forebay pool. `pool.rs` has those on other memory
//! resources.
//!
//! CuPy passes no stream: a C function of CuPy, set once with `forebay_cupy_set_stream_getter`, gives its current
//! stream. CuPy holds the GIL in every call and does not check for NULL, so a failed allocation sets a Python exception
//! and returns the pointer -1.

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

/// Returns CuPy's current stream of the calling thread on `device`, or -1 with a Python exception set.
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

/// The value by which functions that Cython compiled as `except? -1` report that an exception may be set, as those of
/// CuPy are.
const FAILED: isize = -1;

/// The name of a free in the log.
pub(crate) const HOOK: &str = "free of CuPy";

/// The pool or resource that the hooks allocate from.
pub(crate) trait Target {
    /// Allocates in the order of `stream`. An error is already stored as the thread's last error.
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault>;

    /// Frees in the order of `stream` and of the stream of the allocation. An error goes to the log.
    fn free(&self, at: Address, stream: StreamHandle);

    /// The live bytes and the bytes held on `device`; zeros if they are unknown.
    fn live_and_held(&self, device: i32) -> (u64, u64);

    /// The bytes of the live block that starts at `at`; 0 if none does.
    fn size(&self, at: Address) -> u64;
}

impl Target for Pool {
    #[inline]
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault> {
        let tag = ForebayFramework::Cupy as u8;
        match self.malloc_fast(bytes, device, stream, tag) {
            Some(at) => Ok(at),
            // CuPy captures graphs without a call to its allocator, so the pool itself detects the capture.
            None => guard::result(|| Ok(self.malloc_also_captured(bytes, device, stream, tag)?)),
        }
    }

    #[inline]
    fn free(&self, at: Address, stream: StreamHandle) {
        release(self, at, stream, FreeAfter::BothStreams, HOOK);
    }

    fn live_and_held(&self, device: i32) -> (u64, u64) {
        self.stats(device).map_or((0, 0), |stats| (stats.live, stats.physical))
    }

    fn size(&self, at: Address) -> u64 {
        self.block_size(at).unwrap_or(0)
    }
}

/// Allocates, with CuPy's memory hooks around it. `find` gives the target; an allocation that fails earlier does not
/// call it.
#[inline]
pub(crate) fn malloc<'a, T: Target + 'a>(
    find: impl Fn() -> Result<&'a T, Fault>,
    size: usize,
    device: c_int,
) -> *mut c_void {
    if !hooks::is_any() {
        return malloc_without_hooks(&find, size, device);
    }
    let held = || guard::result(|| Ok(find()?.live_and_held(device).1)).unwrap_or(0);
    let failed = FAILED as *mut c_void;
    let outcome = hooks::malloc(size, device, held, || {
        let at = malloc_without_hooks(&find, size, device);
        (at != failed && !at.is_null()).then_some(at)
    });
    match outcome {
        Ok(at) => at,
        Err(None) => failed,
        Err(Some(at)) => {
            // A hook raised, so CuPy does not get the block. The free calls CuPy's stream getter, which needs a state
            // without an exception.
            let raised = exception::take();
            free_without_hooks(&find, at, device);
            exception::put_back(raised);
            failed
        }
    }
}

#[inline]
fn malloc_without_hooks<'a, T: Target + 'a>(
    find: &impl Fn() -> Result<&'a T, Fault>,
    size: usize,
    device: c_int,
) -> *mut c_void {
    let failed = FAILED as *mut c_void;
    let Some(stream) = current_stream(device) else { return failed };
    match find().and_then(|target| target.allocate(size as u64, device, stream)) {
        Ok(address) => pointer(address),
        Err(fault) => {
            let live = guard::result(|| Ok(find()?.live_and_held(device).0)).unwrap_or(0);
            if exception::raise(&fault, size as u64, live) {
                return failed;
            }
            let exception = cxx::prepare(fault);
            cxx::throw(exception);
            std::ptr::null_mut()
        }
    }
}

/// Frees, with CuPy's memory hooks around it. Never raises: CuPy frees in destructors, also while the interpreter ends.
#[inline]
pub(crate) fn free<'a, T: Target + 'a>(find: impl Fn() -> Result<&'a T, Fault>, ptr: *mut c_void, device: c_int) {
    if ptr.is_null() || !hooks::is_any() {
        return free_without_hooks(&find, ptr, device);
    }
    let size = guard::result(|| Ok(find()?.size(address(ptr)))).unwrap_or(0);
    hooks::free(ptr, size, device, || free_without_hooks(&find, ptr, device));
}

#[inline]
fn free_without_hooks<'a, T: Target + 'a>(find: &impl Fn() -> Result<&'a T, Fault>, ptr: *mut c_void, device: c_int) {
    let stream = current_stream(device).unwrap_or_else(|| {
        // CuPy does not check for an exception after a free.
        exception::clear();
        StreamHandle::LEGACY
    });
    match find() {
        Ok(target) => target.free(address(ptr), stream),
        Err(fault) => tracing::warn!(hook = HOOK, address = %address(ptr), %stream, "{}", fault.text()),
    }
}

/// The pool that `param` names; `None` if that is the shared pool and it does not exist yet.
///
/// # Safety
/// `param` is NULL or a pool object that outlives the returned reference.
#[inline(always)]
unsafe fn existing_pool<'a>(param: *mut c_void) -> Option<&'a Pool> {
    match param.is_null() {
        true => existing().map(|pool| &**pool),
        // SAFETY: as the caller promises.
        false => unsafe { ForebayPool::get(param.cast()) }.ok(),
    }
}

/// The pool that `param` names. Creates the shared pool if it does not exist yet.
///
/// # Safety
/// As [`existing_pool`].
#[inline(always)]
unsafe fn pool<'a>(param: *mut c_void) -> Result<&'a Pool, Fault> {
    // SAFETY: as the caller promises.
    match unsafe { existing_pool(param) } {
        Some(pool) => Ok(pool),
        None => guard::result(|| Ok(&**shared()?)),
    }
}

/// Sets the function that returns CuPy's current stream on a device: the C function in the capsule
/// `cupy_backends.cuda.stream.__pyx_capi__["get_stream_ptr"]`. NULL, the initial value: the legacy default stream. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_cupy_set_stream_getter(getter: ForebayStreamGetter) {
    GETTER.store(getter.map_or(0, |getter| getter as usize), Ordering::Release);
}

/// Allocates `size` bytes on `device` in the order of CuPy's current stream on it. `param` is a forebay_pool, NULL for
/// the shared pool, and must live until everything allocated from it is freed. The caller holds the GIL. For
/// cupy.cuda.memory.CFunctionAllocator:
/// <https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.CFunctionAllocator.html>
///
/// On failure a Python exception is set, and the pointer is -1: `cupy.cuda.memory.OutOfMemoryError` with the pool's
/// report for lack of memory (`MemoryError` if CuPy's class cannot be imported), `RuntimeError` otherwise. In a program
/// without Python a `std::runtime_error` is thrown; without a C++ runtime the pointer is NULL.
///
/// # Safety
/// Called as CuPy does, holding the GIL. `param` is NULL or a pool object that lives as long as what was allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    // SAFETY: as the caller promises.
    malloc(|| unsafe { pool(param) }, size, device)
}

/// Frees a block in the order of CuPy's current stream on `device` and of the stream of its allocation, since CuPy
/// frees an array where its last reference ends. `param` is that of the allocation. A pointer that is not the start of
/// a live block goes to the log and changes nothing. The caller holds the GIL. Never raises: CuPy frees in destructors,
/// also while the interpreter ends.
///
/// # Safety
/// Called as CuPy does, with the `param` of the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_free(param: *mut c_void, ptr: *mut c_void, device: c_int) {
    // SAFETY: as the caller promises.
    if unsafe { existing_pool(param) }.is_none() {
        return;
    }
    // SAFETY: as the caller promises.
    free(|| unsafe { pool(param) }, ptr, device);
}
