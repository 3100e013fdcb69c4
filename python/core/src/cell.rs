//! Fields of Python objects that change. The interpreter's lock guards them; where it has none, each has a lock of its own.

use pyo3::prelude::*;

#[cfg(not(Py_GIL_DISABLED))]
mod guarded {
    use std::cell::UnsafeCell;

    /// A value that only a thread with the interpreter's lock touches.
    #[derive(Default)]
    pub struct Guarded<T>(UnsafeCell<T>);

    // SAFETY: `Field` accesses it with a `Python` token, which proves that this thread holds the interpreter's lock.
    unsafe impl<T: Send> Sync for Guarded<T> {}

    impl<T> Guarded<T> {
        /// # Safety
        /// The interpreter's lock is held, and `act` neither runs Python code nor comes back here.
        pub unsafe fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: as the caller promises, nobody else has a reference to the inside.
            act(unsafe { &mut *self.0.get() })
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod guarded {
    use std::sync::{Mutex, PoisonError};

    /// A value behind a lock. It is held for a few instructions that run no Python code, so no thread stops for the cycle
    /// collector with the lock in its hand.
    #[derive(Default)]
    pub struct Guarded<T>(Mutex<T>);

    impl<T> Guarded<T> {
        /// # Safety
        /// `act` neither runs Python code nor comes back here.
        pub unsafe fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

/// A field that is read and replaced whole. No reference to what is inside leaves it, and nothing that runs Python code
/// happens inside, so no call can meet another one half-way.
#[derive(Default)]
pub struct Field<T>(guarded::Guarded<T>);

impl<T> Field<T> {
    /// The old value is the caller's to drop, with the field free for whatever Python code that runs.
    #[must_use]
    pub fn replace(&self, _py: Python<'_>, value: T) -> T {
        // SAFETY: this thread is attached to the interpreter; moving a value runs no Python code.
        unsafe { self.0.with(|held| std::mem::replace(held, value)) }
    }
}

impl<T: Copy> Field<T> {
    pub fn get(&self, _py: Python<'_>) -> T {
        // SAFETY: as above.
        unsafe { self.0.with(|held| *held) }
    }
}

impl<T> Field<Option<Py<T>>> {
    pub fn is_some(&self, _py: Python<'_>) -> bool {
        // SAFETY: as above.
        unsafe { self.0.with(|held| held.is_some()) }
    }

    pub fn share(&self, py: Python<'_>) -> Option<Py<T>> {
        // SAFETY: as above; counting a reference runs no Python code.
        unsafe { self.0.with(|held| held.as_ref().map(|held| held.clone_ref(py))) }
    }

    /// For the cycle collector, which passes no token.
    ///
    /// # Safety
    /// The cycle collector calls, and `visit` runs no Python code.
    pub unsafe fn visit<E>(&self, visit: impl FnOnce(&Option<Py<T>>) -> Result<(), E>) -> Result<(), E> {
        // SAFETY: the collector holds the interpreter's lock, or has stopped all other threads.
        unsafe { self.0.with(|held| visit(held)) }
    }
}
