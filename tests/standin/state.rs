//! The host driver behind all calls, each thread's contexts, and what every call passes first.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use forebay::driver::Driver;
use forebay::driver::host::{Clock, HostDriver, HostOptions};
use forebay::units::DeviceId;

use crate::{
    Answer, CAPTURE_UNSUPPORTED, Code, DEINITIALIZED, INVALID_CONTEXT, INVALID_DEVICE, NO_DEVICE, NOT_INITIALIZED,
    NOWHERE, SUCCESS, UNKNOWN, functions, put, said,
};

/// What a function needs.
#[derive(Clone, Copy, PartialEq)]
#[expect(non_camel_case_types, reason = "words of the macro `functions`")]
pub enum Needs {
    /// Not even `cuInit`.
    nothing,
    always,
    context,
    uncaptured,
}

static HOST: RwLock<Option<Arc<HostDriver>>> = RwLock::new(None);

/// The process that called `cuInit`; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Devices whose primary context was retained, a bit each.
static RETAINED: AtomicU64 = AtomicU64::new(0);

/// Captures under way.
pub static CAPTURES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The contexts pushed on this thread, by device.
    static CONTEXTS: RefCell<Vec<DeviceId>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
}

const RELAXED: u32 = 2;

/// The host driver. pre: after `cuInit`.
pub fn host() -> Answer<Arc<HostDriver>> {
    HOST.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(NOT_INITIALIZED)
}

/// Begins anew, on devices of this kind. What was given out is gone.
pub fn reset(options: HostOptions) -> Answer {
    let fresh = said(HostDriver::new(options))?;
    *HOST.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(fresh));
    Ok(())
}

/// What the environment says of the devices.
pub fn options() -> HostOptions {
    let read = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let usual = HostOptions::default();
    HostOptions {
        devices: read("STANDIN_DEVICES").map_or(usual.devices, |count: u64| count as u32),
        capacity: read("STANDIN_CAPACITY").unwrap_or(usual.capacity),
        clock: read("FOREBAY_HOST_LATE")
            .filter(|&items| items > 0)
            .map_or(usual.clock, |items| Clock::Late(items as u32)),
        ..usual
    }
}

extern "C" fn at_exit() {
    IS_OVER.store(true, Ordering::Relaxed);
}

/// What the variable's text says of each name, as `name=value,name=value`.
fn table(variable: &str) -> HashMap<String, c_int> {
    let text = std::env::var(variable).unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.into(), value.parse().expect("a number"))).collect()
}

pub static ATTRIBUTES: LazyLock<HashMap<String, c_int>> = LazyLock::new(|| table("STANDIN_ATTRIBUTES"));
static REFUSALS: LazyLock<HashMap<String, c_int>> = LazyLock::new(|| table("STANDIN_REFUSE"));

