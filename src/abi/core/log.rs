//! The log's callback.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use tracing::Level;

use super::guard::{self, Fault};
use super::status::ForebayStatus;
use crate::error::Error;
use crate::log;
use crate::pool::Pool;

/// A level of the log. Each level includes those above it in this list.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayLogLevel {
    /// Nothing.
    Off = 0,
    /// Bugs in this library, and steps that could not be undone.
    Error = 1,
    /// Failures that no status reports: a bad free through a framework's hook, memory that could not be freed.
    Warn = 2,
    /// Rare events that are no failure.
    Info = 3,
    /// Steps of the slow path.
    Debug = 4,
}

/// Receives one event of the log: `level` is a FOREBAY_LOG_LEVEL_*, `message` is text without a line end, valid during
/// the call only.
///
/// Called on a thread that is inside a call of this library, before that call returns, with none of the library's locks
/// held; possibly on several threads at once. It must not call this library, must not take a lock that the program
/// holds while it calls this library, and must not throw.
pub type ForebayLogFn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;

/// Sets the callback that receives every event up to `level`, a FOREBAY_LOG_LEVEL_*, in place of the one before; NULL
/// removes it. When this returns, the old callback is no longer called and its user data may be freed. Events of the
/// library's own threads are delivered by the next call of any other thread. A call with the same `callback` and `user`
/// changes the level, and takes effect at once. While a callback is set, stderr gets only the events up to the level of
/// the variable FOREBAY_LOG, and none if that is not set. Any thread, but not from inside the callback.
///
/// Returns FOREBAY_STATUS_BUSY from inside the callback, and where a Rust program has set its own subscriber of
/// tracing; FOREBAY_STATUS_INVALID_ARGUMENT for an unknown level.
///
/// # Safety
/// `callback` may be called with `user` as said, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_log_set_callback(
    callback: ForebayLogFn,
    user: *mut c_void,
    level: u32,
) -> ForebayStatus {
    guard::status(|| {
        let most = ForebayLogLevel::Debug as u32;
        let level = u8::try_from(level)
            .ok()
            .filter(|&level| u32::from(level) <= most)
            .ok_or_else(|| Error::invalid(format_args!("{level} is no forebay_log_level; there are 0 to {most}")))?;
        // An integer, so that the closure is Send: the caller promised that any thread may pass it.
        let user = user.expose_provenance();
        let listener = callback.map(|callback| -> (log::ListenerId, log::Listener) {
            let call = move |level, text: &str| {
                let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
                let user = std::ptr::with_exposed_provenance_mut(user);
                // SAFETY: as the caller promised.
                unsafe { callback(user, number(level) as u32, text.as_ptr()) }
            };
            ((callback as usize, user), Box::new(call))
        });
        Ok(log::listen(level, listener)?)
    })
}

fn number(level: Level) -> ForebayLogLevel {
    match level {
        Level::ERROR => ForebayLogLevel::Error,
        Level::WARN => ForebayLogLevel::Warn,
        Level::INFO => ForebayLogLevel::Info,
        _ => ForebayLogLevel::Debug,
    }
}

/// The shared pool for callers of the C ABI, with the log started.
pub(crate) fn shared() -> Result<&'static Arc<Pool>, Fault> {
    log::start()?;
    Ok(crate::pool::shared()?)
}
