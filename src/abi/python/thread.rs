//! A Python object that each thread has for itself, asked for once: asking goes through `threading.local`, which costs
//! more than a hit of the pool.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::exception::{self, Object};

/// What one thread of the system has asked for.
struct Kept {
    /// Of whom: where the object comes from, and the number of the Python thread. A thread of the system can be several
    /// of those, one after the other; no two have the same number.
    whose: Cell<(usize, u64)>,
    /// A reference of ours, or NULL.
    object: Cell<Object>,
}

/// A reference of a thread that has ended, which did not hold Python's lock then.
struct Left {
    object: Object,
    next: *mut Self,
}

/// The last of them. Whoever asks next takes all.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static KEPT: Kept = const { Kept { whose: Cell::new((0, 0)), object: Cell::new(std::ptr::null_mut()) } };
}

impl Drop for Kept {
    fn drop(&mut self) {
        let object = self.object.get();
        if !object.is_null() {
            let left = Box::into_raw(Box::new(Left { object, next: std::ptr::null_mut() }));
            let _ = LEFT.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
                // SAFETY: nobody else has it yet.
                unsafe { (*left).next = last };
                Some(left)
            });
        }
    }
}

/// Whether the object that `give` hands over for the calling Python thread is true, as a container with something in it
/// is. It is kept, and must stay the thread's. An exception counts as true and is cleared: who is asked next raises it
/// again, or not.
///
/// # Safety
/// `give` answers a new reference or NULL, and the GIL is held.
pub(crate) unsafe fn is_true(give: extern "C" fn(i32) -> Object) -> bool {
    let Some(calls) = exception::calls() else { return true };
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
        exception::clear();
    }
    answer != 0
}

/// # Safety
/// As [`is_true`].
#[cold]
#[inline(never)]
unsafe fn ask(calls: &exception::Calls, whose: (usize, u64), give: extern "C" fn(i32) -> Object) -> bool {
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
    // SAFETY: references of ours, and the GIL as the caller promises. What this runs finds everything in place.
    let give_up = |object| unsafe { (calls.drop)(object) };
    give_up(before.unwrap_or(object));
    let mut left = LEFT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !left.is_null() {
        // SAFETY: from a box, in a list that only this thread has.
        let Left { object, next } = *unsafe { Box::from_raw(left) };
        give_up(object);
        left = next;
    }
    answer
}