/// The code with which this call is to fail, if it is.
fn refusal(name: &str) -> Option<Code> {
    static MADE: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
    if REFUSALS.is_empty() {
        return None;
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let count = made.entry(name.into()).or_default();
    *count += 1;
    REFUSALS.get(&format!("{name}:{count}")).copied()
}

/// Makes a call, if it may be made now.
pub fn answer(name: &str, needs: Needs, call: impl FnOnce(DeviceId) -> Answer) -> Code {
    let done = || {
        if IS_OVER.load(Ordering::Relaxed) {
            return Err(DEINITIALIZED);
        }
        if let Some(code) = refusal(name) {
            return Err(code);
        }
        if needs == Needs::nothing {
            return call(NOWHERE);
        }
        if PROCESS.load(Ordering::Relaxed) != std::process::id() {
            return Err(NOT_INITIALIZED);
        }
        if needs == Needs::always {
            return call(NOWHERE);
        }
        let here = current().ok_or(INVALID_CONTEXT)?;
        let captured = CAPTURES.load(Ordering::Relaxed) > 0 && CAPTURE_MODE.get() != RELAXED;
        if needs == Needs::uncaptured && captured {
            return Err(CAPTURE_UNSUPPORTED);
        }
        call(here)
    };
    done().err().unwrap_or(SUCCESS)
}

/// How many contexts are pushed on this thread.
pub fn depth() -> u64 {
    CONTEXTS.with_borrow(Vec::len) as u64
}

pub fn capture_mode() -> u32 {
    CAPTURE_MODE.get()
}

fn current() -> Option<DeviceId> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

// Handles of devices and contexts, such that none is mistaken for an index, a number of a NUMA node or of the other
// kind.
const FIRST_DEVICE: c_int = 70;
const FIRST_CONTEXT: usize = 0xc000;

pub fn handle_of(device: DeviceId) -> c_int {
    device.0 as c_int + FIRST_DEVICE
}

pub fn device_of(handle: c_int) -> Answer<DeviceId> {
    let index = u32::try_from(handle - FIRST_DEVICE).map_err(|_| INVALID_DEVICE)?;
    if index < host()?.device_count() { Ok(DeviceId(index)) } else { Err(INVALID_DEVICE) }
}

pub fn context_of(device: DeviceId) -> *mut c_void {
    std::ptr::without_provenance_mut(FIRST_CONTEXT + device.0 as usize)
}

/// The device of a context that was retained.
pub fn of_context(context: *mut c_void) -> Answer<DeviceId> {
    let index = context.addr().wrapping_sub(FIRST_CONTEXT);
    let retained = index < 64 && RETAINED.load(Ordering::Relaxed) >> index & 1 == 1;
    if retained { Ok(DeviceId(index as u32)) } else { Err(INVALID_CONTEXT) }
}

functions! {
    nothing cuInit(flags: u32) |_here| {
        assert_eq!(flags, 0);
        if std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|visible| visible.is_empty()) {
            return Err(NO_DEVICE);
        }
        if host().is_err() {
            reset(options())?;
        }
        if PROCESS.swap(std::process::id(), Ordering::Relaxed) == 0 {
            let failed = unsafe { libc::atexit(at_exit) };
            assert_eq!(failed, 0);
        }
        Ok(())
    }

    nothing cuGetErrorName(code: Code, name: *mut *const std::ffi::c_char) |_here| {
        let known: &CStr = match code {
            1 => c"CUDA_ERROR_INVALID_VALUE",
            2 => c"CUDA_ERROR_OUT_OF_MEMORY",
            3 => c"CUDA_ERROR_NOT_INITIALIZED",
            4 => c"CUDA_ERROR_DEINITIALIZED",
            100 => c"CUDA_ERROR_NO_DEVICE",
            101 => c"CUDA_ERROR_INVALID_DEVICE",
            201 => c"CUDA_ERROR_INVALID_CONTEXT",
            400 => c"CUDA_ERROR_INVALID_HANDLE",
            713 => c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
            801 => c"CUDA_ERROR_NOT_SUPPORTED",
            900 => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            999 => c"CUDA_ERROR_UNKNOWN",
            _ => return Err(crate::INVALID_VALUE),
        };
        put(name, known.as_ptr())
    }

    always cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) |_here| {
        let device = device_of(device)?;
        RETAINED.fetch_or(1 << device.0, Ordering::Relaxed);
        put(context, context_of(device))
    }

    always cuCtxGetCurrent(context: *mut *mut c_void) |_here| {
        put(context, current().map_or(std::ptr::null_mut(), context_of))
    }

    always cuCtxPushCurrent_v2(context: *mut c_void) |_here| {
        let device = of_context(context)?;
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(device));
        Ok(())
    }

    always cuCtxPopCurrent_v2(context: *mut *mut c_void) |_here| {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        put(context, context_of(popped))
    }

    context cuCtxGetDevice(device: *mut c_int) |here| {
        put(device, handle_of(here))
    }

    always cuThreadExchangeStreamCaptureMode(mode: *mut u32) |_here| {
        let wanted = unsafe { mode.read() };
        if wanted > RELAXED {
            return Err(UNKNOWN);
        }
        put(mode, CAPTURE_MODE.replace(wanted))
    }
}
