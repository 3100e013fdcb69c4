//! Virtual memory with all its options: places, access, hints.

use forebay::driver::host::Clock;
use forebay::driver::{Access, Driver, ErrorKind, Physical, PhysicalOptions, Place, Share, VirtualMemory};
use forebay::units::{Address, DeviceId};

use crate::{DEVICE, GRANULE, LEGACY, MIB, PEER, byte, chunk, driver, invalid, put, refused};

fn options(place: Place) -> PhysicalOptions {
    PhysicalOptions { place, share: Share::Fd, rdma: false }
}

#[test]
fn memory_of_the_host_counts_for_itself() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let (numa, current) = (options(Place::HostNuma(1)), options(Place::HostNumaCurrent));
    let handles: Vec<Physical> =
        [numa, current].map(|options| driver.create_with(DEVICE, 512 * MIB, &options).unwrap()).into();
    assert_eq!((driver.usage().bytes, driver.usage().host_bytes), (0, 1024 * MIB));
    assert_eq!(driver.memory_info(DEVICE).unwrap().free, 64 * MIB);
    assert_eq!(driver.granularity(DEVICE, &numa, true).unwrap(), GRANULE);
    handles.into_iter().for_each(|handle| driver.release(PEER, handle).unwrap());
    assert_eq!(driver.usage(), before);
    refused(driver.create_with(DEVICE, 1 << 41, &numa), ErrorKind::OutOfMemory, "of the host has 1.00 TiB free");
    refused(driver.create_with(DEVICE, GRANULE, &options(Place::Host)), ErrorKind::Unsupported, "NUMA node");
    refused(
        driver.create_with(DEVICE, GRANULE, &PhysicalOptions { share: Share::Fabric, ..numa }),
        ErrorKind::Unsupported,
        "Fabric",
    );
    invalid(driver.create_with(DEVICE, GRANULE, &options(Place::HostNuma(2))), "node 2 of 2");
    invalid(driver.create_with(DEVICE, GRANULE, &options(Place::Device(DeviceId(2)))), "device 2 of 2");
    invalid(driver.create_with(DEVICE, GRANULE + 4096, &numa), "not a multiple");
    assert_eq!(driver.usage(), before);
}

#[test]
fn everybody_has_the_access_that_he_was_given() {
    let driver = driver(Clock::Immediate);
    let (at, _) = chunk(&driver);
    let grant = |who, access| driver.grant_access(DEVICE, at, GRANULE, &[(who, access)]);
    let plain = driver.allocate(PEER, 4096).unwrap();
    let write = |device| driver.copy(device, at, plain, 512, LEGACY);
    let read = |device| driver.copy(device, plain, at, 512, LEGACY);
    invalid(read(PEER), "has no access");
    grant(Place::Device(PEER), Access::Read).unwrap();
    read(PEER).unwrap();
    invalid(write(PEER), "may read");
    invalid(driver.fill(PEER, at, 1, 512, LEGACY), "may read");
    write(DEVICE).unwrap();
    grant(Place::Device(PEER), Access::ReadWrite).unwrap();
    write(PEER).unwrap();
    grant(Place::Device(DEVICE), Access::None).unwrap();
    invalid(read(DEVICE), "has no access");
    read(PEER).unwrap();
    grant(Place::Device(PEER), Access::None).unwrap();
    invalid(read(PEER), "has no access");
    grant(Place::Device(DEVICE), Access::ReadWrite).unwrap();
    assert_eq!(byte(at), 0);
    refused(grant(Place::Host, Access::Read), ErrorKind::Unsupported, "the host cannot reach");
    invalid(grant(Place::Device(DeviceId(7)), Access::Read), "device 7 of 2");
    invalid(driver.grant_access(DEVICE, at, GRANULE, &[]), "nobody");
    read(DEVICE).unwrap();
}

#[test]
fn the_host_reaches_its_own_memory_and_devices_what_they_were_given() {
    let driver = driver(Clock::Immediate);
    let physical = driver.create_with(DEVICE, GRANULE, &options(Place::HostNuma(0))).unwrap();
    let at = driver.reserve_at(DEVICE, GRANULE, 0, Address(0)).unwrap();
    driver.map(DEVICE, at, GRANULE, physical).unwrap();
    let (host, device) = (Place::Host, Place::Device(DEVICE));
    driver.grant_access(DEVICE, at, GRANULE, &[(host, Access::ReadWrite)]).unwrap();
    put(at, 9);
    invalid(driver.fill(DEVICE, at, 1, 512, LEGACY), "has no access");
    driver.grant_access(DEVICE, at, GRANULE, &[(device, Access::ReadWrite), (host, Access::Read)]).unwrap();
    driver.fill(DEVICE, at.plus(512), 1, 512, LEGACY).unwrap();
    assert_eq!((byte(at), byte(at.plus(512))), (9, 1));
}

