//! Status codes, their texts, and the thread's last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::driver::ErrorKind;
use crate::error::Error;

/// What a call answers. Numbers never change their meaning; retired ones are not used again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayStatus {
    /// Done.
    Ok = 0,
    /// A required object or output is NULL.
    NullPointer = 1,
    /// A size, number, option or struct version is out of range.
    InvalidArgument = 2,
    /// No memory, after everything that could be given back was.
    OutOfMemory = 3,
    /// The pointer is not the start of a live block: foreign, inside a block, or freed before.
    BadFree = 4,
    /// The driver or device lacks what was asked for.
    Unsupported = 5,
    /// There is no usable driver or device.
    NoDriver = 6,
    /// The device number is out of range.
    BadDevice = 7,
    /// The driver failed; the message has its name for it.
    Driver = 8,
    /// Not possible on a stream that is being captured.
    Capturing = 9,
    /// In a child of fork().
    Forked = 10,
    /// An unknown callback, private pool or stream.
    NotFound = 11,
    /// Too late: the thing is in use.
    Busy = 12,
    /// A bug in this library, caught before it reached the caller.
    Panic = 13,
    /// The resource or buffer is closed.
    Closed = 14,
    /// Not allowed: memory of another user, a resource that is not made for sharing, or an allocation from one that
    /// is mapped from another process.
    NotPermitted = 15,
    /// The other process is gone, or does not answer as it should.
    Peer = 16,
    // Last added.
}

impl From<&Error> for ForebayStatus {
    fn from(error: &Error) -> Self {
        match error {
            Error::OutOfMemory(_) => Self::OutOfMemory,
            Error::BadFree(_) => Self::BadFree,
            Error::BadDevice { .. } => Self::BadDevice,
            Error::Invalid(_) => Self::InvalidArgument,
            Error::Capturing(_) => Self::Capturing,
            Error::Forked => Self::Forked,
            Error::NotFound(_) => Self::NotFound,
            Error::Busy(_) => Self::Busy,
            Error::Closed(_) => Self::Closed,
            Error::NotPermitted(_) => Self::NotPermitted,
            Error::Peer(_) => Self::Peer,
            Error::Unsupported(_) => Self::Unsupported,
            Error::Driver(error) => match error.kind {
                ErrorKind::NoDriver => Self::NoDriver,
                ErrorKind::Unsupported => Self::Unsupported,
                ErrorKind::OutOfMemory => Self::OutOfMemory,
                ErrorKind::Capturing => Self::Capturing,
                ErrorKind::Invalid | ErrorKind::Deinitialized | ErrorKind::Failed => Self::Driver,
            },
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps a text as this thread's last error.
pub(crate) fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // While the thread is ending nobody can ask any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// A short English text for a status; "unknown status" for any other number. Static; never NULL.
/// Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_status_text(status: u32) -> *const c_char {
    let text: &CStr = match status {
        0 => c"ok",
        1 => c"a required pointer is NULL",
        2 => c"invalid argument",
        3 => c"out of memory",
        4 => c"not the start of a live block",
        5 => c"not supported by this driver or device",
        6 => c"no usable driver",
        7 => c"no such device",
        8 => c"the driver failed",
        9 => c"the stream is being captured",
        10 => c"not possible in a forked child",
        11 => c"not found",
        12 => c"busy",
        13 => c"internal error",
        14 => c"closed",
        15 => c"not permitted",
        16 => c"the other process is gone or does not answer as it should",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// What went wrong in this thread's last failing call, in full; "" if none failed yet. Never NULL.
/// Valid until this thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
