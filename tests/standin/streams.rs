//! Streams, events and captures.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::driver::{Capture, Driver, Event};
use forebay::units::{DeviceId, StreamHandle};

use crate::state::{context_of, host, of_context};
use crate::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_READY, functions, put, said};

/// How often a stream was named that does not live. libcuda would not have noticed.
pub static DEAD_STREAMS: AtomicU64 = AtomicU64::new(0);

pub fn handle(stream: *mut c_void) -> StreamHandle {
    StreamHandle(stream.addr() as u64)
}

/// The device of a stream, of the current context for a default one.
pub fn owner(here: DeviceId, stream: *mut c_void) -> Answer<DeviceId> {
    let stream = handle(stream);
    if stream.is_default() {
        return Ok(here);
    }
    host()?.stream_device(here, stream).ok_or_else(|| {
        DEAD_STREAMS.fetch_add(1, Ordering::Relaxed);
        INVALID_HANDLE
    })
}

fn event(raw: *mut c_void) -> Event {
    Event(raw.addr() as u64)
}

fn ready(done: bool) -> Answer {
    if done { Ok(()) } else { Err(NOT_READY) }
}

fn capture(here: DeviceId, stream: *mut c_void) -> Answer<Option<u64>> {
    Ok(match said(host()?.stream_capture(owner(here, stream)?, handle(stream)))? {
        Capture::None => None,
        Capture::Active(number) => Some(number),
    })
}

functions! {
    uncaptured cuStreamCreate(stream: *mut *mut c_void, flags: u32) |here| {
        // CU_STREAM_NON_BLOCKING: the host driver has no other streams.
        if flags != 1 {
            return Err(INVALID_VALUE);
        }
        put(stream, said(host()?.stream_create(here))?.0 as *mut c_void)
    }

    uncaptured cuStreamDestroy_v2(stream: *mut c_void) |here| {
        said(host()?.stream_destroy(owner(here, stream)?, handle(stream)))
    }

    uncaptured cuStreamSynchronize(stream: *mut c_void) |here| {
        said(host()?.stream_synchronize(owner(here, stream)?, handle(stream)))
    }

    uncaptured cuStreamQuery(stream: *mut c_void) |here| {
        ready(said(host()?.stream_idle(owner(here, stream)?, handle(stream)))?)
    }

    context cuStreamGetCtx(stream: *mut c_void, context: *mut *mut c_void) |here| {
        put(context, context_of(owner(here, stream)?))
    }

    context cuStreamGetId(stream: *mut c_void, identity: *mut u64) |here| {
        put(identity, said(host()?.stream_identity(owner(here, stream)?, handle(stream)))?)
    }

    context cuStreamWaitEvent(stream: *mut c_void, of: *mut c_void, flags: u32) |here| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        said(host()?.stream_wait(owner(here, stream)?, handle(stream), event(of)))
    }

    context cuStreamIsCapturing(stream: *mut c_void, status: *mut u32) |here| {
        put(status, capture(here, stream)?.is_some().into())
    }

    context cuStreamGetCaptureInfo_v2(
        stream: *mut c_void,
        status: *mut u32,
        number: *mut u64,
        graph: *mut c_void,
        nodes: *mut c_void,
        count: *mut usize,
    ) |here| {
        if !graph.is_null() || !nodes.is_null() || !count.is_null() {
            return Err(INVALID_VALUE);
        }
        let found = capture(here, stream)?;
        put(status, found.is_some().into())?;
        found.map_or(Ok(()), |found| put(number, found))
    }

    uncaptured cuEventCreate(created: *mut *mut c_void, flags: u32) |here| {
        // CU_EVENT_DISABLE_TIMING: a record with timing costs far more.
        if flags != 2 {
            return Err(INVALID_VALUE);
        }
        put(created, said(host()?.event_create(here))?.0 as *mut c_void)
    }

    uncaptured cuEventDestroy_v2(of: *mut c_void) |here| {
        said(host()?.event_destroy(here, event(of)))
    }

    context cuEventRecord(of: *mut c_void, stream: *mut c_void) |here| {
        said(host()?.event_record(owner(here, stream)?, event(of), handle(stream)))
    }

    uncaptured cuCtxRecordEvent(context: *mut c_void, of: *mut c_void) |_here| {
        said(host()?.event_record_all(of_context(context)?, event(of)))
    }

    uncaptured cuEventQuery(of: *mut c_void) |here| {
        ready(said(host()?.event_passed(here, event(of)))?)
    }

    uncaptured cuEventSynchronize(of: *mut c_void) |here| {
        said(host()?.event_wait(here, event(of)))
    }

    uncaptured cuCtxSynchronize() |here| {
        said(host()?.synchronize(here))
    }
}
