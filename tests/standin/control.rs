//! What a test does to device 0 that `driver/cuda` has no call for: the host driver's own ways to hold work back, and
//! to look.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use forebay::driver::host::{Clock, HostOptions, Usage};
use forebay::units::{DeviceId, StreamHandle};

use crate::state::{CAPTURES, capture_mode, depth, host, options, reset};
use crate::streams::DEAD_STREAMS;
use crate::{functions, put, said};

const DEVICE: DeviceId = DeviceId(0);

/// What the devices are like, as in `tests/kit/standin.rs`.
#[repr(C)]
pub struct Shape {
    capacity: u64,
    granularity: u64,
    has_vmm: bool,
    is_held_back: bool,
}

functions! {
    nothing standin_reset(shape: *const Shape) |_here| {
        let &Shape { capacity, granularity, has_vmm: vmm, is_held_back } = unsafe { &*shape };
        let clock = if is_held_back { Clock::Manual } else { Clock::Immediate };
        reset(HostOptions { capacity, host_capacity: capacity, granularity, vmm, clock, ..options() })
    }

    always standin_call(stream: u64, call: extern "C" fn(*mut c_void), user: *mut c_void) |_here| {
        let user = user.expose_provenance();
        let work = move || call(std::ptr::with_exposed_provenance_mut(user));
        said(host()?.host_call(DEVICE, StreamHandle(stream), Box::new(work)))
    }

    always standin_step(stream: u64, ran: *mut c_int) |_here| {
        put(ran, said(host()?.step(DEVICE, StreamHandle(stream)))?.into())
    }

    always standin_run_all() |_here| {
        host()?.run_all();
        Ok(())
    }

    always standin_queued(stream: u64, count: *mut u64) |_here| {
        put(count, said(host()?.queued(DEVICE, StreamHandle(stream)))? as u64)
    }

    always standin_begin_capture(stream: u64) |_here| {
        said(host()?.begin_capture(DEVICE, StreamHandle(stream)))?;
        CAPTURES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    always standin_end_capture(stream: u64) |_here| {
        said(host()?.end_capture(DEVICE, StreamHandle(stream)))?;
        CAPTURES.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    always standin_wrong_uses(streams: *mut u64, memory: *mut u64) |_here| {
        let host = host()?;
        put(streams, DEAD_STREAMS.load(Ordering::Relaxed) + host.dead_stream_uses())?;
        put(memory, host.bad_accesses())
    }

    nothing standin_thread(contexts: *mut u64, mode: *mut u32) |_here| {
        put(contexts, depth())?;
        put(mode, capture_mode())
    }

    always standin_is_idle(idle: *mut c_int) |_here| {
        put(idle, (host()?.usage() == Usage::default()).into())
    }
}
