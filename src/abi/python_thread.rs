//! A Python object that each thread has for itself, asked for once: asking goes through `threading.local`, which costs more than a
//! hit of the pool.

use std::cell::Cell;

use parking_lot::Mutex;

use super::python::{self, Object};

/// What one thread of the system has asked for.
struct Kept {
    /// Of whom: where the object comes from, and the number of the Python thread. A thread of the system can be several of
    /// those, one after the other; no two have the same number.
    whose: Cell<(usize, u64)>,
    /// A reference of ours, or NULL.
    object: Cell<Object>,
}

/// References of threads that have ended, which did not hold Python's lock then. Whoever asks next gives them up.
static LEFT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    static KEPT: Kept = const { Kept { whose: Cell::new((0, 0)), object: Cell::new(std::ptr::null_mut()) } };
}

impl Drop for Kept {
    fn drop(&mut self) {
        let object = self.object.get();
        if !object.is_null() {
            LEFT.lock().push(object as usize);
        }
    }
}

/// Whether the object that `give` hands over for the calling Python thread is true, as a container with something in it is. It
/// is kept, and must stay the thread's. An exception counts as true and is cleared: who is asked next raises it again, or not.
///
/// # Safety
/// `give` answers a new reference or NULL, and the GIL is held.
pub(super) unsafe fn is_true(give: extern "C" fn(i32) -> Object) -> bool {
    let Some(calls) = python::calls() else { return true };
    // SAFETY: the caller holds the GIL, so there is a current Python thread.
    let whose = (give as usize, unsafe { (calls.thread_id)((calls.thread)()) });
    let known = KEPT.try_with(|kept| if kept.whose.get() == whose { kept.object.get() } else { std::ptr::null_mut() });
    match known {
        // SAFETY: a reference of ours, and the GIL as the caller promises.
        Ok(object) if !object.is_null() => truth(unsafe { (calls.is_true)(object) }),
        // SAFETY: as the caller promises.
        _ => unsafe { ask(calls, whose, give) },
    }
}

fn truth(answer: i32) -> bool {
    if answer < 0 {
        python::clear();
    }
    answer != 0
}

/// # Safety
/// As [`is_true`].
#[cold]
#[inline(never)]
unsafe fn ask(calls: &python::Calls, whose: (usize, u64), give: extern "C" fn(i32) -> Object) -> bool {
    let object = give(0);
    if object.is_null() {
        return truth(-1);
    }
    // SAFETY: a new reference, and the GIL as the caller promises.
    let answer = truth(unsafe { (calls.is_true)(object) });
    // A thread that ends has no place for it any more.
    let before = KEPT.try_with(|kept| {
        kept.whose.set(whose);
        kept.object.replace(object)
    });
    let left = std::mem::take(&mut *LEFT.lock());
    for object in left.into_iter().map(|object| object as Object).chain([before.unwrap_or(object)]) {
        if !object.is_null() {
            // SAFETY: references of ours, and the GIL as the caller promises. What this runs finds everything in place.
            unsafe { (calls.drop)(object) };
        }
    }
    answer
}
