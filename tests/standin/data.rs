//! Plain memory, and what streams do with any memory.

use std::ffi::c_void;

use forebay::driver::{Driver, Sharing};
use forebay::units::Address;

use crate::state::host;
use crate::streams::{handle, owner};
use crate::{Answer, INVALID_VALUE, functions, put, said};

/// The only flag of `cuIpcOpenMemHandle`, which it insists on.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn fill(here: forebay::units::DeviceId, to: u64, value: u32, width: u32, count: usize, stream: *mut c_void) -> Answer {
    let (host, device) = (host()?, owner(here, stream)?);
    said(host.fill_pattern(device, Address(to), value, width, count as u64 * u64::from(width), handle(stream)))
}

functions! {
    uncaptured cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |here| {
        let info = said(host()?.memory_info(here))?;
        put(free, info.free as usize)?;
        put(total, info.total as usize)
    }

    uncaptured cuMemAlloc_v2(at: *mut u64, bytes: usize) |here| {
        put(at, said(host()?.allocate(here, bytes as u64))?.0)
    }

    uncaptured cuMemFree_v2(at: u64) |here| {
        said(host()?.free(here, Address(at)))
    }

    context cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: *mut c_void) |here| {
        let device = owner(here, stream)?;
        said(host()?.copy(device, Address(to), Address(from), bytes as u64, handle(stream)))
    }

    context cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) |here| {
        fill(here, to, value.into(), 1, count, stream)
    }

    context cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut c_void) |here| {
        fill(here, to, value.into(), 2, count, stream)
    }

    context cuMemsetD32Async(to: u64, value: u32, count: usize, stream: *mut c_void) |here| {
        fill(here, to, value, 4, count, stream)
    }

    uncaptured cuIpcGetMemHandle(blob: *mut [u8; 64], at: u64) |here| {
        put(blob, said(host()?.ipc_export(here, Address(at)))?)
    }

    uncaptured cuIpcOpenMemHandle_v2(at: *mut u64, blob: Blob, flags: u32) |here| {
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(INVALID_VALUE);
        }
        put(at, said(host()?.ipc_open(here, &blob.0))?.0)
    }

    uncaptured cuIpcCloseMemHandle(at: u64) |here| {
        said(host()?.ipc_close(here, Address(at)))
    }
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
pub struct Blob([u8; 64]);
