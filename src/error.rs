//! What can go wrong for a caller of the pool. Each text names the thing, the value, the limit and a way out.

use std::fmt;

use crate::driver::{DriverError, ErrorKind};
use crate::units::DeviceId;

/// What the layer returns.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed request. It changed nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// No memory after everything that could be given back was; the text is the pool's report.
    OutOfMemory(Box<str>),
    /// The pointer is not the start of a live block.
    BadFree(Box<str>),
    /// There is no such device.
    BadDevice {
        /// What was asked for.
        asked: i64,
        /// How many there are.
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
    /// Too late: the thing is in use.
    Busy(Box<str>),
    /// The driver or device lacks what was asked for.
    Unsupported(Box<str>),
    /// The driver failed.
    Driver(DriverError),
    /// The resource or buffer is closed.
    Closed(Box<str>),
    /// Another user's, not made for sharing, or mapped from another process and so not to be allocated from.
    NotPermitted(Box<str>),
    /// The other process is gone, or does not answer as it should.
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
            // Refused before the driver was asked: an argument of the caller's, like a driver's name.
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
            Self::BadDevice { asked, count: 0 } => write!(f, "device {asked} asked for, and there are no devices"),
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