#[test]
fn work_queued_before_access_was_taken_is_stopped_when_it_runs() {
    let driver = driver(Clock::Manual);
    let (at, _) = chunk(&driver);
    driver.fill(DEVICE, at, 1, 512, LEGACY).unwrap();
    driver.grant_access(DEVICE, at, GRANULE, &[(Place::Device(DEVICE), Access::Read)]).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!((byte(at), driver.bad_accesses()), (0, 1));
}

#[test]
fn mappings_of_mixed_rights_change_together_or_not_at_all() {
    let driver = driver(Clock::Immediate);
    let at = driver.reserve(DEVICE, 3 * GRANULE).unwrap();
    for index in 0..3 {
        let physical = driver.create(DEVICE, GRANULE).unwrap();
        driver.map(DEVICE, at.plus(index * GRANULE), GRANULE, physical).unwrap();
    }
    driver.grant(DEVICE, at.plus(GRANULE), GRANULE).unwrap();
    driver.grant_access(DEVICE, at, 3 * GRANULE, &[(Place::Device(PEER), Access::Read)]).unwrap();
    driver.fill(DEVICE, at.plus(GRANULE), 1, GRANULE, LEGACY).unwrap();
    for index in [0, 2] {
        invalid(driver.fill(DEVICE, at.plus(index * GRANULE), 1, GRANULE, LEGACY), "has no access");
        assert_eq!(byte(at.plus(index * GRANULE)), 0);
    }
    let plain = driver.allocate(PEER, 8192).unwrap();
    driver.copy(PEER, plain, at.plus(2 * GRANULE - 4096), 8192, LEGACY).unwrap();
    assert_eq!((byte(plain), byte(plain.plus(4096))), (1, 0));
    let all = [(Place::Device(DEVICE), Access::ReadWrite)];
    invalid(driver.grant_access(DEVICE, at, 2 * GRANULE + 4096, &all), "whole handles");
    invalid(driver.fill(DEVICE, at, 1, 512, LEGACY), "has no access");
}

#[test]
fn a_hint_is_taken_where_it_is_free() {
    let driver = driver(Clock::Immediate);
    let first = driver.reserve_at(DEVICE, 4 * GRANULE, 0, Address(0)).unwrap();
    driver.unreserve(DEVICE, first, 4 * GRANULE).unwrap();
    assert_eq!(driver.reserve_at(DEVICE, GRANULE, 0, first).unwrap(), first);
    let elsewhere = driver.reserve_at(DEVICE, GRANULE, 0, first).unwrap();
    assert_ne!(elsewhere, first, "it is taken");
    for hint in [first.plus(4096), Address(u64::MAX), Address(GRANULE - 1), Address(!(GRANULE - 1))] {
        let at = driver.reserve_at(DEVICE, GRANULE, 0, hint).unwrap();
        assert!(at.0.is_multiple_of(GRANULE) && at != hint);
    }
    let aligned = driver.reserve_at(DEVICE, GRANULE, 64 * GRANULE, first.plus(GRANULE)).unwrap();
    assert!(aligned.0.is_multiple_of(64 * GRANULE));
    invalid(driver.reserve_at(DEVICE, GRANULE, 3 * GRANULE, Address(0)), "power of two");
    invalid(driver.reserve_at(DEVICE, GRANULE, 1 << 63, Address(0)), "more than there are addresses");
    invalid(driver.reserve_at(DEVICE, GRANULE + 1, 0, first), "not a multiple");
}

#[test]
fn devices_are_told_apart_and_reach_one_another() {
    let (driver, again) = (driver(Clock::Immediate), driver(Clock::Immediate));
    let uuid = |device| driver.device_uuid(device).unwrap();
    assert_ne!(uuid(DEVICE), uuid(PEER));
    assert_eq!(uuid(PEER), again.device_uuid(PEER).unwrap());
    assert!(driver.can_access_peer(DEVICE, PEER).unwrap() && driver.can_access_peer(DEVICE, DEVICE).unwrap());
    invalid(driver.can_access_peer(DEVICE, DeviceId(2)), "device 2 of 2");
}

#[test]
fn patterns_of_every_width_are_filled() {
    let driver = driver(Clock::Immediate);
    let at = driver.allocate(DEVICE, 4096).unwrap();
    let look = |from: u64| [0, 1, 2, 3].map(|step| byte(at.plus(from + step)));
    for (width, expected) in [(1, [0x44; 4]), (2, [0x44, 0x33, 0x44, 0x33]), (4, [0x44, 0x33, 0x22, 0x11])] {
        driver.fill(DEVICE, at, 0, 4096, LEGACY).unwrap();
        driver.fill_pattern(DEVICE, at.plus(8), 0x1122_3344, width, 16, LEGACY).unwrap();
        assert_eq!((look(4), look(8), look(20), look(24)), ([0; 4], expected, expected, [0; 4]), "width {width}");
    }
    for (to, width, bytes) in [(0, 3, 12), (0, 0, 8), (0, 8, 8), (2, 4, 8), (1, 2, 8), (0, 2, 7)] {
        assert!(driver.fill_pattern(DEVICE, at.plus(to), 0, width, bytes, LEGACY).is_err(), "{to} {width} {bytes}");
    }
}
