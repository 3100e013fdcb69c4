//! The error of the driver layer: the call, its arguments, and the driver's error.

use std::fmt;

/// The kind of an error, as far as the layers above treat kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no usable driver or device.
    NoDriver,
    /// The driver or device lacks the requested feature.
    Unsupported,
    /// The device has no memory left.
    OutOfMemory,
    /// An argument was out of range.
    Invalid,
    /// Not allowed while a stream is being captured.
    Capturing,
    /// The driver has shut down, since the process is ending.
    Deinitialized,
    /// Anything else the driver reports.
    Failed,
}

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// A failed driver call. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The kind, for programs.
    pub kind: ErrorKind,
    /// The driver's function, such as `cuMemCreate`.
    pub call: &'static str,
    /// The driver's code; 0 if no driver call was made.
    pub code: i32,
    /// The driver's name for the code and the arguments, for people.
    pub detail: String,
}

impl DriverError {
    /// An error that this library detected without a driver call.
    pub fn new(kind: ErrorKind, call: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, call, code: 0, detail: detail.into() }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.detail)?;
        if self.code != 0 {
            write!(f, " (code {})", self.code)?;
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}
