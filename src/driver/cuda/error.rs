//! Translates a `CUresult` into the layer's error: the kind for programs, the name and arguments for people.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::cudaError_enum as cu;

use super::api::{Api, Code};
use crate::driver::{DriverError, ErrorKind, Result};

pub(super) const SUCCESS: Code = cu::CUDA_SUCCESS as Code;
const NOT_READY: Code = cu::CUDA_ERROR_NOT_READY as Code;
pub(super) const INVALID_VALUE: Code = cu::CUDA_ERROR_INVALID_VALUE as Code;
pub(super) const NOT_PERMITTED: Code = cu::CUDA_ERROR_NOT_PERMITTED as Code;
/// The codes for no current context on this thread, or a destroyed one.
pub(super) const INVALID_CONTEXT: Code = cu::CUDA_ERROR_INVALID_CONTEXT as Code;
pub(super) const CONTEXT_IS_DESTROYED: Code = cu::CUDA_ERROR_CONTEXT_IS_DESTROYED as Code;

/// The first and the last code about captures; no other codes lie between them.
const CAPTURE_FIRST: Code = cu::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as Code;
const CAPTURE_LAST: Code = cu::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as Code;

impl Api {
    /// `Ok` for success, otherwise the error of `call`; `asked` describes the arguments.
    pub(super) fn check(&self, call: &'static str, code: Code, asked: impl FnOnce() -> String) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(self.error(call, code, &asked()))
    }

    /// The result of a query whether work is done.
    pub(super) fn is_done(&self, call: &'static str, code: Code, asked: impl FnOnce() -> String) -> Result<bool> {
        if code == NOT_READY { Ok(false) } else { self.check(call, code, asked).map(|()| true) }
    }

    /// The error for a code that is not success.
    #[cold]
    pub(super) fn error(&self, call: &'static str, code: Code, asked: &str) -> DriverError {
        let separator = if asked.is_empty() { "" } else { ", " };
        DriverError { kind: kind(code), call, code, detail: format!("{}{separator}{asked}", self.name(code)) }
    }

    /// libcuda's name for a code, such as `CUDA_ERROR_INVALID_VALUE`.
    pub(super) fn name(&self, code: Code) -> String {
        let mut name = ptr::null();
        // SAFETY: writes a pointer to a string that lives as long as libcuda, or fails.
        let answer = unsafe { (self.base.cuGetErrorName)(code, &raw mut name) };
        if answer != SUCCESS || name.is_null() {
            return "an unknown CUDA error".into();
        }
        // SAFETY: not null, and libcuda's own constant string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

fn kind(code: Code) -> ErrorKind {
    const OUT_OF_MEMORY: Code = cu::CUDA_ERROR_OUT_OF_MEMORY as Code;
    const NOT_SUPPORTED: Code = cu::CUDA_ERROR_NOT_SUPPORTED as Code;
    const NO_DEVICE: Code = cu::CUDA_ERROR_NO_DEVICE as Code;
    const STUB_LIBRARY: Code = cu::CUDA_ERROR_STUB_LIBRARY as Code;
    const INVALID_HANDLE: Code = cu::CUDA_ERROR_INVALID_HANDLE as Code;
    const INVALID_DEVICE: Code = cu::CUDA_ERROR_INVALID_DEVICE as Code;
    const ALREADY_MAPPED: Code = cu::CUDA_ERROR_ALREADY_MAPPED as Code;
    const NOT_MAPPED: Code = cu::CUDA_ERROR_NOT_MAPPED as Code;
    const ALREADY_REGISTERED: Code = cu::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED as Code;
    const NOT_REGISTERED: Code = cu::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED as Code;
    const DEINITIALIZED: Code = cu::CUDA_ERROR_DEINITIALIZED as Code;
    const CONTEXT_IS_DESTROYED: Code = cu::CUDA_ERROR_CONTEXT_IS_DESTROYED as Code;
    match code {
        OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        NOT_SUPPORTED => ErrorKind::Unsupported,
        NO_DEVICE | STUB_LIBRARY => ErrorKind::NoDriver,
        INVALID_VALUE | INVALID_HANDLE | INVALID_DEVICE | ALREADY_MAPPED | NOT_MAPPED => ErrorKind::Invalid,
        ALREADY_REGISTERED | NOT_REGISTERED => ErrorKind::Invalid,
        DEINITIALIZED | CONTEXT_IS_DESTROYED => ErrorKind::Deinitialized,
        CAPTURE_FIRST..=CAPTURE_LAST => ErrorKind::Capturing,
        _ => ErrorKind::Failed,
    }
}

/// An error without a call of libcuda: the device or driver lacks the feature in `detail`.
#[cold]
pub(super) fn lacking(call: &'static str, detail: impl Into<String>) -> DriverError {
    DriverError::new(ErrorKind::Unsupported, call, detail)
}

/// An error without a call of libcuda: an invalid argument.
#[cold]
pub(super) fn invalid(call: &'static str, detail: impl Into<String>) -> DriverError {
    DriverError::new(ErrorKind::Invalid, call, detail)
}

/// For calls that free or destroy: they succeed after the driver has shut down, which freed everything.
pub(super) fn forgive(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind == ErrorKind::Deinitialized => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_the_kinds_that_the_layers_above_know() {
        for (code, expected) in [
            (1, ErrorKind::Invalid),
            (2, ErrorKind::OutOfMemory),
            (4, ErrorKind::Deinitialized),
            (100, ErrorKind::NoDriver),
            (400, ErrorKind::Invalid),
            (700, ErrorKind::Failed),
            (709, ErrorKind::Deinitialized),
            (712, ErrorKind::Invalid),
            (713, ErrorKind::Invalid),
            (800, ErrorKind::Failed),
            (801, ErrorKind::Unsupported),
            (899, ErrorKind::Failed),
            (900, ErrorKind::Capturing),
            (908, ErrorKind::Capturing),
            (909, ErrorKind::Failed),
            (123_456, ErrorKind::Failed),
        ] {
            assert_eq!(kind(code), expected, "code {code}");
        }
    }

    #[test]
    fn only_a_driver_that_is_gone_is_forgiven() {
        let error = |kind| Err(DriverError::new(kind, "cuMemFree", ""));
        assert!(forgive(error(ErrorKind::Deinitialized)).is_ok());
        assert!(forgive(error(ErrorKind::Invalid)).is_err());
    }
}
