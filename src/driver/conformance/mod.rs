//! One suite for every driver: what the layers above rely on, asked from outside.
//!
//! Each check panics with what it expected. Data is judged by copying it to the program's own memory.
//! Where CUDA does not promise which error it answers, any error will do, as long as nothing changed.

mod host_memory;
mod memory;
mod pools;
mod sharing;
mod stream;
mod virtual_memory;

use std::thread;

use super::{Driver, ErrorKind, HostFlags, Physical, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// One check: its name, and what it does to a driver.
pub type Check = (&'static str, fn(&dyn Driver));

const DEVICE: DeviceId = DeviceId(0);

/// Every check, in the order in which they build on one another.
#[must_use]
pub fn suite() -> Vec<Check> {
    vec![
        ("capabilities_make_sense", capabilities_make_sense),
        ("a_device_out_of_range_is_refused", a_device_out_of_range_is_refused),
        ("bytes_written_are_read_back", memory::bytes_written_are_read_back),
        ("default_streams_work", stream::default_streams_work),
        ("a_stream_knows_its_device", stream::a_stream_knows_its_device),
        ("one_handle_at_two_addresses_is_one_memory", memory::one_handle_at_two_addresses_is_one_memory),
        ("a_released_handle_lives_while_mapped", memory::a_released_handle_lives_while_mapped),
        ("a_chunk_moves_with_its_data", memory::a_chunk_moves_with_its_data),
        ("several_handles_are_granted_and_unmapped_at_once", memory::several_handles_are_granted_and_unmapped_at_once),
        ("part_of_a_handle_is_refused", memory::part_of_a_handle_is_refused),
        ("a_wrong_map_is_refused", memory::a_wrong_map_is_refused),
        ("wrong_sizes_are_refused", memory::wrong_sizes_are_refused),
        ("more_than_there_is_is_out_of_memory", memory::more_than_there_is_is_out_of_memory),
        ("memory_info_follows_create", memory::memory_info_follows_create),
        ("plain_memory_works", memory::plain_memory_works),
        ("an_event_never_recorded_has_passed", stream::an_event_never_recorded_has_passed),
        ("an_event_waited_for_has_passed", stream::an_event_waited_for_has_passed),
        ("a_stream_waits_for_another", stream::a_stream_waits_for_another),
        ("a_stream_is_idle_when_its_work_is_done", stream::a_stream_is_idle_when_its_work_is_done),
        ("synchronize_waits_for_every_stream", stream::synchronize_waits_for_every_stream),
        ("work_of_a_destroyed_stream_still_runs", stream::work_of_a_destroyed_stream_still_runs),
        ("a_device_event_stands_for_every_stream", stream::a_device_event_stands_for_every_stream),
        ("a_device_event_knows_destroyed_streams", stream::a_device_event_knows_destroyed_streams),
        ("a_stream_waits_for_a_device_event", stream::a_stream_waits_for_a_device_event),
        ("identities_are_never_used_again", stream::identities_are_never_used_again),
        ("the_per_thread_stream_is_another_on_each_thread", stream::the_per_thread_stream_is_another_on_each_thread),
        ("an_ordinary_stream_is_not_captured", stream::an_ordinary_stream_is_not_captured),
        ("a_stream_serves_every_thread", stream::a_stream_serves_every_thread),
        ("driver_pools_can_be_trimmed", stream::driver_pools_can_be_trimmed),
        ("granularities_make_sense", virtual_memory::granularities_make_sense),
        ("every_kind_of_device_memory_works", virtual_memory::every_kind_of_device_memory_works),
        ("what_capabilities_deny_is_refused", virtual_memory::what_capabilities_deny_is_refused),
        (
            "memory_of_a_numa_node_is_the_hosts_and_the_devices",
            virtual_memory::memory_of_a_numa_node_is_the_hosts_and_the_devices,
        ),
        ("hints_and_alignments_are_kept", virtual_memory::hints_and_alignments_are_kept),
        ("access_that_is_not_named_stays", virtual_memory::access_that_is_not_named_stays),
        ("a_device_has_a_name_of_its_own", virtual_memory::a_device_has_a_name_of_its_own),
        ("patterns_are_filled", virtual_memory::patterns_are_filled),
        ("default_pools_are_the_drivers", pools::default_pools_are_the_drivers),
        ("pool_memory_lives_in_stream_order", pools::pool_memory_lives_in_stream_order),
        ("pool_attributes_follow", pools::pool_attributes_follow),
        ("a_pools_limits_hold", pools::a_pools_limits_hold),
        ("a_destroyed_pools_memory_stays_until_freed", pools::a_destroyed_pools_memory_stays_until_freed),
        ("a_pools_access_is_said_and_set", pools::a_pools_access_is_said_and_set),
        ("pools_of_host_memory_work", pools::pools_of_host_memory_work),
        ("pools_of_managed_memory_work", pools::pools_of_managed_memory_work),
        ("a_pool_leaves_only_if_it_was_made_for_it", pools::a_pool_leaves_only_if_it_was_made_for_it),
        ("page_locked_memory_is_reached_from_both_sides", host_memory::page_locked_memory_is_reached_from_both_sides),
        ("freeing_page_locked_memory_waits", host_memory::freeing_page_locked_memory_waits),
        ("memory_of_the_program_is_registered_once", host_memory::memory_of_the_program_is_registered_once),
        ("managed_memory_is_everybodys", host_memory::managed_memory_is_everybodys),
        ("a_pointer_is_known_for_what_it_is", host_memory::a_pointer_is_known_for_what_it_is),
        ("exported_memory_comes_back_as_the_same", sharing::exported_memory_comes_back_as_the_same),
        ("a_descriptor_holds_its_memory", sharing::a_descriptor_holds_its_memory),
        ("what_cannot_leave_is_refused", sharing::what_cannot_leave_is_refused),
        ("garbage_is_not_imported", sharing::garbage_is_not_imported),
        ("plain_memory_is_named_for_others_alone", sharing::plain_memory_is_named_for_others_alone),
        ("threads_do_not_disturb_one_another", threads_do_not_disturb_one_another),
        ("nothing_stays_behind", nothing_stays_behind),
    ]
}

// ---- helpers -----------------------------------------------------------------------------------------

/// Unwraps with the call's name in the message.
#[track_caller]
fn ok<T>(what: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} failed: {error} ({:?})", error.kind),
    }
}

