//! Faults and lies: every call can fail, and what is switched off.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::driver::host::{Call, Clock, HostDriver, HostOptions};
use forebay::driver::{
    Access, Blob, Driver, ErrorKind, Event, HostFlags, HostMemory, Physical, PhysicalOptions, Place, PoolAttribute,
    PoolHandle, PoolOptions, Pools, Result, Share, Sharing, VirtualMemory,
};
use forebay::units::{Address, StreamHandle};

use crate::kit::driver::held_back;
use crate::processes::Holder;
use crate::{DEVICE, GRANULE, LEGACY, PEER, byte, chunk, driver, shareable};

/// Something for every call to work on.
struct Things {
    driver: HostDriver,
    at: Address,
    physical: Physical,
    room: Address,
    plain: Address,
    stream: StreamHandle,
    event: Event,
    fabric: Physical,
    fabric_blob: Blob,
    fd: OwnedFd,
    pool: PoolHandle,
    doomed: PoolHandle,
    pool_fd: OwnedFd,
    imported: PoolHandle,
    block: Address,
    block_blob: Blob,
    pinned: Address,
    pages: Vec<u8>,
    holder: Holder,
    opened: Address,
}

impl Things {
    fn new() -> Self {
        let driver = HostDriver::new(held_back(shareable())).unwrap();
        let (at, physical) = chunk(&driver);
        let place = Place::Device(DEVICE);
        let options = PhysicalOptions { place, share: Share::Fabric, rdma: false };
        let fabric = driver.create_with(DEVICE, GRANULE, &options).unwrap();
        let options = PoolOptions { place: Some(place), managed: false, share: true, max_size: 0 };
        let pool = driver.pool_create(DEVICE, &options).unwrap();
        let pool_fd = driver.pool_export_fd(DEVICE, pool).unwrap();
        let block = driver.pool_allocate(DEVICE, pool, 4096, LEGACY).unwrap();
        let pages = vec![0; 16384];
        driver.host_register(DEVICE, Address(pages.as_ptr() as u64), 4096, HostFlags::default()).unwrap();
        let holder = Holder::start();
        Self {
            room: driver.reserve(DEVICE, GRANULE).unwrap(),
            plain: driver.allocate(DEVICE, 4096).unwrap(),
            stream: driver.stream_create(DEVICE).unwrap(),
            event: driver.event_create(DEVICE).unwrap(),
            fabric_blob: driver.export_fabric(DEVICE, fabric).unwrap(),
            fd: driver.export_fd(DEVICE, physical).unwrap(),
            doomed: driver.pool_create(DEVICE, &options).unwrap(),
            imported: driver.pool_import_fd(DEVICE, pool_fd.as_fd()).unwrap(),
            block_blob: driver.pool_export_pointer(DEVICE, block).unwrap(),
            pinned: driver.host_allocate(DEVICE, 4096, HostFlags::default()).unwrap(),
            opened: driver.ipc_open(DEVICE, &holder.blob).unwrap(),
            driver,
            at,
            physical,
            fabric,
            pool,
            pool_fd,
            block,
            pages,
            holder,
        }
    }

