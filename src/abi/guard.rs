//! The one place where panics stop. Everything exported runs inside one of these.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::status::{ForebayStatus, remember};
use crate::resource::Error;

/// Why a call fails: a NULL where something is needed, or the layer below.
#[derive(Debug)]
pub(super) enum Fault {
    /// The named argument is NULL.
    Null(&'static str),
    /// As the pool says.
    Pool(Error),
    /// The pool panicked.
    Panic(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

impl From<crate::driver::DriverError> for Fault {
    fn from(error: crate::driver::DriverError) -> Self {
        Self::Pool(error.into())
    }
}

impl Fault {
    pub fn text(&self) -> String {
        match self {
            Self::Null(name) => format!("{name} is NULL"),
            Self::Pool(error) => error.to_string(),
            Self::Panic(text) => format!("a bug in Forebay, please report it: {text}"),
        }
    }

    pub fn status(&self) -> ForebayStatus {
        match self {
            Self::Null(_) => ForebayStatus::NullPointer,
            Self::Pool(error) => error.into(),
            Self::Panic(_) => ForebayStatus::Panic,
        }
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.status() == ForebayStatus::OutOfMemory
    }
}

/// Runs `work`; a panic becomes a fault. What went wrong is kept as the thread's last error.
#[inline]
pub(super) fn result<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // State behind locks stays consistent: the pool's own locks do not poison, and a panic there is a bug
    // that the caller is told of.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fault)) => Err(told(fault)),
        Err(panic) => Err(told(panicked(&*panic))),
    }
}

#[cold]
#[inline(never)]
fn told(fault: Fault) -> Fault {
    remember(&fault.text());
    fault
}

#[cold]
#[inline(never)]
fn panicked(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Fault::Panic(text.unwrap_or_default())
}

/// The same, for functions that answer with a status.
#[inline]
pub(super) fn status(work: impl FnOnce() -> Result<(), Fault>) -> ForebayStatus {
    match result(work) {
        Ok(()) => ForebayStatus::Ok,
        Err(fault) => fault.status(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_a_text() {
        assert_eq!(status(|| panic!("planted {}", 7)), ForebayStatus::Panic);
        // SAFETY: the message is a valid C string until this thread's next failing call.
        let text = unsafe { std::ffi::CStr::from_ptr(crate::abi::status::forebay_last_error_message()) };
        assert!(text.to_string_lossy().contains("planted 7"));
    }
}
