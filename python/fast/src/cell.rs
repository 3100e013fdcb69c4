//! Fields of Python objects that change: the interpreter's lock guards them.

use std::cell::UnsafeCell;

use pyo3::prelude::*;

/// A field that is read and replaced whole. No reference to what is inside leaves it, and nothing that runs Python code
/// happens inside, so no call can meet another one half-way.
#[derive(Default)]
pub struct Field<T>(UnsafeCell<T>);

// SAFETY: every access has a `Python` token, which proves that this thread holds the interpreter's lock; the stable ABI that
// this module is built for exists in interpreters with that lock only.
unsafe impl<T: Send> Sync for Field<T> {}

impl<T> Field<T> {
    /// The old value is the caller's to drop, with the field free for whatever Python code that runs.
    #[must_use]
    pub fn replace(&self, _py: Python<'_>, value: T) -> T {
        // SAFETY: the lock is held, and no reference to the inside is around.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

impl<T: Copy> Field<T> {
    pub fn get(&self, _py: Python<'_>) -> T {
        // SAFETY: the lock is held, and no reference to the inside is around.
        unsafe { *self.0.get() }
    }
}

impl<T> Field<Option<Py<T>>> {
    pub fn is_some(&self, _py: Python<'_>) -> bool {
        // SAFETY: the lock is held, and no reference to the inside is around.
        unsafe { (*self.0.get()).is_some() }
    }

    pub fn share(&self, py: Python<'_>) -> Option<Py<T>> {
        // SAFETY: the lock is held; counting a reference runs no Python code.
        unsafe { (*self.0.get()).as_ref() }.map(|held| held.clone_ref(py))
    }

    /// For the cycle collector, which passes no token.
    ///
    /// # Safety
    /// The interpreter's lock is held, and `visit` runs no Python code.
    pub unsafe fn visit<E>(&self, visit: impl FnOnce(&Option<Py<T>>) -> Result<(), E>) -> Result<(), E> {
        // SAFETY: as the caller promises, nobody changes the field meanwhile.
        visit(unsafe { &*self.0.get() })
    }
}