    /// Makes the call in a way that works, once.
    fn attempt(&self, call: Call) -> Result<()> {
        let &Self { ref driver, at, physical, room, plain, stream, event, fabric, pool, block, pinned, .. } = self;
        let place = Place::Device(DEVICE);
        let physical_options = PhysicalOptions { place, share: Share::Fd, rdma: true };
        let pool_options = PoolOptions { place: Some(place), managed: false, share: false, max_size: 0 };
        let pages = Address(self.pages.as_ptr() as u64);
        match call {
            Call::MemoryInfo => driver.memory_info(DEVICE).map(drop),
            Call::Reserve => driver.reserve(DEVICE, GRANULE).map(drop),
            Call::Unreserve => driver.unreserve(DEVICE, room, GRANULE),
            Call::Create => driver.create(DEVICE, GRANULE).map(drop),
            Call::Release => driver.release(DEVICE, physical),
            Call::Map => driver.map(DEVICE, room, GRANULE, physical),
            Call::Grant => driver.grant(DEVICE, at, GRANULE),
            Call::Unmap => driver.unmap(DEVICE, at, GRANULE),
            Call::Allocate => driver.allocate(DEVICE, 512).map(drop),
            Call::Free => driver.free(DEVICE, plain),
            Call::StreamCreate => driver.stream_create(DEVICE).map(drop),
            Call::StreamDestroy => driver.stream_destroy(DEVICE, stream),
            Call::StreamSynchronize => driver.stream_synchronize(DEVICE, stream),
            Call::StreamIdle => driver.stream_idle(DEVICE, stream).map(drop),
            Call::StreamIdentity => driver.stream_identity(DEVICE, stream).map(drop),
            Call::StreamCapture => driver.stream_capture(DEVICE, stream).map(drop),
            Call::EventCreate => driver.event_create(DEVICE).map(drop),
            Call::EventDestroy => driver.event_destroy(DEVICE, event),
            Call::EventRecord => driver.event_record(DEVICE, event, stream),
            Call::EventRecordAll => driver.event_record_all(DEVICE, event),
            Call::EventPassed => driver.event_passed(DEVICE, event).map(drop),
            Call::EventWait => driver.event_wait(DEVICE, event),
            Call::StreamWait => driver.stream_wait(DEVICE, stream, event),
            Call::Synchronize => driver.synchronize(DEVICE),
            Call::Copy => driver.copy(DEVICE, at, plain, 512, stream),
            Call::Fill => driver.fill(DEVICE, at, 1, 512, stream),
            Call::TrimDriverPools => driver.trim_driver_pools(DEVICE),
            Call::DeviceUuid => driver.device_uuid(DEVICE).map(drop),
            Call::FillPattern => driver.fill_pattern(DEVICE, at, 1, 4, 512, stream),
            Call::Granularity => driver.granularity(DEVICE, &physical_options, true).map(drop),
            Call::ReserveAt => driver.reserve_at(DEVICE, GRANULE, 0, Address(0)).map(drop),
            Call::CreateWith => driver.create_with(DEVICE, GRANULE, &physical_options).map(drop),
            Call::GrantAccess => driver.grant_access(DEVICE, at, GRANULE, &[(place, Access::ReadWrite)]),
            Call::CanAccessPeer => driver.can_access_peer(DEVICE, PEER).map(drop),
            Call::PoolDefault => driver.pool_default(DEVICE, Some(place), false).map(drop),
            Call::PoolCurrent => driver.pool_current(DEVICE, Some(place), false).map(drop),
            Call::PoolCreate => driver.pool_create(DEVICE, &pool_options).map(drop),
            Call::PoolDestroy => driver.pool_destroy(DEVICE, self.doomed),
            Call::PoolAttribute => driver.pool_attribute(DEVICE, pool, PoolAttribute::UsedHigh).map(drop),
            Call::PoolSetAttribute => driver.pool_set_attribute(DEVICE, pool, PoolAttribute::ReleaseThreshold, 1),
            Call::PoolAccess => driver.pool_access(DEVICE, pool, place).map(drop),
            Call::PoolSetAccess => driver.pool_set_access(DEVICE, pool, Place::Device(PEER), Access::Read),
            Call::PoolTrim => driver.pool_trim(DEVICE, pool, 0),
            Call::PoolAllocate => driver.pool_allocate(DEVICE, pool, 512, stream).map(drop),
            Call::PoolFree => driver.pool_free(DEVICE, block, stream),
            Call::PoolExportFd => driver.pool_export_fd(DEVICE, pool).map(drop),
            Call::PoolImportFd => driver.pool_import_fd(DEVICE, self.pool_fd.as_fd()).map(drop),
            Call::PoolExportPointer => driver.pool_export_pointer(DEVICE, block).map(drop),
            Call::PoolImportPointer => driver.pool_import_pointer(DEVICE, self.imported, &self.block_blob).map(drop),
            Call::HostAllocate => driver.host_allocate(DEVICE, 512, HostFlags::default()).map(drop),
            Call::HostFree => driver.host_free(DEVICE, pinned),
            Call::HostRegister => driver.host_register(DEVICE, pages.plus(8192), 4096, HostFlags::default()),
            Call::HostUnregister => driver.host_unregister(DEVICE, pages),
            Call::HostDeviceAddress => driver.host_device_address(DEVICE, pinned).map(drop),
            Call::ManagedAllocate => driver.managed_allocate(DEVICE, 512).map(drop),
            Call::Pointer => driver.pointer(DEVICE, at).map(drop),
            Call::ExportFd => driver.export_fd(DEVICE, physical).map(drop),
            Call::ImportFd => driver.import_fd(DEVICE, self.fd.as_fd()).map(drop),
            Call::ExportFabric => driver.export_fabric(DEVICE, fabric).map(drop),
            Call::ImportFabric => driver.import_fabric(DEVICE, &self.fabric_blob).map(drop),
            Call::IpcExport => driver.ipc_export(DEVICE, plain).map(drop),
            Call::IpcOpen => driver.ipc_open(DEVICE, &self.holder.blob).map(drop),
            Call::IpcClose => driver.ipc_close(DEVICE, self.opened),
        }
    }
}