#[track_caller]
fn refused<T>(what: &str, kind: ErrorKind, result: Result<T>) {
    match result {
        Ok(_) => panic!("{what} succeeded, expected {kind:?}"),
        Err(error) => assert_eq!(error.kind, kind, "{what}: {error}"),
    }
}

/// The granularity, or `None` after a note: the device has no virtual memory management.
fn granule(driver: &dyn Driver) -> Option<u64> {
    let capabilities = ok("capabilities", driver.capabilities(DEVICE));
    if !capabilities.vmm {
        eprintln!("skipped: device 0 has no virtual memory management");
        return None;
    }
    Some(capabilities.granularity)
}

/// A stream of its own, destroyed at the end.
struct Stream<'a>(&'a dyn Driver, StreamHandle);

impl<'a> Stream<'a> {
    fn new(driver: &'a dyn Driver) -> Self {
        Self(driver, ok("stream_create", driver.stream_create(DEVICE)))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = self.0.stream_destroy(DEVICE, self.1);
    }
}

/// One chunk, mapped and granted; taken apart at the end.
struct Chunk<'a> {
    driver: &'a dyn Driver,
    at: Address,
    bytes: u64,
    physical: Physical,
}

impl<'a> Chunk<'a> {
    fn new(driver: &'a dyn Driver, bytes: u64) -> Self {
        let at = ok("reserve", driver.reserve(DEVICE, bytes));
        let physical = ok("create", driver.create(DEVICE, bytes));
        ok("map", driver.map(DEVICE, at, bytes, physical));
        ok("grant", driver.grant(DEVICE, at, bytes));
        Self { driver, at, bytes, physical }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        let _ = self.driver.unmap(DEVICE, self.at, self.bytes);
        let _ = self.driver.release(DEVICE, self.physical);
        let _ = self.driver.unreserve(DEVICE, self.at, self.bytes);
    }
}

