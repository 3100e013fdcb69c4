//! Every call of the driver, once.

use std::os::fd::AsFd;

use forebay::driver::{
    Access, Driver, Event, HostFlags, Physical, PhysicalOptions, Place, PoolAttribute, PoolHandle, PoolOptions, Share,
};
use forebay::units::{Address, DeviceId};

use crate::{DEVICE, MIB, STREAM};

pub const POOL: PoolHandle = PoolHandle(0xb2);

/// Calls of libcuda that a capture in another mode could forbid, on one thread or on all.
pub const RELAXED: [&str; 39] = [
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuEventSynchronize",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuCtxRecordEvent",
    "cuMemCreate",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemAddressReserve",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuMemAllocManaged",
    "cuPointerGetAttributes",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolGetAccess",
    "cuMemPoolSetAccess",
    "cuMemPoolTrimTo",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolExportPointer",
    "cuMemPoolImportPointer",
    "cuMemGetDefaultMemPool",
];

/// Calls in whichever context is current, with the mode that they need; the caller's is as good for most.
pub const ANYWHERE: [(&str, Option<usize>); 5] = [
    ("cuEventRecord", None),
    ("cuStreamIsCapturing", None),
    ("cuStreamWaitEvent", None),
    ("cuStreamGetId", None),
    ("cuEventQuery", Some(2)),
];

/// Every call that gives something back.
pub fn give_back(driver: &dyn Driver) -> Vec<(&'static str, forebay::driver::Result<()>)> {
    vec![
        ("unreserve", driver.unreserve(DEVICE, Address(2 * MIB), 2 * MIB)),
        ("release", driver.release(DEVICE, Physical(0x77))),
        ("unmap", driver.unmap(DEVICE, Address(2 * MIB), 2 * MIB)),
        ("free", driver.free(DEVICE, Address(0xa000))),
        ("stream_destroy", driver.stream_destroy(DEVICE, STREAM)),
        ("event_destroy", driver.event_destroy(DEVICE, Event(0xe000))),
        ("trim_driver_pools", driver.trim_driver_pools(DEVICE)),
        ("host_free", driver.host_free(DEVICE, Address(0xb000))),
        ("host_unregister", driver.host_unregister(DEVICE, Address(0xb000))),
        ("pool_destroy", driver.pool_destroy(DEVICE, POOL)),
        ("pool_free", driver.pool_free(DEVICE, Address(0xa100), STREAM)),
        ("pool_trim", driver.pool_trim(DEVICE, POOL, 0)),
        ("ipc_close", driver.ipc_close(DEVICE, Address(0xf000))),
    ]
}

