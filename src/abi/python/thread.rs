//! Caches a thread's Python object in a thread-local of Rust: `threading.local` costs more than the pool's fast path.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::exception::{self, Object};

/// The cached object of one system thread.
struct Cached {
    /// The getter's address and the number of the Python thread. One system thread can run several Python threads in
    /// turn; no two have the same number.
    key: Cell<(usize, u64)>,
    /// An owned reference, or NULL.
    object: Cell<Object>,
}

/// A reference of a thread that ended. The thread did not hold the GIL then, so another thread drops the reference.
struct Orphan {
    object: Object,
    next: *mut Self,
}

/// The head of the list of orphans. The next `fetch` takes the whole list.
static ORPHANS: AtomicPtr<Orphan> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static CACHED: Cached = const { Cached { key: Cell::new((0, 0)), object: Cell::new(std::ptr::null_mut()) } };
}

impl Drop for Cached {
    fn drop(&mut self) {
        let object = self.object.get();
        if !object.is_null() {
            let orphan = Box::into_raw(Box::new(Orphan { object, next: std::ptr::null_mut() }));
            let _ = ORPHANS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
                // SAFETY: no other thread has it yet.
                unsafe { (*orphan).next = last };
                Some(orphan)
            });
        }
    }
}

/// Whether the object that `give` returns for the calling Python thread is true, as a container that is not empty is.
/// The object is cached, so `give` must return the same object for the same thread. An exception counts as true and is
/// cleared: the next call on the object raises it again, if it persists.
///
/// # Safety
/// `give` returns a new reference or NULL, and the GIL is held.
pub(crate) unsafe fn is_true(give: extern "C" fn(i32) -> Object) -> bool {
    let Some(calls) = exception::calls() else { return true };
    // SAFETY: the caller holds the GIL, so there is a current Python thread.
    let key = (give as usize, unsafe { (calls.thread_id)((calls.thread)()) });
    let cached =
        CACHED.try_with(|cached| if cached.key.get() == key { cached.object.get() } else { std::ptr::null_mut() });
    match cached {
        // SAFETY: an owned reference, and the GIL as the caller promises.
        Ok(object) if !object.is_null() => truth(unsafe { (calls.is_true)(object) }),
        // SAFETY: as the caller promises.
        _ => unsafe { fetch(calls, key, give) },
    }
}

fn truth(answer: i32) -> bool {
    if answer < 0 {
        exception::clear();
    }
    answer != 0
}

/// # Safety
/// As [`is_true`].
#[cold]
#[inline(never)]
unsafe fn fetch(calls: &exception::Calls, key: (usize, u64), give: extern "C" fn(i32) -> Object) -> bool {
    let object = give(0);
    if object.is_null() {
        return truth(-1);
    }
    // SAFETY: a new reference, and the GIL as the caller promises.
    let answer = truth(unsafe { (calls.is_true)(object) });
    // Fails in a thread that ends: its thread-local is gone.
    let before = CACHED.try_with(|cached| {
        cached.key.set(key);
        cached.object.replace(object)
    });
    // SAFETY: owned references, and the GIL as the caller promises. A finalizer that this runs finds the new object
    // cached.
    let drop_reference = |object| unsafe { (calls.drop)(object) };
    drop_reference(before.unwrap_or(object));
    let mut orphan = ORPHANS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !orphan.is_null() {
        // SAFETY: from a box, in a list that this thread alone holds.
        let Orphan { object, next } = *unsafe { Box::from_raw(orphan) };
        drop_reference(object);
        orphan = next;
    }
    answer
}
