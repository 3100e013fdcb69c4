//! The one error of the driver layer: which call, on what, and what the driver said.

use std::fmt;

/// What went wrong, as far as the layers above treat it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no usable driver or device.
    NoDriver,
    /// The driver or device lacks what was asked for.
    Unsupported,
    /// The device has no memory left.
    OutOfMemory,
    /// An argument was out of range.
    Invalid,
    /// Not allowed while a stream is being captured.
    Capturing,
    /// The process is ending and the driver is gone.
    Deinitialized,
    /// Anything else the driver reports.
    Failed,
}

/// What the layer returns.
pub type Result<T> = std::result::Result<T, DriverError>;

/// A failed driver call. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The kind, for code.
    pub kind: ErrorKind,
    /// The driver's function, e.g. `cuMemCreate`.
    pub call: &'static str,
    /// The driver's own code; 0 where the driver was not reached.
    pub code: i32,
    /// The driver's name for the code and what was asked, for people.
    pub detail: String,
}

impl DriverError {
    /// An error that this library found itself.
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
