//! The log, for programs that want it in their own.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use tracing::Level;

use super::guard::{self, Fault};
use super::status::ForebayStatus;
use crate::error::Error;
use crate::log;
use crate::pool::Pool;

/// How much of the log.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayLogLevel {
    /// Nothing.
    Off = 0,
    /// What should never happen: bugs, and what could not be undone.
    Error = 1,
    /// What went wrong and is in no status: a bad free through a framework's hook, memory that stays behind.
    Warn = 2,
    /// What is worth knowing.
    Info = 3,
    /// What the pool does when it does more than a hit.
    Debug = 4,
}

/// Told one event: `level` is a FOREBAY_LOG_LEVEL_*, `message` is text without a line end, valid in this call. Called
/// on a thread that is in a call of this library, before that returns, without any of the library's locks held; on
/// several threads at once. Must not call this library, take a lock that is held around calls of it, or throw.
pub type ForebayLogFn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;

/// Has `callback` told every event up to `level` from now on, until another one is set; NULL ends it. When this returns
/// the old callback is not called any more. What happens on the library's own threads is told by the next call of any
/// other. The same callback with the same `user` again gets another level, at once. While there is a callback nothing
/// is printed but what the variable FOREBAY_LOG asks for. Any thread, but not inside of the callback.
///
/// Returns FOREBAY_STATUS_BUSY inside of the callback, FOREBAY_STATUS_INVALID_ARGUMENT for another level.
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
        // The caller promised that it may be passed from any thread.
        let user = user.expose_provenance();
        let listener = callback.map(|callback| -> (log::Who, log::Listener) {
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

/// The shared pool, for programs that come through the C ABI: they hear the log.
pub(crate) fn shared() -> Result<&'static Arc<Pool>, Fault> {
    log::start()?;
    Ok(crate::pool::shared()?)
}
