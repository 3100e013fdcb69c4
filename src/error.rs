//! Errors of the pool and of resources. Each text names the thing, the value, the limit and what to do.

use std::fmt;

use crate::driver::{DriverError, ErrorKind};
use crate::units::DeviceId;

/// The result of a fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a request failed. The request changed nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// Out of memory, also after reclaim; the text has the pool's report.
    OutOfMemory(Box<str>),
    /// The pointer is not the start of a live block.
    BadFree(Box<str>),
    /// There is no such device.
    BadDevice {
        /// The device number that was passed.
        asked: i64,
        /// The number of devices.
        count: u32,
    },
    /// An argument or option out of range.
    Invalid(Box<str>),
    /// Not possible on a stream that is being captured.
    Capturing(Box<str>),
    /// The process was forked from one that used this library.
    Forked,
    /// No such callback, private pool or stream.
    NotFound(Box<str>),
    /// The object is in use, or was already used, so that it cannot be changed.
    Busy(Box<str>),
    /// The driver or device lacks the requested feature.
    Unsupported(Box<str>),
    /// The driver failed.
    Driver(DriverError),
    /// The resource or buffer is closed.
    Closed(Box<str>),
    /// Memory of another user, sharing from a resource without IPC, or an allocation from a pool mapped from another
    /// process.
    NotPermitted(Box<str>),
    /// The exporting process has ended, or gave no valid answer.
    Peer(Box<str>),
}

impl Error {
    pub(crate) fn invalid(text: impl fmt::Display) -> Self {
        Self::Invalid(text.to_string().into())
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error.kind {
            ErrorKind::Capturing => Self::Capturing(error.to_string().into()),
            // Refused without a driver call: an argument of the caller, such as a driver's name.
            ErrorKind::Invalid if error.code == 0 => Self::Invalid(error.to_string().into()),
            _ => Self::Driver(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(text)
            | Self::BadFree(text)
            | Self::Invalid(text)
            | Self::Capturing(text)
            | Self::NotFound(text)
            | Self::Unsupported(text)
            | Self::Busy(text)
            | Self::Closed(text)
            | Self::NotPermitted(text)
            | Self::Peer(text) => f.write_str(text),
            Self::BadDevice { asked, count: 0 } => write!(f, "device {asked} asked for, but there are no devices"),
            Self::BadDevice { asked, count } => {
                write!(f, "device {asked} asked for; devices are 0 to {}", DeviceId(count - 1))
            }
            Self::Forked => f.write_str(
                "this process was forked from one that used the GPU; CUDA cannot be used in it: start the child with \
                 spawn or exec instead",
            ),
            Self::Driver(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}
