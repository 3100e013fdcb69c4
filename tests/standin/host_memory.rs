//! Page-locked and managed memory, and what a pointer points to.

use std::ffi::c_void;

use forebay::driver::{HostFlags, HostMemory, PointerInfo, PointerKind};
use forebay::units::Address;

use crate::state::host;
use crate::{Answer, INVALID_VALUE, NOT_REGISTERED, functions, put, said};

fn flags(bits: u32) -> Answer<HostFlags> {
    if bits & !7 != 0 {
        return Err(INVALID_VALUE);
    }
    Ok(HostFlags { portable: bits & 1 != 0, mapped: bits & 2 != 0, write_combined: bits & 4 != 0 })
}

fn address(at: *mut c_void) -> Address {
    Address(at.addr() as u64)
}

/// Writes an attribute of a pointer, as wide as cuda.h says.
fn attribute(known: &PointerInfo, number: u32, to: *mut c_void) -> Answer {
    let (start, bytes) = known.range.unwrap_or((Address(0), 0));
    match number {
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        2 => put(
            to.cast(),
            match known.kind {
                PointerKind::Unknown => 0u32,
                PointerKind::Host => 1,
                PointerKind::Device | PointerKind::Managed => 2,
            },
        ),
        // IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_CUDA_IPC_CAPABLE, RANGE_START_ADDR, RANGE_SIZE
        8 => put(to.cast(), known.kind == PointerKind::Managed),
        9 => put(to.cast(), known.device.map_or(-2, |device| device.0 as i32)),
        10 => put(to.cast(), known.legacy_ipc),
        11 => put(to.cast(), start.0),
        12 => put(to.cast(), bytes as usize),
        _ => Err(INVALID_VALUE),
    }
}

functions! {
    uncaptured cuMemHostAlloc(at: *mut *mut c_void, bytes: usize, bits: u32) |here| {
        let found = said(host()?.host_allocate(here, bytes as u64, flags(bits)?))?;
        put(at, found.0 as *mut c_void)
    }

    uncaptured cuMemFreeHost(at: *mut c_void) |here| {
        said(host()?.host_free(here, address(at)))
    }

    uncaptured cuMemHostRegister_v2(at: *mut c_void, bytes: usize, bits: u32) |here| {
        said(host()?.host_register(here, address(at), bytes as u64, flags(bits)?))
    }

    uncaptured cuMemHostUnregister(at: *mut c_void) |here| {
        host()?.host_unregister(here, address(at)).map_err(|_| NOT_REGISTERED)
    }

    uncaptured cuMemHostGetDevicePointer_v2(seen: *mut u64, at: *mut c_void, bits: u32) |here| {
        if bits != 0 {
            return Err(INVALID_VALUE);
        }
        put(seen, said(host()?.host_device_address(here, address(at)))?.0)
    }

    uncaptured cuMemAllocManaged(at: *mut u64, bytes: usize, bits: u32) |here| {
        // CU_MEM_ATTACH_GLOBAL
        if bits != 1 {
            return Err(INVALID_VALUE);
        }
        put(at, said(host()?.managed_allocate(here, bytes as u64))?.0)
    }

    uncaptured cuPointerGetAttributes(count: u32, numbers: *mut u32, to: *mut *mut c_void, at: u64) |here| {
        let known = said(host()?.pointer(here, Address(at)))?;
        (0..count as usize).try_for_each(|index| {
            let (number, to) = unsafe { (numbers.add(index).read(), to.add(index).read()) };
            attribute(&known, number, to)
        })
    }
}
