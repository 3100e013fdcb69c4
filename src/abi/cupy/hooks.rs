//! CuPy's memory hooks (`cupy.cuda.MemoryHook`), told of what is allocated and freed here.
//!
//! CuPy's own pools call them; for a C function allocator nobody does. The container that a thread has for them is had
//! from a C function of CuPy's own, once, so a program without hooks pays for a look into it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::abi::python::{exception, thread};
use crate::units::GRANULE;

/// Gives the calling thread's memory hooks, a new reference to a Python container. CuPy passes 0.
pub type ForebayHookGetter = Option<extern "C" fn(skip_dispatch: c_int) -> *mut c_void>;

/// The getter's address; 0 for none.
static GETTER: AtomicUsize = AtomicUsize::new(0);
/// The Python function that calls them.
static TELL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What Python is told, as its first argument.
#[derive(Clone, Copy)]
enum Event {
    BeforeMalloc = 0,
    AfterMalloc = 1,
    BeforeFree = 2,
    AfterFree = 3,
}

/// Whether somebody wants to know: the calling thread has hooks.
#[inline]
pub(crate) fn watching() -> bool {
    match GETTER.load(Ordering::Acquire) {
        0 => false,
        getter => {
            // SAFETY: only forebay_cupy_set_memory_hooks stores here, a function of this type.
            let getter: extern "C" fn(c_int) -> *mut c_void = unsafe { std::mem::transmute(getter) };
            // SAFETY: the getter answers a new reference; CuPy holds the GIL where it allocates and frees.
            unsafe { thread::is_true(getter) }
        }
    }
}

/// Tells Python: whether there are hooks, or `None` when one raised and its exception is pending.
fn tell(event: Event, device: c_int, size: u64, at: *mut c_void, grown: u64) -> Option<bool> {
    let function = TELL.load(Ordering::Acquire);
    if function.is_null() {
        return Some(false);
    }
    // SAFETY: a Python function that its setter keeps alive; CuPy holds the GIL where it allocates and frees.
    unsafe { exception::call(function, [event as u64, device as u64, size, at as u64, grown]) }
}

/// One allocation with hooks around it. `held` says what the pool holds, `allocate` gives `None` with an exception
/// pending.
///
/// errors: an exception is pending; with it the block that was allocated, if a hook was what failed.
pub(crate) fn malloc(
    size: usize,
    device: c_int,
    held: impl Fn() -> u64,
    allocate: impl FnOnce() -> Option<*mut c_void>,
) -> Result<*mut c_void, Option<*mut c_void>> {
    let size = size as u64;
    let nobody = std::ptr::null_mut();
    match tell(Event::BeforeMalloc, device, size, nobody, 0) {
        None => return Err(None),
        Some(false) => return allocate().ok_or(None),
        Some(true) => {}
    }
    let before = held();
    let Some(at) = allocate() else {
        // As CuPy does: hooks are told of the failure, and an exception of theirs replaces it.
        let pending = exception::take();
        if tell(Event::AfterMalloc, device, size, nobody, 0).is_some() {
            exception::put_back(pending);
        } else {
            exception::forget(pending);
        }
        return Err(None);
    };
    match tell(Event::AfterMalloc, device, size, at, held().saturating_sub(before)) {
        Some(_) => Ok(at),
        None => Err(Some(at)),
    }
}

/// One free with hooks around it. `size` is the block's.
pub(crate) fn free(at: *mut c_void, size: u64, device: c_int, free: impl FnOnce()) {
    let told = tell(Event::BeforeFree, device, size, at, 0);
    if told.is_none() {
        exception::report(TELL.load(Ordering::Acquire));
    }
    free();
    if told != Some(false) && tell(Event::AfterFree, device, size.next_multiple_of(GRANULE), at, 0).is_none() {
        exception::report(TELL.load(Ordering::Acquire));
    }
}

/// Says how CuPy's memory hooks are found and called. `getter` is the C function inside the capsule
/// `cupy.cuda.memory_hook.__pyx_capi__["get_memory_hooks"]`; it is asked once in each Python thread, and what it gives
/// there is looked at from then on. `tell` is a Python function (a `PyObject *`, which the caller keeps alive) of five
/// integers: what happens (0 before an allocation, 1 after it, 2 before a free, 3 after it), the device, the bytes, the
/// address (0 if there is none) and by how many bytes the pool has grown. It answers whether there are hooks; an
/// exception of it ends the allocation. NULL for both: nobody is told. Any thread.
///
/// # Safety
/// `tell` is NULL or a Python function that lives until another one is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_set_memory_hooks(getter: ForebayHookGetter, tell: *mut c_void) {
    TELL.store(tell, Ordering::Release);
    GETTER.store(getter.map_or(0, |getter| getter as usize), Ordering::Release);
}
