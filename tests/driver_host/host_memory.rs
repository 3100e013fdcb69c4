//! Page-locked, registered and managed memory, and what is known of pointers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::driver::host::Clock;
use forebay::driver::{
    Driver, ErrorKind, HostFlags, HostMemory, PhysicalOptions, Place, PointerInfo, PointerKind, PoolOptions, Pools,
    Share, VirtualMemory,
};
use forebay::units::Address;

use crate::{DEVICE, GRANULE, LEGACY, MIB, PEER, byte, chunk, driver, invalid, put, refused};

const FLAGS: HostFlags = HostFlags { portable: false, mapped: false, write_combined: false };

#[test]
fn page_locked_memory_is_the_hosts_and_every_devices() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let at = driver.host_allocate(DEVICE, 10_000, HostFlags { mapped: true, portable: true, ..FLAGS }).unwrap();
    assert_eq!((driver.usage().host_allocations, driver.usage().host_bytes), (1, 12_288));
    put(at, 1);
    driver.fill(PEER, at.plus(1), 2, 9_999, LEGACY).unwrap();
    assert_eq!((byte(at), byte(at.plus(9_999))), (1, 2));
    assert_eq!(driver.host_device_address(PEER, at.plus(5)).unwrap(), at.plus(5));
    invalid(driver.fill(DEVICE, at, 0, 12_289, LEGACY), "is not inside");
    invalid(driver.free(DEVICE, at), "not the start of a plain");
    invalid(driver.host_free(DEVICE, at.plus(4096)), "not the start of a page-locked");
    invalid(driver.host_allocate(DEVICE, 0, FLAGS), "0 bytes");
    refused(driver.host_allocate(DEVICE, 2 << 40, FLAGS), ErrorKind::OutOfMemory, "the host has");
    driver.host_free(DEVICE, at).unwrap();
    invalid(driver.host_free(DEVICE, at), "not the start of a page-locked");
    invalid(driver.host_device_address(DEVICE, at), "neither page-locked nor registered");
    assert_eq!(driver.usage(), before);
}

#[test]
fn freeing_page_locked_memory_waits_for_all_devices() {
    let driver = driver(Clock::Manual);
    let at = driver.host_allocate(DEVICE, 4096, FLAGS).unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    let other = driver.stream_create(PEER).unwrap();
    driver.host_call(PEER, other, Box::new(move || flag.store(byte(at) == 0, Ordering::Relaxed))).unwrap();
    invalid(driver.host_free(DEVICE, at.plus(1)), "not the start");
    assert!(!ran.load(Ordering::Relaxed), "a refused call waits for nothing");
    driver.host_free(DEVICE, at).unwrap();
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn registering_takes_the_programs_memory_once() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let pages = vec![0u8; 8 * 4096];
    let at = Address(pages.as_ptr() as u64);
    let register = |from: u64, bytes| driver.host_register(DEVICE, at.plus(from), bytes, FLAGS);
    register(4096, 8192).unwrap();
    assert_eq!(driver.usage().registrations, 1);
    for (from, bytes) in [(4096, 8192), (0, 4097), (12_287, 1), (8000, 100), (0, 32_768)] {
        invalid(register(from, bytes), "registered already");
    }
    register(0, 4096).unwrap();
    register(12_288, 4096).unwrap();
    assert_eq!(driver.host_device_address(DEVICE, at.plus(5000)).unwrap(), at.plus(5000));
    invalid(driver.host_unregister(DEVICE, at.plus(5000)), "not the start");
    for from in [0, 4096, 12_288] {
        driver.host_unregister(DEVICE, at.plus(from)).unwrap();
    }
    invalid(driver.host_unregister(DEVICE, at), "not the start");
    assert_eq!(driver.usage(), before);
}

