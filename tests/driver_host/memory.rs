//! Memory: the capacity, and what CUDA refuses.

use forebay::driver::host::Clock;
use forebay::driver::{Driver, ErrorKind, Physical};
use forebay::units::{Address, DeviceId, StreamHandle};

use crate::{DEVICE, GRANULE, MIB, byte, chunk, driver, invalid};

#[test]
fn the_capacity_counts_what_is_held_or_mapped() {
    let driver = driver(Clock::Immediate);
    let free = || driver.memory_info(DEVICE).unwrap().free;
    let at = driver.reserve(DEVICE, 64 * MIB).unwrap();
    let most = driver.create(DEVICE, 60 * MIB).unwrap();
    driver.map(DEVICE, at, 60 * MIB, most).unwrap();
    driver.release(DEVICE, most).unwrap();
    assert_eq!(free(), 4 * MIB, "still mapped");
    let error = driver.create(DEVICE, 6 * MIB).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.detail.contains("6.00 MiB") && error.detail.contains("4.00 MiB"), "{error}");
    assert_eq!(driver.allocate(DEVICE, 5 * MIB).unwrap_err().kind, ErrorKind::OutOfMemory);
    assert_eq!(free(), 4 * MIB, "a refused call counts nothing");
    driver.create(DeviceId(1), 64 * MIB).unwrap();
    driver.unmap(DEVICE, at, 60 * MIB).unwrap();
    assert_eq!(free(), 64 * MIB);
}

#[test]
fn what_cuda_refuses_is_refused_and_changes_nothing() {
    let driver = driver(Clock::Immediate);
    let (at, physical) = chunk(&driver);
    let spare = driver.create(DEVICE, 2 * GRANULE).unwrap();
    let room = driver.reserve(DEVICE, 3 * GRANULE).unwrap();
    driver.map(DEVICE, room, 2 * GRANULE, spare).unwrap();
    let tail = room.plus(2 * GRANULE);
    let before = driver.usage();
    invalid(driver.map(DEVICE, at, GRANULE, physical), "mapped already");
    invalid(driver.map(DEVICE, tail, 2 * GRANULE, spare), "not inside a reservation");
    invalid(driver.map(DEVICE, Address(GRANULE), GRANULE, physical), "not inside a reservation");
    invalid(driver.map(DEVICE, tail, GRANULE, spare), "asked to map");
    invalid(driver.map(DEVICE, tail.plus(4096), GRANULE, physical), "not a multiple");
    invalid(driver.map(DEVICE, tail, GRANULE, Physical(999)), "not held");
    invalid(driver.grant(DEVICE, room, GRANULE), "whole handles only");
    invalid(driver.grant(DEVICE, room, 3 * GRANULE), "no mapping begins");
    invalid(driver.unmap(DEVICE, room, GRANULE), "whole handles only");
    invalid(driver.unmap(DEVICE, room.plus(GRANULE), GRANULE), "no mapping begins");
    invalid(driver.unmap(DEVICE, room, 0), "whole handles only");
    invalid(driver.unreserve(DEVICE, room, 3 * GRANULE), "still mapped");
    invalid(driver.unreserve(DEVICE, at, 2 * GRANULE), "was reserved with");
    invalid(driver.unreserve(DEVICE, room.plus(GRANULE), GRANULE), "not the start");
    invalid(driver.release(DeviceId(1), physical), "belongs to device 0");
    invalid(driver.free(DEVICE, at), "not the start of a plain");
    invalid(driver.create(DEVICE, GRANULE + 1), "not a multiple");
    assert_eq!(driver.usage(), before);
    driver.release(DEVICE, spare).unwrap();
    invalid(driver.release(DEVICE, spare), "released before");
    driver.unmap(DEVICE, room, 2 * GRANULE).unwrap();
    driver.unreserve(DEVICE, room, 3 * GRANULE).unwrap();
}

#[test]
fn memory_without_access_cannot_be_touched() {
    let driver = driver(Clock::Manual);
    let at = driver.reserve(DEVICE, GRANULE).unwrap();
    let fill = |device| driver.fill(device, at, 1, 512, StreamHandle::LEGACY);
    invalid(fill(DEVICE), "is not mapped");
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, at, GRANULE, physical).unwrap();
    invalid(fill(DEVICE), "no access");
    driver.grant(DEVICE, at, GRANULE).unwrap();
    invalid(fill(DeviceId(1)), "no access");
    invalid(driver.fill(DEVICE, at.plus(GRANULE - 256), 1, 512, StreamHandle::LEGACY), "is not mapped");
    fill(DEVICE).unwrap();
    // Unmapped under queued work, which is what the pool must never do.
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(driver.bad_accesses(), 1);
}

#[test]
fn a_new_handle_never_shows_old_data() {
    let driver = driver(Clock::Immediate);
    let (at, physical) = chunk(&driver);
    driver.fill(DEVICE, at, 9, GRANULE, StreamHandle::LEGACY).unwrap();
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.release(DEVICE, physical).unwrap();
    let next = driver.create(DEVICE, GRANULE).unwrap();
    assert_ne!(next, physical);
    driver.map(DEVICE, at, GRANULE, next).unwrap();
    driver.grant(DEVICE, at, GRANULE).unwrap();
    assert_eq!(byte(at), 0);
}

#[test]
fn an_arena_of_64_tib_can_be_reserved() {
    let driver = driver(Clock::Immediate);
    let at = driver.reserve(DEVICE, 64 << 40).unwrap();
    driver.unreserve(DEVICE, at, 64 << 40).unwrap();
}

#[test]
fn usage_counts_what_is_out() {
    let driver = driver(Clock::Immediate);
    let empty = driver.usage();
    let (at, physical) = chunk(&driver);
    let stream = driver.stream_create(DEVICE).unwrap();
    let event = driver.event_create(DEVICE).unwrap();
    let plain = driver.allocate(DEVICE, 1).unwrap();
    let full = driver.usage();
    assert_eq!((full.reservations, full.mappings, full.handles, full.allocations), (1, 1, 1, 1));
    assert_eq!((full.events, full.streams, full.bytes), (1, 1, GRANULE + 4096));
    driver.free(DEVICE, plain).unwrap();
    driver.event_destroy(DEVICE, event).unwrap();
    driver.stream_destroy(DEVICE, stream).unwrap();
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.release(DEVICE, physical).unwrap();
    driver.unreserve(DEVICE, at, GRANULE).unwrap();
    assert_eq!(driver.usage(), empty);
}
