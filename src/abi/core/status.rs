//! Status codes, their texts, and the thread's last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::driver::ErrorKind;
use crate::error::Error;

/// The result of a call. A number never changes its meaning; retired numbers are not reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayStatus {
    /// Success.
    Ok = 0,
    /// A required object or output is NULL.
    NullPointer = 1,
    /// A size, number, option or struct version is out of range.
    InvalidArgument = 2,
    /// Out of memory, after the library gave back all memory that it could.
    OutOfMemory = 3,
    /// The pointer is not the start of a live block: foreign, inside a block, or freed before.
    BadFree = 4,
    /// The driver or device lacks the requested feature.
    Unsupported = 5,
    /// There is no usable driver or device.
    NoDriver = 6,
    /// The device number is out of range.
    BadDevice = 7,
    /// A driver call failed; the message names the call and the error.
    Driver = 8,
    /// Not possible on a stream that is being captured.
    Capturing = 9,
    /// The process is a child of fork() whose parent used this library.
    Forked = 10,
    /// No such callback, private pool, stream, mapped pool or shared memory.
    NotFound = 11,
    /// The object is in use, or was already used, so that it cannot be changed.
    Busy = 12,
    /// A bug in this library, caught before it reached the caller.
    Panic = 13,
    /// The resource or buffer is closed.
    Closed = 14,
    /// Not permitted: memory of another user, sharing from a resource without IPC, or allocating from a pool that is
    /// mapped from another process.
    NotPermitted = 15,
    /// The exporting process has ended, or its exchange service gave no valid answer.
    Peer = 16,
    // New statuses go here.
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

/// Stores a text as this thread's last error.
pub(crate) fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Fails only while the thread ends, when the text can no longer be read.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// A short English text for a FOREBAY_STATUS_*; "unknown status" for any other number. Static; never NULL. Any thread.
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

/// The full text of the calling thread's last failed call; "" if none failed. Never NULL. Valid until the next failed
/// call of this thread. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