#[test]
fn what_is_not_the_programs_memory_cannot_be_registered() {
    let driver = driver(Clock::Immediate);
    let (plain, (mapped, _)) = (driver.allocate(DEVICE, 4096).unwrap(), chunk(&driver));
    let before = driver.usage();
    let byte = Address((&raw const driver) as u64);
    let register = |at, bytes| driver.host_register(DEVICE, at, bytes, FLAGS);
    invalid(register(Address(0), 4096), "no range");
    invalid(register(byte, 0), "no range");
    invalid(register(Address(u64::MAX), 4096), "no range");
    invalid(register(Address(u64::MAX - 10), 5), "not all mapped");
    invalid(register(Address(1 << 46), 4096), "not all mapped");
    invalid(register(plain, 4096), "driver's own");
    invalid(register(mapped, 4096), "driver's own");
    invalid(driver.host_register(DEVICE, byte, 1, HostFlags { write_combined: true, ..FLAGS }), "write-combined");
    assert_eq!(driver.usage(), before);
}

#[test]
fn managed_memory_may_be_more_than_a_device_has() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let at = driver.managed_allocate(DEVICE, 200 * MIB).unwrap();
    assert_eq!((driver.usage().managed, driver.usage().bytes, driver.usage().host_bytes), (1, 0, 200 * MIB));
    driver.fill(PEER, at, 1, 200 * MIB, LEGACY).unwrap();
    assert_eq!(byte(at.plus(200 * MIB - 1)), 1);
    invalid(driver.managed_allocate(DEVICE, 0), "0 bytes");
    invalid(driver.host_free(DEVICE, at), "not the start of a page-locked");
    driver.free(DEVICE, at).unwrap();
    invalid(driver.free(DEVICE, at), "not the start of a plain");
    assert_eq!(driver.usage(), before);
}

#[test]
fn pointers_are_known_for_what_they_are() {
    let driver = driver(Clock::Immediate);
    let look = |at: Address| driver.pointer(DEVICE, at).unwrap();
    let info = |kind, device, at, bytes| PointerInfo { kind, device, range: Some((at, bytes)), legacy_ipc: false };
    let plain = driver.allocate(PEER, 8192).unwrap();
    let expected = PointerInfo { legacy_ipc: true, ..info(PointerKind::Device, Some(PEER), plain, 8192) };
    assert_eq!(look(plain.plus(8191)), expected);
    let (mapped, _) = chunk(&driver);
    assert_eq!(look(mapped.plus(5)), info(PointerKind::Device, Some(DEVICE), mapped, GRANULE));
    let pinned = driver.host_allocate(DEVICE, 4096, FLAGS).unwrap();
    assert_eq!(look(pinned.plus(1)), info(PointerKind::Host, None, pinned, 4096));
    let managed = driver.managed_allocate(DEVICE, 4096).unwrap();
    assert_eq!(look(managed), info(PointerKind::Managed, None, managed, 4096));
    let pages = [0u8; 100];
    let ours = Address(pages.as_ptr() as u64);
    let unknown = PointerInfo { kind: PointerKind::Unknown, device: None, range: None, legacy_ipc: false };
    assert_eq!(look(ours), unknown);
    driver.host_register(DEVICE, ours, 100, FLAGS).unwrap();
    assert_eq!(look(ours.plus(99)), info(PointerKind::Host, None, ours, 100));
    assert_eq!(look(ours.plus(100)), unknown);
    for (place, managed, kind, device) in [
        (Place::Device(PEER), false, PointerKind::Device, Some(PEER)),
        (Place::HostNuma(0), false, PointerKind::Host, None),
        (Place::Device(PEER), true, PointerKind::Managed, None),
    ] {
        let options = PoolOptions { place: Some(place), managed, share: false, max_size: 0 };
        let pool = driver.pool_create(DEVICE, &options).unwrap();
        let at = driver.pool_allocate(DEVICE, pool, 4096, LEGACY).unwrap();
        assert_eq!(look(at), info(kind, device, at, 4096));
        driver.pool_free(DEVICE, at, LEGACY).unwrap();
        assert_eq!(look(at), unknown);
    }
    let options = PhysicalOptions { place: Place::HostNuma(0), share: Share::None, rdma: false };
    let room = driver.reserve(DEVICE, GRANULE).unwrap();
    assert_eq!(look(room), unknown);
    let physical = driver.create_with(DEVICE, GRANULE, &options).unwrap();
    driver.map(DEVICE, room, GRANULE, physical).unwrap();
    assert_eq!(look(room), info(PointerKind::Host, None, room, GRANULE));
    assert_eq!(look(Address(0)), unknown);
}
