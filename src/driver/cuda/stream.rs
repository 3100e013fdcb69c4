//! Streams, events and captures.
//!
//! Calls of the hot paths (identity, capture, record, query of an event, wait) do not query the current context
//! ([`CudaDriver::anywhere`]). All but the query are legal in every capture mode.

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUevent, CUevent_flags_enum, CUstream, CUstream_flags_enum, CUstreamCaptureStatus_enum,
};

use super::CudaDriver;
use super::error::{SUCCESS, forgive};
use crate::driver::{Capture, DriverError, ErrorKind, Event, Result};
use crate::units::{DeviceId, StreamHandle};

/// A handle is the bits of a `CUstream`; 0, 1 and 2 mean the same in libcuda.
pub(super) fn raw(stream: StreamHandle) -> CUstream {
    stream.0 as CUstream
}

fn raw_event(event: Event) -> CUevent {
    event.0 as CUevent
}

fn named(stream: StreamHandle) -> String {
    format!("stream {stream}")
}

impl CudaDriver {
    pub(super) fn create_stream(&self, device: DeviceId) -> Result<StreamHandle> {
        let _scope = self.enter_relaxed(device)?;
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: writes a stream.
        let code = unsafe {
            (self.api.base.cuStreamCreate)(&raw mut stream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint)
        };
        self.api.check("cuStreamCreate", code, || format!("device {device}"))?;
        Ok(StreamHandle(stream as u64))
    }

    pub(super) fn destroy_stream(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        if stream.is_default() {
            let detail = format!("{stream} is a default stream");
            return Err(DriverError::new(ErrorKind::Invalid, "cuStreamDestroy", detail));
        }
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that the stream is its own and alive.
            let code = unsafe { (self.api.base.cuStreamDestroy_v2)(raw(stream)) };
            self.api.check("cuStreamDestroy", code, || named(stream))
        }))
    }

    pub(super) fn find_stream_device(&self, device: DeviceId, stream: StreamHandle) -> Option<DeviceId> {
        if stream.is_default() {
            return None;
        }
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: writes a context; the caller vouches that the stream is alive.
        let ask = || unsafe { (self.api.base.cuStreamGetCtx)(raw(stream), &raw mut context) };
        let answered = self.anywhere(device, ask).is_ok_and(|code| code == SUCCESS);
        if answered && !context.is_null() { self.find_context_device(context) } else { None }
    }

    pub(super) fn wait_for_stream(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches that the stream is alive.
        let code = unsafe { (self.api.base.cuStreamSynchronize)(raw(stream)) };
        self.api.check("cuStreamSynchronize", code, || named(stream))
    }

    pub(super) fn query_stream(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches that the stream is alive.
        let code = unsafe { (self.api.base.cuStreamQuery)(raw(stream)) };
        self.api.is_done("cuStreamQuery", code, || named(stream))
    }

    pub(super) fn read_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        let group = self.api.need(&self.api.stream_id, "cuStreamGetId", 12_000)?;
        let mut identity = 0;
        // SAFETY: writes an integer; the caller vouches that the stream is alive.
        let code = self.about(device, stream, || unsafe { (group.cuStreamGetId)(raw(stream), &raw mut identity) })?;
        self.api.check("cuStreamGetId", code, || named(stream))?;
        Ok(identity)
    }

    pub(super) fn read_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture> {
        let mut status = 0;
        let code = self.about(device, stream, || {
            // SAFETY: writes an integer; the caller vouches that the stream is alive.
            unsafe { (self.api.base.cuStreamIsCapturing)(raw(stream), &raw mut status) }
        })?;
        self.api.check("cuStreamIsCapturing", code, || named(stream))?;
        if status == CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE as c_uint {
            return Ok(Capture::None);
        }
        let _scope = self.enter(device)?;
        self.read_capture_number(stream).map(Capture::Active)
    }

    /// pre: inside a scope, `stream` is being captured. An invalidated capture keeps its number.
    #[cold]
    fn read_capture_number(&self, stream: StreamHandle) -> Result<u64> {
        let group = self.api.need(&self.api.capture_info, "cuStreamGetCaptureInfo", 11_030)?;
        let (mut status, mut number) = (0, 0);
        let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes two integers; the other outputs may be null.
        let code = unsafe {
            (group.cuStreamGetCaptureInfo_v2)(raw(stream), &raw mut status, &raw mut number, graph, nodes, count)
        };
        self.api.check("cuStreamGetCaptureInfo", code, || named(stream))?;
        Ok(number)
    }

    pub(super) fn create_event(&self, device: DeviceId) -> Result<Event> {
        let _scope = self.enter_relaxed(device)?;
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: writes an event. Without timing a record is much cheaper.
        let code = unsafe {
            (self.api.base.cuEventCreate)(&raw mut event, CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as c_uint)
        };
        self.api.check("cuEventCreate", code, || format!("device {device}"))?;
        Ok(Event(event as u64))
    }

    pub(super) fn destroy_event(&self, device: DeviceId, event: Event) -> Result<()> {
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that the event is its own and alive.
            let code = unsafe { (self.api.base.cuEventDestroy_v2)(raw_event(event)) };
            self.api.check("cuEventDestroy", code, || format!("event {:#x}", event.0))
        }))
    }

    pub(super) fn record_event(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()> {
        let code = self.about(device, stream, || {
            // SAFETY: the caller vouches that both are alive.
            unsafe { (self.api.base.cuEventRecord)(raw_event(event), raw(stream)) }
        })?;
        self.api.check("cuEventRecord", code, || format!("event {:#x} on stream {stream}", event.0))
    }

    pub(super) fn record_context_event(&self, device: DeviceId, event: Event) -> Result<()> {
        let group = self.api.need(&self.api.context_events, "cuCtxRecordEvent", 12_050)?;
        let _scope = self.enter_relaxed(device)?;
        let context = self.device(device)?.context(&self.api)?;
        // SAFETY: the context is never released; the caller vouches that the event is alive.
        let code = unsafe { (group.cuCtxRecordEvent)(context, raw_event(event)) };
        self.api.check("cuCtxRecordEvent", code, || format!("event {:#x} on device {device}", event.0))
    }

    pub(super) fn query_event(&self, device: DeviceId, event: Event) -> Result<bool> {
        // SAFETY: the caller vouches that the event is alive.
        let code = self.anywhere_relaxed(device, || unsafe { (self.api.base.cuEventQuery)(raw_event(event)) })?;
        self.api.is_done("cuEventQuery", code, || format!("event {:#x}", event.0))
    }

    pub(super) fn wait_for_event(&self, device: DeviceId, event: Event) -> Result<()> {
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches that the event is alive.
        let code = unsafe { (self.api.base.cuEventSynchronize)(raw_event(event)) };
        self.api.check("cuEventSynchronize", code, || format!("event {:#x}", event.0))
    }

    pub(super) fn queue_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()> {
        let code = self.about(device, stream, || {
            // SAFETY: the caller vouches that both are alive.
            unsafe { (self.api.base.cuStreamWaitEvent)(raw(stream), raw_event(event), 0) }
        })?;
        self.api.check("cuStreamWaitEvent", code, || format!("stream {stream}, event {:#x}", event.0))
    }

    pub(super) fn wait_for_device(&self, device: DeviceId) -> Result<()> {
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: no memory is involved.
        let code = unsafe { (self.api.base.cuCtxSynchronize)() };
        self.api.check("cuCtxSynchronize", code, || format!("device {device}"))
    }
}
