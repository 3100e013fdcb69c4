//! The one place where panics stop, and where a child of `fork` is turned away. Everything exported runs inside one of
//! these.
//!
//! In such a child the driver does not work, locks that other threads of the parent held stay locked, and what the
//! objects name is the parent's. So nothing below is called there, not even to end an object: its few bytes stay. What
//! is served without a guard, the fast path, finds no stream there (`pool/cache/thread_cache.rs`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::status::{ForebayStatus, remember};
use crate::driver::{ErrorKind, process};
use crate::error::Error;
use crate::log;

/// Why a call fails: a NULL where something is needed, or the layer below.
#[derive(Debug)]
pub(crate) enum Fault {
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

/// Runs `work`, unless this is a child of `fork`; a panic becomes a fault. What went wrong is kept as the thread's last
/// error.
#[inline]
pub(crate) fn result<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    if process::is_forked() {
        return Err(forked());
    }
    // State behind locks stays consistent: the pool's own locks do not poison, and a panic there is a bug
    // that the caller is told of.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            if log::is_waiting() {
                hand_over();
            }
            Ok(value)
        }
        Ok(Err(fault)) => Err(told(fault)),
        Err(panic) => Err(told(panicked(&*panic))),
    }
}

/// No lock of the library's is held any more: what calls back into it is called without one.
#[cold]
#[inline(never)]
fn hand_over() {
    let _ = catch_unwind(log::hand_over);
}

/// For functions that have no answer: `note` may put what went wrong into the log.
pub(crate) fn unanswered(work: impl FnOnce() -> Result<(), Fault>, note: impl FnOnce(&str)) {
    let _ = result(|| {
        work().inspect_err(|fault| {
            // Python frees at the end of the process what CUDA has taken down already.
            let is_over = matches!(fault, Fault::Pool(Error::Driver(error)) if error.kind == ErrorKind::Deinitialized);
            if !is_over {
                note(&fault.text());
            }
        })
    });
}

#[cold]
#[inline(never)]
fn forked() -> Fault {
    told(Fault::Pool(Error::Forked))
}

#[cold]
#[inline(never)]
fn told(fault: Fault) -> Fault {
    if log::is_waiting() && !process::is_forked() {
        // First: what listens to the log may have calls that fail.
        hand_over();
    }
    remember(&fault.text());
    fault
}

#[cold]
#[inline(never)]
fn panicked(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let fault = Fault::Panic(text.unwrap_or_default());
    tracing::error!("{}", fault.text());
    fault
}

/// The same, for functions that answer with a status.
#[inline]
pub(crate) fn status(work: impl FnOnce() -> Result<(), Fault>) -> ForebayStatus {
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
        let text = unsafe { std::ffi::CStr::from_ptr(crate::abi::core::status::forebay_last_error_message()) };
        assert!(text.to_string_lossy().contains("planted 7"));
    }
}