#[test]
fn every_call_can_be_made_to_fail_and_then_changes_nothing() {
    let things = Things::new();
    let driver = &things.driver;
    let before = driver.usage();
    for call in Call::ALL {
        let calls = driver.calls(call);
        driver.fail(call, 1);
        let error = things.attempt(call).expect_err("the planned fault");
        assert_eq!((error.kind, error.call), (ErrorKind::Failed, call.name()), "{error}");
        assert_eq!(driver.calls(call), calls + 1, "{call:?}");
    }
    assert_eq!(driver.usage(), before);
    assert_eq!(driver.queued(DEVICE, things.stream).unwrap(), 0, "a failed call queued something");
    // The faults are used up. What takes things apart comes last, in the order that the rules ask for.
    let apart = [
        Call::Unreserve,
        Call::Unmap,
        Call::Release,
        Call::Free,
        Call::PoolFree,
        Call::PoolDestroy,
        Call::HostFree,
        Call::HostUnregister,
        Call::IpcClose,
        Call::StreamDestroy,
        Call::EventDestroy,
    ];
    for call in Call::ALL.into_iter().filter(|call| !apart.contains(call) && *call != Call::Map).chain(apart) {
        things.attempt(call).unwrap_or_else(|error| panic!("{call:?} after its fault: {error}"));
    }
}

#[test]
fn the_nth_call_fails_with_the_chosen_error() {
    let driver = driver(Clock::Immediate);
    driver.fail_with(Call::Create, 3, ErrorKind::OutOfMemory);
    let kinds: Vec<_> = (0..4).map(|_| driver.create(DEVICE, GRANULE).map_err(|error| error.kind)).collect();
    assert_eq!(kinds.iter().map(|kind| kind.is_ok()).collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(kinds[2], Err(ErrorKind::OutOfMemory));
    driver.fail(Call::Create, 1);
    driver.clear_faults();
    driver.create(DEVICE, GRANULE).unwrap();
}

#[test]
fn a_missing_wait_shows_in_the_data() {
    for lie in [false, true] {
        let driver = driver(Clock::Manual);
        let (at, _) = chunk(&driver);
        let (writer, reader) = (driver.stream_create(DEVICE).unwrap(), driver.stream_create(DEVICE).unwrap());
        let event = driver.event_create(DEVICE).unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&seen);
        driver.lie_ignore_waits(lie);
        driver.fill(DEVICE, at, 7, 512, writer).unwrap();
        driver.event_record(DEVICE, event, writer).unwrap();
        driver.stream_wait(DEVICE, reader, event).unwrap();
        driver.host_call(DEVICE, reader, Box::new(move || note.store(byte(at).into(), Ordering::Relaxed))).unwrap();
        driver.stream_synchronize(DEVICE, reader).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), if lie { 0 } else { 7 });
    }
}

