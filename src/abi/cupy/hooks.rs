//! Calls CuPy's memory hooks (`cupy.cuda.MemoryHook`) around allocations and frees.
//!
//! CuPy calls the hooks in its own pools, not for a C function allocator. A C function of CuPy gives a thread's
//! container of hooks. It is called once in each thread; each call here then only checks whether the container is
//! empty.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::abi::python::{exception, thread};
use crate::units::GRANULE;

/// Returns the calling thread's memory hooks: a new reference to a Python container. Called with 0, as CuPy calls it.
pub type ForebayHookGetter = Option<extern "C" fn(skip_dispatch: c_int) -> *mut c_void>;

/// The getter's address; 0 for none.
static GETTER: AtomicUsize = AtomicUsize::new(0);
/// The Python function that calls the hooks.
static CALLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The first argument of that Python function.
#[derive(Clone, Copy)]
enum Event {
    BeforeMalloc = 0,
    AfterMalloc = 1,
    BeforeFree = 2,
    AfterFree = 3,
}

/// Whether the calling thread has hooks.
#[inline]
pub(crate) fn is_any() -> bool {
    match GETTER.load(Ordering::Acquire) {
        0 => false,
        getter => {
            // SAFETY: only forebay_cupy_set_memory_hooks stores here, a function of this type.
            let getter: extern "C" fn(c_int) -> *mut c_void = unsafe { std::mem::transmute(getter) };
            // SAFETY: the getter returns a new reference; CuPy holds the GIL where it allocates and frees.
            unsafe { thread::is_true(getter) }
        }
    }
}

/// Calls the hooks. Returns whether there are any, or `None` if one raised and its exception is pending.
fn call_hooks(event: Event, device: c_int, size: u64, at: *mut c_void, grown: u64) -> Option<bool> {
    let function = CALLER.load(Ordering::Acquire);
    if function.is_null() {
        return Some(false);
    }
    // SAFETY: a Python function that its setter keeps alive; CuPy holds the GIL where it allocates and frees.
    unsafe { exception::call(function, [event as u64, device as u64, size, at as u64, grown]) }
}

/// Allocates with the hooks around it. `held` gives the bytes that the pool holds; `allocate` gives `None` with an
/// exception pending.
///
/// errors: an exception is pending. Has the block that was allocated, if a hook failed after that.
pub(crate) fn malloc(
    size: usize,
    device: c_int,
    held: impl Fn() -> u64,
    allocate: impl FnOnce() -> Option<*mut c_void>,
) -> Result<*mut c_void, Option<*mut c_void>> {
    let size = size as u64;
    let none = std::ptr::null_mut();
    match call_hooks(Event::BeforeMalloc, device, size, none, 0) {
        None => return Err(None),
        Some(false) => return allocate().ok_or(None),
        Some(true) => {}
    }
    let before = held();
    let Some(at) = allocate() else {
        // As in CuPy: the hooks run after a failure too, and an exception of theirs replaces the first one.
        let pending = exception::take();
        if call_hooks(Event::AfterMalloc, device, size, none, 0).is_some() {
            exception::put_back(pending);
        } else {
            exception::forget(pending);
        }
        return Err(None);
    };
    match call_hooks(Event::AfterMalloc, device, size, at, held().saturating_sub(before)) {
        Some(_) => Ok(at),
        None => Err(Some(at)),
    }
}

/// Frees with the hooks around it. `size` is the block's size in bytes.
pub(crate) fn free(at: *mut c_void, size: u64, device: c_int, free: impl FnOnce()) {
    let called = call_hooks(Event::BeforeFree, device, size, at, 0);
    if called.is_none() {
        exception::report(CALLER.load(Ordering::Acquire));
    }
    free();
    if called != Some(false) && call_hooks(Event::AfterFree, device, size.next_multiple_of(GRANULE), at, 0).is_none() {
        exception::report(CALLER.load(Ordering::Acquire));
    }
}

/// Sets how CuPy's memory hooks are found and called; NULL for both removes them. Any thread.
///
/// `getter` is the C function in the capsule `cupy.cuda.memory_hook.__pyx_capi__["get_memory_hooks"]`. It is called
/// once in each Python thread; the container that it returns is checked in every later call.
///
/// `tell` is a Python function (a `PyObject *`, which the caller keeps alive until it is replaced) of five integers:
/// the event (0 before an allocation, 1 after it, 2 before a free, 3 after it), the device, the bytes, the address (0
/// if there is none) and the bytes by which the pool has grown. It returns whether there are hooks. If it raises, the
/// allocation fails with its exception.
///
/// # Safety
/// `tell` is NULL or a Python function that lives until another one is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_set_memory_hooks(getter: ForebayHookGetter, tell: *mut c_void) {
    CALLER.store(tell, Ordering::Release);
    GETTER.store(getter.map_or(0, |getter| getter as usize), Ordering::Release);
}
