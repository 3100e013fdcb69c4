//! The guard around every exported function: it catches panics, and returns an error in a child of `fork`.
//!
//! In a forked child the driver does not work, locks that other threads of the parent held stay locked, and all memory
//! and handles are the parent's. So the guard calls nothing there, not even to destroy an object, whose few bytes leak.
//! The fast path runs without a guard; in a child its thread cache finds no stream (`pool/cache/thread_cache.rs`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::status::{ForebayStatus, remember};
use crate::driver::{ErrorKind, process};
use crate::error::Error;
use crate::log;

/// The reason why a call fails.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A required argument, by its name, is NULL.
    Null(&'static str),
    /// An error of the layer below.
    Pool(Error),
    /// A panic, with its text.
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

/// Runs `work`, unless this is a child of `fork`. A panic becomes a fault. Any fault becomes the thread's last error.
#[inline]
pub(crate) fn result<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    if process::is_forked() {
        return Err(forked());
    }
    // The pool's locks do not poison. A panic under one is a bug; the caller gets it as FOREBAY_STATUS_PANIC.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            if log::is_waiting() {
                deliver_log();
            }
            Ok(value)
        }
        Ok(Err(fault)) => Err(keep_fault(fault)),
        Err(panic) => Err(keep_fault(panicked(&*panic))),
    }
}

/// Delivers queued log events. The thread holds no lock of the library here, so the program's callback may run.
#[cold]
#[inline(never)]
fn deliver_log() {
    let _ = catch_unwind(log::deliver);
}

/// For functions that return no status: `note` may log the error's text.
pub(crate) fn without_status(work: impl FnOnce() -> Result<(), Fault>, note: impl FnOnce(&str)) {
    let _ = result(|| {
        work().inspect_err(|fault| {
            // At the end of a process Python frees memory after CUDA has shut down: not worth a warning.
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
    keep_fault(Fault::Pool(Error::Forked))
}

#[cold]
#[inline(never)]
fn keep_fault(fault: Fault) -> Fault {
    if log::is_waiting() && !process::is_forked() {
        // Before `remember`: a failed call inside the log's callback would replace the text.
        deliver_log();
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

/// [`result`] for functions that return a status.
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