/// Every call that asks for something.
pub fn ask(driver: &dyn Driver) -> Vec<(&'static str, forebay::driver::Result<()>)> {
    let (at, bytes, event) = (Address(2 * MIB), 2 * MIB, Event(0xe000));
    let (place, stdin) = (Place::Device(DEVICE), std::io::stdin());
    let physical = PhysicalOptions { place, share: Share::Fd, rdma: true };
    let pool = PoolOptions { place: Some(place), managed: false, share: true, max_size: 0 };
    vec![
        ("memory_info", driver.memory_info(DEVICE).map(drop)),
        ("reserve", driver.reserve(DEVICE, bytes).map(drop)),
        ("create", driver.create(DEVICE, bytes).map(drop)),
        ("map", driver.map(DEVICE, at, bytes, Physical(0x77))),
        ("grant", driver.grant(DEVICE, at, bytes)),
        ("allocate", driver.allocate(DEVICE, bytes).map(drop)),
        ("stream_create", driver.stream_create(DEVICE).map(drop)),
        ("stream_synchronize", driver.stream_synchronize(DEVICE, STREAM)),
        ("stream_idle", driver.stream_idle(DEVICE, STREAM).map(drop)),
        ("stream_identity", driver.stream_identity(DEVICE, STREAM).map(drop)),
        ("stream_capture", driver.stream_capture(DEVICE, STREAM).map(drop)),
        ("event_create", driver.event_create(DEVICE).map(drop)),
        ("event_record", driver.event_record(DEVICE, event, STREAM)),
        ("event_record_all", driver.event_record_all(DEVICE, event)),
        ("event_passed", driver.event_passed(DEVICE, event).map(drop)),
        ("event_wait", driver.event_wait(DEVICE, event)),
        ("stream_wait", driver.stream_wait(DEVICE, STREAM, event)),
        ("synchronize", driver.synchronize(DEVICE)),
        ("copy", driver.copy(DEVICE, at, Address(0xa000), 8, STREAM)),
        ("fill", driver.fill(DEVICE, at, 1, 8, STREAM)),
        ("fill_pattern 2", driver.fill_pattern(DEVICE, at, 1, 2, 8, STREAM)),
        ("fill_pattern 4", driver.fill_pattern(DEVICE, at, 1, 4, 8, STREAM)),
        ("device_uuid", driver.device_uuid(DEVICE).map(drop)),
        ("can_access_peer", driver.can_access_peer(DEVICE, DeviceId(1)).map(drop)),
        ("granularity", driver.granularity(DEVICE, &physical, true).map(drop)),
        ("reserve_at", driver.reserve_at(DEVICE, bytes, 0, Address(0)).map(drop)),
        ("create_with", driver.create_with(DEVICE, bytes, &physical).map(drop)),
        ("grant_access", driver.grant_access(DEVICE, at, bytes, &[(place, Access::Read)])),
        ("export_fd", driver.export_fd(DEVICE, Physical(0x77)).map(drop)),
        ("import_fd", driver.import_fd(DEVICE, stdin.as_fd()).map(drop)),
        ("export_fabric", driver.export_fabric(DEVICE, Physical(0x77)).map(drop)),
        ("import_fabric", driver.import_fabric(DEVICE, &[0; 64]).map(drop)),
        ("ipc_export", driver.ipc_export(DEVICE, Address(0xa000)).map(drop)),
        ("ipc_open", driver.ipc_open(DEVICE, &[0; 64]).map(drop)),
        ("host_allocate", driver.host_allocate(DEVICE, 1, HostFlags::default()).map(drop)),
        ("host_register", driver.host_register(DEVICE, Address(0xb000), 1, HostFlags::default())),
        ("host_device_address", driver.host_device_address(DEVICE, Address(0xb000)).map(drop)),
        ("managed_allocate", driver.managed_allocate(DEVICE, 1).map(drop)),
        ("pointer", driver.pointer(DEVICE, Address(0xa000)).map(drop)),
        ("pool_default", driver.pool_default(DEVICE, Some(place), false).map(drop)),
        ("pool_current", driver.pool_current(DEVICE, Some(place), false).map(drop)),
        ("pool_default of the host", driver.pool_default(DEVICE, Some(Place::Host), false).map(drop)),
        ("pool_current of managed memory", driver.pool_current(DEVICE, None, true).map(drop)),
        ("pool_create", driver.pool_create(DEVICE, &pool).map(drop)),
        ("pool_attribute", driver.pool_attribute(DEVICE, POOL, PoolAttribute::UsedCurrent).map(drop)),
        ("pool_set_attribute", driver.pool_set_attribute(DEVICE, POOL, PoolAttribute::ReleaseThreshold, 1)),
        ("pool_access", driver.pool_access(DEVICE, POOL, place).map(drop)),
        ("pool_set_access", driver.pool_set_access(DEVICE, POOL, place, Access::ReadWrite)),
        ("pool_allocate", driver.pool_allocate(DEVICE, POOL, 1, STREAM).map(drop)),
        ("pool_export_fd", driver.pool_export_fd(DEVICE, POOL).map(drop)),
        ("pool_import_fd", driver.pool_import_fd(DEVICE, stdin.as_fd()).map(drop)),
        ("pool_export_pointer", driver.pool_export_pointer(DEVICE, Address(0xa100)).map(drop)),
        ("pool_import_pointer", driver.pool_import_pointer(DEVICE, POOL, &[0; 64]).map(drop)),
    ]
}