#[test]
fn events_can_be_made_to_lie() {
    let driver = driver(Clock::Manual);
    let event = driver.event_create(DEVICE).unwrap();
    driver.event_record(DEVICE, event, StreamHandle::LEGACY).unwrap();
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    driver.lie_events_pass(true);
    assert!(driver.event_passed(DEVICE, event).unwrap());
    driver.lie_events_pass(false);
    assert!(!driver.event_passed(DEVICE, event).unwrap());
}

#[test]
fn switched_off_features_are_unsupported() {
    let bare = HostOptions { vmm: false, stream_identity: false, driver_pools: false, ..HostOptions::default() };
    let bare = HostOptions { device_events: false, managed: false, legacy_ipc: false, ..bare };
    let driver = HostDriver::new(bare).unwrap();
    let place = Place::Device(DEVICE);
    let options = PhysicalOptions { place, share: Share::None, rdma: false };
    unsupported(driver.reserve(DEVICE, GRANULE));
    unsupported(driver.create(DEVICE, GRANULE));
    unsupported(driver.create_with(DEVICE, GRANULE, &options));
    unsupported(driver.granularity(DEVICE, &options, false));
    unsupported(driver.stream_identity(DEVICE, LEGACY));
    unsupported(driver.trim_driver_pools(DEVICE));
    unsupported(driver.pool_default(DEVICE, Some(place), false));
    unsupported(driver.managed_allocate(DEVICE, 512));
    unsupported(driver.ipc_export(DEVICE, driver.allocate(DEVICE, 512).unwrap()));
    unsupported(driver.event_record_all(DEVICE, driver.event_create(DEVICE).unwrap()));
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(!found.posix_fd && !found.rdma && !found.host_numa && !found.pool_fd && !found.managed_pools);
    for wrong in [
        HostOptions { devices: 0, ..bare },
        HostOptions { devices: 65, ..bare },
        HostOptions { numa_nodes: 0, ..bare },
        HostOptions { granularity: 3 << 20, ..bare },
        HostOptions { granularity: 512, ..bare },
    ] {
        assert_eq!(HostDriver::new(wrong).unwrap_err().kind, ErrorKind::Invalid);
    }
}

#[test]
fn kinds_of_memory_can_be_switched_off_one_by_one() {
    let bare = HostOptions { posix_fd: false, rdma: false, host_numa: false, pool_fd: false, ..HostOptions::default() };
    let driver = HostDriver::new(HostOptions { host_pools: false, managed_pools: false, ..bare }).unwrap();
    let place = Place::Device(DEVICE);
    let create = |place, share, rdma| driver.create_with(DEVICE, GRANULE, &PhysicalOptions { place, share, rdma });
    unsupported(create(place, Share::Fd, false));
    unsupported(create(place, Share::Fabric, false));
    unsupported(create(place, Share::None, true));
    unsupported(create(Place::HostNuma(0), Share::None, false));
    create(place, Share::None, false).unwrap();
    // The shared pool's memory asks for nothing that is not there.
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    unsupported(driver.export_fd(DEVICE, physical));
    let create =
        |place, managed, share| driver.pool_create(DEVICE, &PoolOptions { place, managed, share, max_size: 0 });
    unsupported(create(Some(place), false, true));
    unsupported(create(Some(Place::Host), false, false));
    unsupported(create(Some(Place::HostNuma(0)), false, false));
    unsupported(create(None, true, false));
    create(Some(place), false, false).unwrap();
    assert_eq!(driver.capabilities(DEVICE).unwrap().numa_node, None);
}

#[track_caller]
fn unsupported<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::Unsupported);
}
