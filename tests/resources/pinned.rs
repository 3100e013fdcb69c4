//! The driver's pool of pinned host memory, and who answers where it has none.

use crate::kit::resources::*;

/// Data goes from the host to the device and back.
pub fn round_trip(pinned: &Resource) {
    let bytes = 5 * MIB;
    let there = Resource::of_pool(shared()).unwrap().allocate(bytes, LEGACY).unwrap();
    let (out, back) = (pinned.allocate(bytes, LEGACY).unwrap(), pinned.allocate(bytes, LEGACY).unwrap());
    // Ready in stream order: the host waits before it touches the memory.
    synchronize();
    let host = |buffer: &Buffer| unsafe { std::slice::from_raw_parts_mut(buffer.at() as *mut u8, bytes as usize) };
    host(&out).copy_from_slice(&pattern(11, bytes));
    host(&back).fill(0);
    there.copy_from(&out).unwrap();
    back.copy_from(&there).unwrap();
    synchronize();
    assert!(host(&back) == pattern(11, bytes));
    for buffer in [out, back, there] {
        buffer.close().unwrap();
    }
}

#[test]
fn a_new_pool_keeps_data_and_says_what_it_is() {
    let Some(resource) = had("a pinned pool", Resource::pinned(|_| ())) else { return };
    let info = resource.info();
    assert_eq!((info.kind, info.device_id, info.numa_id), (Kind::Pinned as u32, -1, -1));
    assert_eq!((info.is_handle_owned, info.is_device_accessible, info.is_host_accessible), (1, 1, 1));
    assert_eq!((info.is_managed, info.is_ipc_enabled, info.is_mapped, info.is_closed), (0, 0, 0, 0));
    keeps_data(&resource, 3 * MIB);
    round_trip(&resource);
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    let info = buffer.info();
    assert_eq!((info.device_id, info.is_device_accessible, info.is_host_accessible, info.is_managed), (-1, 1, 1, 0));
}

#[test]
fn the_current_pool_is_not_owned() {
    let Some(resource) = had("the current pinned pool", Resource::current_pinned()) else { return };
    assert_eq!(resource.info().is_handle_owned, 0);
    resource.close().unwrap();
    assert_eq!(resource.info().is_closed, 0);
    round_trip(&resource);
}

#[test]
fn a_numa_node_can_be_named_and_is_derived_for_sharing() {
    let named = Resource::pinned(|options| options.numa_id = 0);
    let Some(named) = had("a pinned pool on node 0", named) else { return };
    assert_eq!((named.info().numa_id, named.info().is_ipc_enabled), (0, 0));
    round_trip(&named);
    let shared_one = Resource::pinned(|options| options.ipc_enabled = 1);
    let Some(shared_one) = had("a pinned pool that can be shared", shared_one) else { return };
    assert!(shared_one.info().numa_id >= 0, "the node nearest to the device");
    assert_eq!(shared_one.info().is_ipc_enabled, 1);
    round_trip(&shared_one);
    let nowhere = Resource::pinned(|options| options.numa_id = 12_345);
    assert!(nowhere.is_err(), "there is no such node");
    refused(Resource::pinned(|options| options.numa_id = -2), Status::InvalidArgument, &["numa_id", "-2"]);
}

#[test]
fn forebays_own_pool_answers_when_asked_for() {
    let own = Resource::pinned(|options| options.own_pool = 1);
    let Some(own) = had("Forebay's own pinned pool", own) else { return };
    let info = own.info();
    assert_eq!((info.kind, info.handle, info.is_handle_owned), (Kind::Pinned as u32, 0, 1));
    assert_eq!((info.device_id, info.is_host_accessible, info.is_device_accessible), (-1, 1, 1));
    keeps_data(&own, 3 * MIB);
    round_trip(&own);
    let buffer = own.allocate(MIB, LEGACY).unwrap();
    own.close().unwrap();
    refused(own.allocate(MIB, LEGACY), Status::Closed, &[]);
    drop(own);
    buffer.write_pattern(4);
    buffer.holds_pattern(4, MIB);
    buffer.close().unwrap();
}

#[test]
fn forebays_own_current_pool_is_one_for_all() {
    let current = |options: &mut forebay::abi::resource::options::ForebayPinnedResourceOptions| {
        (options.own_pool, options.source) = (1, ForebayPoolSource::Current as u32);
    };
    let Some(first) = had("Forebay's own pinned pool", Resource::pinned(current)) else { return };
    assert!(first.info().is_host_accessible == 1 && first.info().handle == 0);
    round_trip(&first);
}

#[test]
fn a_limit_holds_for_either_pool() {
    for own_pool in [0, 1] {
        let made = Resource::pinned(|options| (options.max_size, options.own_pool) = (16 * MIB, own_pool));
        let Some(limited) = had("a pinned pool with a limit", made) else { continue };
        let held = limited.allocate(8 * MIB, LEGACY).unwrap();
        refused(limited.allocate(256 * MIB, LEGACY), Status::OutOfMemory, &[]);
        held.write_pattern(1);
        held.holds_pattern(1, 8 * MIB);
        refused(limited.allocate(u64::MAX, LEGACY), Status::InvalidArgument, &[]);
    }
}
