//! The scope of a call in a device's primary context.

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice, CUstreamCaptureMode_enum};

use super::CudaDriver;
use super::api::{Api, Code};
use super::device::Device;
use super::error::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, SUCCESS};
use crate::driver::{DriverError, ErrorKind, Result};
use crate::units::{DeviceId, StreamHandle};

/// Makes a device's primary context current, and restores the thread's context and capture mode when dropped.
pub(super) struct Scope<'a> {
    api: &'a Api,
    pushed: bool,
    /// The thread's capture mode to restore.
    mode: Option<c_uint>,
}

impl CudaDriver {
    /// Enters the device's context. For calls that every capture mode allows.
    pub(super) fn enter(&self, device: DeviceId) -> Result<Scope<'_>> {
        let context = self.device(device)?.context(&self.api)?;
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: writes a context.
        let code = unsafe { (self.api.base.cuCtxGetCurrent)(&raw mut current) };
        self.api.check("cuCtxGetCurrent", code, String::new)?;
        let pushed = current != context;
        if pushed {
            // SAFETY: the context was retained and is never released.
            let code = unsafe { (self.api.base.cuCtxPushCurrent_v2)(context) };
            self.api.check("cuCtxPushCurrent", code, || format!("device {device}"))?;
        }
        Ok(Scope { api: &self.api, pushed, mode: None })
    }

    /// Enters the device's context in the relaxed capture mode: for calls that a capture in another mode forbids on
    /// this thread, or on every thread.
    pub(super) fn enter_relaxed(&self, device: DeviceId) -> Result<Scope<'_>> {
        self.relax(self.enter(device)?)
    }

    fn relax<'a>(&self, mut scope: Scope<'a>) -> Result<Scope<'a>> {
        let mut mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
        // SAFETY: reads the new mode and writes the one before.
        let code = unsafe { (self.api.base.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.api.check("cuThreadExchangeStreamCaptureMode", code, String::new)?;
        scope.mode = Some(mode);
        Ok(scope)
    }

    /// Makes a call whose handles mean the same in every context. A query of the current context costs as much as some
    /// of these calls. So the call is made first, and repeated in the device's context if the driver refuses it for
    /// lack of one.
    #[inline]
    pub(super) fn anywhere(&self, device: DeviceId, mut call: impl FnMut() -> Code) -> Result<Code> {
        self.device(device)?;
        match call() {
            INVALID_CONTEXT | CONTEXT_IS_DESTROYED => self.enter(device).map(|_scope| call()),
            code => Ok(code),
        }
    }

    /// [`Self::anywhere`] in the relaxed capture mode.
    pub(super) fn anywhere_relaxed(&self, device: DeviceId, call: impl FnMut() -> Code) -> Result<Code> {
        let nowhere = Scope { api: &self.api, pushed: false, mode: None };
        let _scope = self.relax(nowhere).or_else(|_| self.enter_relaxed(device))?;
        self.anywhere(device, call)
    }

    /// [`Self::anywhere`] for a call on a stream. Default streams depend on the current context, so they enter the
    /// device's.
    #[inline]
    pub(super) fn about(&self, device: DeviceId, stream: StreamHandle, mut call: impl FnMut() -> Code) -> Result<Code> {
        if stream.is_default() {
            return self.enter(device).map(|_scope| call());
        }
        self.anywhere(device, call)
    }

    pub(super) fn find_current_device(&self) -> Option<DeviceId> {
        let mut handle: CUdevice = 0;
        // SAFETY: writes a device; refused where no context is current.
        let code = unsafe { (self.api.base.cuCtxGetDevice)(&raw mut handle) };
        let index = self.devices.iter().position(|device| code == SUCCESS && device.handle == handle)?;
        Some(DeviceId(index as u32))
    }

    /// The device of a context. Primary contexts are known; another one is entered and queried.
    pub(super) fn find_context_device(&self, context: CUcontext) -> Option<DeviceId> {
        if let Some(index) = self.devices.iter().position(|device| device.is_home_of(context)) {
            return Some(DeviceId(index as u32));
        }
        // SAFETY: the context of a living stream is alive.
        if unsafe { (self.api.base.cuCtxPushCurrent_v2)(context) } != SUCCESS {
            return None;
        }
        let _scope = Scope { api: &self.api, pushed: true, mode: None };
        self.find_current_device()
    }

    pub(super) fn device(&self, device: DeviceId) -> Result<&Device> {
        self.devices.get(device.0 as usize).ok_or_else(|| {
            let detail = format!("device {device} of {}", self.devices.len());
            DriverError::new(ErrorKind::Invalid, "cuDeviceGet", detail)
        })
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: reads the mode and writes the one before. It can fail only when the driver is gone.
            unsafe { (self.api.base.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        }
        if self.pushed {
            let mut popped: CUcontext = ptr::null_mut();
            // SAFETY: takes off what `enter` pushed on this thread: scopes do not outlive their call. It can
            // fail only when the driver is gone, and nothing is current then.
            unsafe { (self.api.base.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}
