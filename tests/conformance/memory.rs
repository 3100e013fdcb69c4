//! Checks of memory: reservations, handles, mappings, plain allocations, and the data in them.

use forebay::driver::{Driver, ErrorKind};

use super::kit::{Chunk, DEVICE, Stream, all, granule, ok, pattern, read, refused, write};

pub(super) fn bytes_written_are_read_back(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let chunk = Chunk::new(driver, granule);
    assert!(chunk.at.0.is_multiple_of(granule), "reservation {} is not aligned to {granule}", chunk.at);
    let data = pattern(0x5a, granule as usize);
    write(driver, chunk.at, &data);
    assert!(read(driver, chunk.at, granule) == data, "the data differs");
    let stream = Stream::new(driver);
    ok("fill", driver.fill(DEVICE, chunk.at.plus(512), 7, 1024, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    let after = read(driver, chunk.at, 2048);
    assert!(after[..512] == data[..512], "fill wrote before its range");
    all("fill", &after[512..1536], 7);
    assert!(after[1536..] == data[1536..2048], "fill wrote behind its range");
}

pub(super) fn one_handle_at_two_addresses_is_one_memory(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let chunk = Chunk::new(driver, granule);
    let other = ok("reserve", driver.reserve(DEVICE, granule));
    ok("map at a second address", driver.map(DEVICE, other, granule, chunk.physical));
    ok("grant", driver.grant(DEVICE, other, granule));
    let data = pattern(0x11, 4096);
    write(driver, chunk.at, &data);
    assert!(read(driver, other, 4096) == data, "the second address does not see the first one's data");
    let data = pattern(0x22, 4096);
    write(driver, other, &data);
    assert!(read(driver, chunk.at, 4096) == data, "the first address does not see the second one's data");
    ok("unmap", driver.unmap(DEVICE, other, granule));
    assert!(read(driver, chunk.at, 4096) == data, "unmapping one address disturbed the other");
    ok("unreserve", driver.unreserve(DEVICE, other, granule));
}

pub(super) fn a_released_handle_lives_while_mapped(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let at = ok("reserve", driver.reserve(DEVICE, granule));
    let physical = ok("create", driver.create(DEVICE, granule));
    ok("map", driver.map(DEVICE, at, granule, physical));
    ok("grant", driver.grant(DEVICE, at, granule));
    ok("release", driver.release(DEVICE, physical));
    let data = pattern(0x33, 4096);
    write(driver, at, &data);
    assert!(read(driver, at, 4096) == data, "released memory is gone though it is mapped");
    ok("unmap", driver.unmap(DEVICE, at, granule));
    ok("unreserve", driver.unreserve(DEVICE, at, granule));
}

pub(super) fn a_chunk_moves_with_its_data(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let at = ok("reserve", driver.reserve(DEVICE, 2 * granule));
    let physical = ok("create", driver.create(DEVICE, granule));
    ok("map", driver.map(DEVICE, at, granule, physical));
    ok("grant", driver.grant(DEVICE, at, granule));
    let data = pattern(0x44, 4096);
    write(driver, at, &data);
    ok("unmap", driver.unmap(DEVICE, at, granule));
    let place = at.plus(granule);
    ok("map elsewhere", driver.map(DEVICE, place, granule, physical));
    ok("grant elsewhere", driver.grant(DEVICE, place, granule));
    assert!(read(driver, place, 4096) == data, "the data did not move with the chunk");
    ok("unmap", driver.unmap(DEVICE, place, granule));
    ok("release", driver.release(DEVICE, physical));
    ok("unreserve", driver.unreserve(DEVICE, at, 2 * granule));
}

pub(super) fn several_handles_are_granted_and_unmapped_at_once(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let sizes = [granule, 4 * granule, 2 * granule];
    let all_bytes: u64 = sizes.iter().sum();
    let at = ok("reserve", driver.reserve(DEVICE, all_bytes));
    let mut place = at;
    let mut handles = Vec::new();
    for bytes in sizes {
        let physical = ok("create", driver.create(DEVICE, bytes));
        ok("map", driver.map(DEVICE, place, bytes, physical));
        handles.push(physical);
        place = place.plus(bytes);
    }
    ok("grant over three handles", driver.grant(DEVICE, at, all_bytes));
    // One write across the borders.
    let data = pattern(0x55, all_bytes as usize);
    write(driver, at, &data);
    assert!(read(driver, at, all_bytes) == data, "data across handles differs");
    ok("unmap over three handles", driver.unmap(DEVICE, at, all_bytes));
    for physical in handles {
        ok("release", driver.release(DEVICE, physical));
    }
    ok("unreserve", driver.unreserve(DEVICE, at, all_bytes));
}

pub(super) fn part_of_a_handle_is_refused(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let chunk = Chunk::new(driver, 2 * granule);
    let data = pattern(0x66, 2 * granule as usize);
    write(driver, chunk.at, &data);
    let second = chunk.at.plus(granule);
    refused("unmap of the first half", ErrorKind::Invalid, driver.unmap(DEVICE, chunk.at, granule));
    refused("unmap of the second half", ErrorKind::Invalid, driver.unmap(DEVICE, second, granule));
    refused("grant of the first half", ErrorKind::Invalid, driver.grant(DEVICE, chunk.at, granule));
    refused("grant of the second half", ErrorKind::Invalid, driver.grant(DEVICE, second, granule));
    assert!(read(driver, chunk.at, 2 * granule) == data, "a refused call changed the data");
}

pub(super) fn a_wrong_map_is_refused(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let chunk = Chunk::new(driver, 2 * granule);
    let data = pattern(0x77, 4096);
    write(driver, chunk.at, &data);
    let physical = ok("create", driver.create(DEVICE, 2 * granule));
    assert!(driver.map(DEVICE, chunk.at, 2 * granule, physical).is_err(), "mapped over a mapping");
    let other = ok("reserve", driver.reserve(DEVICE, 2 * granule));
    assert!(driver.map(DEVICE, other, granule, physical).is_err(), "mapped half of a handle");
    assert!(driver.map(DEVICE, other, 4 * granule, physical).is_err(), "mapped more than a handle");
    assert!(driver.grant(DEVICE, other, 2 * granule).is_err(), "granted what is not mapped");
    ok("map after the refused ones", driver.map(DEVICE, other, 2 * granule, physical));
    ok("unmap", driver.unmap(DEVICE, other, 2 * granule));
    ok("release", driver.release(DEVICE, physical));
    ok("unreserve", driver.unreserve(DEVICE, other, 2 * granule));
    assert!(read(driver, chunk.at, 4096) == data, "a refused call changed the data");
}

pub(super) fn wrong_sizes_are_refused(driver: &dyn Driver) {
    refused("allocate 0", ErrorKind::Invalid, driver.allocate(DEVICE, 0));
    let Some(granule) = granule(driver) else { return };
    for bytes in [0, 1, granule / 2, granule + 512] {
        refused("reserve", ErrorKind::Invalid, driver.reserve(DEVICE, bytes));
        refused("create", ErrorKind::Invalid, driver.create(DEVICE, bytes));
    }
}

pub(super) fn more_than_there_is_is_out_of_memory(driver: &dyn Driver) {
    let total = ok("memory_info", driver.memory_info(DEVICE)).total;
    refused("allocate", ErrorKind::OutOfMemory, driver.allocate(DEVICE, total * 2));
    let Some(granule) = granule(driver) else { return };
    let bytes = (total * 2).next_multiple_of(granule);
    refused("create", ErrorKind::OutOfMemory, driver.create(DEVICE, bytes));
    // Addresses are not memory.
    let at = ok("reserve more than the device has", driver.reserve(DEVICE, bytes));
    ok("unreserve", driver.unreserve(DEVICE, at, bytes));
}

pub(super) fn memory_info_follows_create(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let bytes = (16u64 << 20).next_multiple_of(granule);
    let before = ok("memory_info", driver.memory_info(DEVICE));
    let physical = ok("create", driver.create(DEVICE, bytes));
    let during = ok("memory_info", driver.memory_info(DEVICE));
    ok("release", driver.release(DEVICE, physical));
    let after = ok("memory_info", driver.memory_info(DEVICE));
    assert!(during.free + bytes <= before.free, "free memory before {before:?}, with the handle {during:?}");
    assert!(after.free >= during.free + bytes, "free memory with the handle {during:?}, released {after:?}");
}

pub(super) fn plain_memory_works(driver: &dyn Driver) {
    let (first, second) =
        (ok("allocate", driver.allocate(DEVICE, 10_000)), ok("allocate", driver.allocate(DEVICE, 512)));
    assert!(first.0.is_multiple_of(256) && second.0.is_multiple_of(256), "{first}, {second} are not aligned");
    write(driver, first, &pattern(1, 10_000));
    write(driver, second, &pattern(2, 512));
    assert!(read(driver, first, 10_000) == pattern(1, 10_000), "the first allocation's data differs");
    assert!(read(driver, second, 512) == pattern(2, 512), "the second allocation's data differs");
    ok("free", driver.free(DEVICE, first));
    assert!(read(driver, second, 512) == pattern(2, 512), "freeing one allocation disturbed another");
    ok("free", driver.free(DEVICE, second));
}
