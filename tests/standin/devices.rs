//! What each device is and can do.

use std::ffi::c_int;

use forebay::driver::{Driver, VirtualMemory};

use crate::state::{ATTRIBUTES, device_of, handle_of, host};
use crate::{Answer, INVALID_DEVICE, INVALID_VALUE, functions, put, said};

fn attribute(number: c_int, device: c_int) -> Answer<c_int> {
    let can = said(host()?.capabilities(device_of(device)?))?;
    if let Some(&value) = ATTRIBUTES.get(&number.to_string()) {
        return Ok(value);
    }
    Ok(match number {
        83 => can.managed.into(),
        89 => can.managed_pools.into(),
        102 => can.vmm.into(),
        103 => can.posix_fd.into(),
        110 => can.rdma.into(),
        115 => can.driver_pools.into(),
        119 => can.pool_fd.into(),
        128 => can.fabric.into(),
        134 => can.numa_node.map_or(-1, |node| node as c_int),
        141 => can.host_numa.into(),
        142 | 144 => can.host_pools.into(),
        // CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        125 => can.legacy_ipc.into(),
        _ => return Err(INVALID_VALUE),
    })
}

pub fn version() -> c_int {
    let told = std::env::var("STANDIN_VERSION").ok();
    told.map_or(13_000, |version| version.parse().expect("a version"))
}

functions! {
    always cuDriverGetVersion(to: *mut c_int) |_here| {
        put(to, version())
    }

    always cuDeviceGetCount(count: *mut c_int) |_here| {
        put(count, host()?.device_count() as c_int)
    }

    always cuDeviceGet(device: *mut c_int, ordinal: c_int) |_here| {
        let index = u32::try_from(ordinal).ok().filter(|&index| index < host().map_or(0, |host| host.device_count()));
        put(device, handle_of(forebay::units::DeviceId(index.ok_or(INVALID_DEVICE)?)))
    }

    always cuDeviceGetAttribute(value: *mut c_int, number: c_int, device: c_int) |_here| {
        put(value, attribute(number, device)?)
    }

    always cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) |_here| {
        put(uuid, said(host()?.device_uuid(device_of(device)?))?)
    }

    always cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |_here| {
        put(uuid, said(host()?.device_uuid(device_of(device)?))?)
    }

    always cuDeviceCanAccessPeer(answer: *mut c_int, reaching: c_int, reached: c_int) |_here| {
        put(answer, said(host()?.can_access_peer(device_of(reached)?, device_of(reaching)?))?.into())
    }
}