fn write(driver: &dyn Driver, at: Address, bytes: &[u8]) {
    let stream = Stream::new(driver);
    let from = Address(bytes.as_ptr() as u64);
    ok("copy to device", driver.copy(DEVICE, at, from, bytes.len() as u64, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
}

fn read(driver: &dyn Driver, at: Address, bytes: u64) -> Vec<u8> {
    let mut buffer = vec![0; bytes as usize];
    let stream = Stream::new(driver);
    let to = Address(buffer.as_mut_ptr() as u64);
    ok("copy to host", driver.copy(DEVICE, to, at, bytes, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    buffer
}

/// Bytes that differ from one place to the next, and from one seed to the next.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

#[track_caller]
fn all(what: &str, bytes: &[u8], value: u8) {
    if let Some(place) = bytes.iter().position(|&byte| byte != value) {
        panic!("{what}: byte {place} is {:#x}, expected {value:#x}", bytes[place]);
    }
}

// ---- devices -----------------------------------------------------------------------------------------

fn capabilities_make_sense(driver: &dyn Driver) {
    assert!(driver.device_count() > 0, "an open driver has a device");
    for device in (0..driver.device_count()).map(DeviceId) {
        let found = ok("capabilities", driver.capabilities(device));
        assert!(found.granularity.is_power_of_two(), "granularity {}", found.granularity);
        assert!(found.version > 0, "version {}", found.version);
        assert_eq!(found, ok("capabilities", driver.capabilities(device)), "read twice, they differ");
        let info = ok("memory_info", driver.memory_info(device));
        assert!(info.free <= info.total && info.total > 0, "{info:?}");
    }
}

fn a_device_out_of_range_is_refused(driver: &dyn Driver) {
    let beyond = DeviceId(driver.device_count());
    refused("capabilities", ErrorKind::Invalid, driver.capabilities(beyond));
    refused("memory_info", ErrorKind::Invalid, driver.memory_info(beyond));
    refused("reserve", ErrorKind::Invalid, driver.reserve(beyond, 2 << 20));
    refused("create", ErrorKind::Invalid, driver.create(beyond, 2 << 20));
    refused("allocate", ErrorKind::Invalid, driver.allocate(beyond, 512));
    refused("stream_create", ErrorKind::Invalid, driver.stream_create(beyond));
    refused("event_create", ErrorKind::Invalid, driver.event_create(DeviceId(u32::MAX)));
    refused("synchronize", ErrorKind::Invalid, driver.synchronize(beyond));
    refused("device_uuid", ErrorKind::Invalid, driver.device_uuid(beyond));
    refused("can_access_peer", ErrorKind::Invalid, driver.can_access_peer(beyond, DEVICE));
    refused("host_allocate", ErrorKind::Invalid, driver.host_allocate(beyond, 512, HostFlags::default()));
    refused("pointer", ErrorKind::Invalid, driver.pointer(beyond, Address(512)));
}

// ---- all together ------------------------------------------------------------------------------------

fn threads_do_not_disturb_one_another(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    thread::scope(|scope| {
        for seed in 1..=4u8 {
            scope.spawn(move || {
                for round in 0..10 {
                    let chunk = Chunk::new(driver, granule);
                    let data = pattern(seed.wrapping_mul(16) + round, 8192);
                    write(driver, chunk.at, &data);
                    assert!(read(driver, chunk.at, 8192) == data, "thread {seed} read another's data");
                }
            });
        }
    });
}

fn nothing_stays_behind(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let bytes = (64u64 << 20).next_multiple_of(granule);
    let cycle = || {
        let chunk = Chunk::new(driver, bytes);
        write(driver, chunk.at, &pattern(3, 4096));
        let event = ok("event_create", driver.event_create(DEVICE));
        ok("event_destroy", driver.event_destroy(DEVICE, event));
    };
    // Once to let the driver set up what it keeps for itself.
    cycle();
    let before = ok("memory_info", driver.memory_info(DEVICE)).free;
    (0..8).for_each(|_| cycle());
    let after = ok("memory_info", driver.memory_info(DEVICE)).free;
    // Others may use the GPU meanwhile; eight leaks would be 512 MiB.
    assert!(after + bytes >= before, "free memory went from {before} to {after} in eight rounds");
}
