//! Buffers that grow.

use crate::kit::process::in_child;
use crate::kit::resources::*;

const SMALL: &[(&str, &str)] = &[("FOREBAY_HOST_CAPACITY", "64M")];

fn resource() -> Resource {
    Resource::virtual_memory(|_| ()).unwrap()
}

/// The granule that sizes come in.
fn granule(resource: &Resource) -> u64 {
    resource.allocate(1, LEGACY).unwrap().bytes()
}

#[test]
fn it_keeps_data_and_says_what_it_is() {
    let resource = resource();
    let info = resource.info();
    assert_eq!((info.kind, info.device_id, info.handle), (Kind::Virtual as u32, DEVICE, 0));
    assert_eq!((info.is_device_accessible, info.is_host_accessible, info.is_ipc_enabled), (1, 0, 1));
    let granule = granule(&resource);
    let buffer = resource.allocate(3 * granule - 5, LEGACY).unwrap();
    assert_eq!(buffer.bytes(), 3 * granule, "the size in granules");
    keeps_data(&resource, 3 * granule + 1);
    let pointer = resource.pointer(granule, LEGACY).unwrap();
    refused(resource.deallocate(pointer + 4096, granule, LEGACY), Status::BadFree, &[]);
    resource.deallocate(pointer, granule, LEGACY).unwrap();
    refused(resource.deallocate(pointer, granule, LEGACY), Status::BadFree, &["not the start"]);
    refused(resource.deallocate(buffer.at(), granule, LEGACY), Status::BadFree, &["buffer is closed"]);
    buffer.close().unwrap();
    refused(resource.attribute(Attribute::UsedMemCurrent), Status::Unsupported, &["no pool"]);
}

#[test]
fn ten_grows_keep_the_contents_and_the_address() {
    let resource = resource();
    let buffer = resource.allocate(1, LEGACY).unwrap();
    let (at, mut size) = (buffer.at(), buffer.bytes());
    buffer.write_pattern(0);
    for grow in 1..=10 {
        let before = size;
        resource.modify(&buffer, before + 1, None).unwrap();
        size = buffer.bytes();
        assert!(size > before && buffer.at() == at, "in place: the addresses behind it are its own");
        buffer.holds_pattern(grow - 1, before);
        // The new part is there as well.
        buffer.write_pattern(grow);
        buffer.holds_pattern(grow, size);
    }
    resource.modify(&buffer, 16 * size, None).unwrap();
    buffer.holds_pattern(10, size);
    buffer.write_pattern(11);
    buffer.holds_pattern(11, 16 * size);
    buffer.close().unwrap();
}

#[test]
fn a_buffer_that_cannot_stay_moves_with_its_contents_again_and_again() {
    let name = "virtual_memory::a_buffer_that_cannot_stay_moves_with_its_contents_again_and_again";
    in_child(name, &[("FOREBAY_HOST_CAPACITY", "8M")], || {
        if on_cuda() {
            println!("skipped: all of this device's memory has its addresses behind a buffer: none has to move");
            return;
        }
        // Memory of the host may be more than the device has, whose size says how many addresses are set aside.
        let on_host = |options: &mut VirtualOptions| options.location_type = ForebayLocation::HostNuma as u32;
        let resource = Resource::virtual_memory(on_host).unwrap();
        let buffer = resource.allocate(4 * MIB, LEGACY).unwrap();
        buffer.write_pattern(0);
        let mut moves = 0;
        for grow in 1..=10 {
            let (at, size) = (buffer.at(), buffer.bytes());
            // Somebody else has the addresses behind, wherever they begin.
            let wall = |distance: u64| {
                let end = at as u64 + distance;
                let beside = Resource::virtual_memory(|options| {
                    on_host(options);
                    options.addr_hint = end;
                })
                .unwrap();
                let block = beside.allocate(2 * MIB, LEGACY).unwrap();
                (block.at() as u64 == end).then_some((beside, block))
            };
            let walls: Vec<_> = [8 * MIB, 2 * size].into_iter().filter_map(wall).collect();
            resource.modify(&buffer, size + 6 * MIB, None).unwrap();
            assert_eq!(buffer.bytes(), size + 6 * MIB);
            moves += u32::from(buffer.at() != at);
            buffer.holds_pattern(grow - 1, size);
            buffer.write_pattern(grow);
            for (_, block) in walls {
                block.write_pattern(99);
                block.holds_pattern(99, 2 * MIB);
            }
            buffer.holds_pattern(grow, size + 6 * MIB);
        }
        assert!(moves >= 2, "{moves} moves: the test shows nothing");
        let free = shared().memory_info(DEVICE).unwrap();
        buffer.close().unwrap();
        assert_eq!(shared().memory_info(DEVICE).unwrap(), free);
    });
}

#[test]
fn a_buffer_shrinks_and_grows_again() {
    let resource = resource();
    let granule = granule(&resource);
    let buffer = resource.allocate(granule, LEGACY).unwrap();
    for size in [4, 9, 10] {
        resource.modify(&buffer, size * granule, None).unwrap();
    }
    buffer.write_pattern(1);
    // Pieces of 1, 3, 5 and 1 granules: ends at and between their borders, and all but the first.
    for (shrunk, grown) in [(9, 12), (7, 8), (4, 11), (2, 3), (1, 6), (6, 6)] {
        let kept = shrunk * granule;
        resource.modify(&buffer, kept - 1, None).unwrap();
        assert_eq!(buffer.bytes(), kept);
        buffer.holds_pattern(1, kept);
        resource.modify(&buffer, grown * granule, None).unwrap();
        assert_eq!(buffer.bytes(), grown * granule);
        buffer.holds_pattern(1, kept);
        buffer.write_pattern(1);
        buffer.holds_pattern(1, grown * granule);
    }
    buffer.close().unwrap();
}

#[test]
fn physical_memory_comes_with_growth_and_goes_with_shrinking_and_closing() {
    let name = "virtual_memory::physical_memory_comes_with_growth_and_goes_with_shrinking_and_closing";
    in_child(name, SMALL, || {
        if on_cuda() {
            println!("skipped: other programs change the device's figures");
            return;
        }
        let free = || shared().memory_info(DEVICE).unwrap().0;
        let (resource, all) = (resource(), free());
        let buffer = resource.allocate(4 * MIB, LEGACY).unwrap();
        assert_eq!(free(), all - 4 * MIB);
        resource.modify(&buffer, 20 * MIB, None).unwrap();
        assert_eq!(free(), all - 20 * MIB, "only what is lacking is made");
        resource.modify(&buffer, 6 * MIB, None).unwrap();
        assert_eq!(free(), all - 20 * MIB, "a piece that the end cuts stays");
        resource.modify(&buffer, 2 * MIB, None).unwrap();
        assert_eq!(free(), all - 4 * MIB);
        resource.modify(&buffer, 64 * MIB, None).unwrap();
        assert_eq!(free(), all - 64 * MIB);
        buffer.close().unwrap();
        assert_eq!(free(), all, "freed whole");
        drop(buffer);
        let left = resource.pointer(8 * MIB, LEGACY).unwrap();
        assert_ne!(left, 0);
        drop(resource);
        assert_eq!(free(), all, "also what was never given back");
    });
}

#[test]
fn growth_that_fails_leaves_the_buffer_as_it_was() {
    let resource = resource();
    let buffer = resource.allocate(4 * MIB, LEGACY).unwrap();
    let (at, size) = (buffer.at(), buffer.bytes());
    buffer.write_pattern(1);
    for (bytes, statuses) in [
        (1 << 40, [Status::OutOfMemory, Status::OutOfMemory]),
        // No addresses for so much, or no memory.
        (1 << 62, [Status::OutOfMemory, Status::Driver]),
        (i64::MAX as u64 - 4096, [Status::InvalidArgument; 2]),
        (u64::MAX, [Status::InvalidArgument; 2]),
        (0, [Status::InvalidArgument; 2]),
    ] {
        let failure = resource.modify(&buffer, bytes, None).expect_err("there is not so much");
        assert!(statuses.contains(&failure.status), "{bytes}: {failure:?}");
        assert_eq!((buffer.at(), buffer.bytes(), buffer.info().is_closed), (at, size, 0));
        buffer.holds_pattern(1, size);
    }
    for bytes in [1 << 62, u64::MAX, i64::MAX as u64] {
        resource.allocate(bytes, LEGACY).expect_err("there is not so much");
    }
    resource.modify(&buffer, 2 * size, None).unwrap();
    buffer.holds_pattern(1, size);
}

#[test]
fn only_an_open_buffer_of_the_resource_can_be_changed() {
    let (resource, other) = (resource(), resource());
    let buffer = resource.allocate(1, LEGACY).unwrap();
    refused(other.modify(&buffer, 8 * MIB, None), Status::InvalidArgument, &["another resource"]);
    let pooled = Resource::of_pool(shared()).unwrap();
    refused(pooled.modify(&buffer, 8 * MIB, None), Status::Unsupported, &["virtual memory"]);
    let foreign = pooled.allocate(MIB, LEGACY).unwrap();
    refused(resource.modify(&foreign, 8 * MIB, None), Status::InvalidArgument, &[]);
    buffer.close().unwrap();
    refused(resource.modify(&buffer, 8 * MIB, None), Status::Closed, &["closed"]);
    // A closed resource gives nothing new; what is open can still be changed.
    let buffer = resource.allocate(1, LEGACY).unwrap();
    buffer.write_pattern(1);
    let size = buffer.bytes();
    resource.close().unwrap();
    refused(resource.allocate(1, LEGACY), Status::Closed, &[]);
    resource.modify(&buffer, 4 * size, None).unwrap();
    buffer.holds_pattern(1, size);
}

#[test]
fn new_memory_may_be_of_other_options() {
    let resource = resource();
    let buffer = resource.allocate(1, LEGACY).unwrap();
    buffer.write_pattern(2);
    let size = buffer.bytes();
    let unshared = virtual_options(|options| options.handle_type = ForebayHandleType::None as u32);
    resource.modify(&buffer, 2 * size, Some(&unshared)).unwrap();
    buffer.holds_pattern(2, size);
    buffer.write_pattern(3);
    let elsewhere = virtual_options(|options| options.location_type = ForebayLocation::HostNuma as u32);
    let failure = resource.modify(&buffer, 4 * size, Some(&elsewhere)).expect_err("another place");
    assert!(matches!(failure.status, Status::InvalidArgument | Status::Unsupported), "{failure:?}");
    let managed = virtual_options(|options| options.allocation_type = ForebayAllocationType::Managed as u32);
    refused(resource.modify(&buffer, 4 * size, Some(&managed)), Status::Unsupported, &["allocation_type"]);
    let damaged = virtual_options(|options| options.reserved[3] = 1);
    refused(resource.modify(&buffer, 4 * size, Some(&damaged)), Status::InvalidArgument, &["reserved"]);
    assert_eq!(buffer.bytes(), 2 * size);
    buffer.holds_pattern(3, 2 * size);
}

#[test]
fn every_option_is_taken_or_refused_by_name() {
    let made = |change: fn(&mut VirtualOptions)| Resource::virtual_memory(change);
    for (what, change) in [
        ("minimum granularity", (|o| o.granularity = 0) as fn(&mut VirtualOptions)),
        ("no sharing", |o| o.handle_type = ForebayHandleType::None as u32),
        ("network cards", |o| o.gpu_direct_rdma = 1),
        ("an alignment", |o| o.addr_align = 64 << 20),
        ("host memory near the device", |o| o.location_type = ForebayLocation::HostNuma as u32),
        ("host memory near the thread", |o| {
            (o.location_type, o.handle_type) = (ForebayLocation::HostNumaCurrent as u32, 0);
        }),
        ("fabric handles", |o| o.handle_type = ForebayHandleType::Fabric as u32),
    ] {
        let made = made(change);
        if what == "fabric handles" && made.is_err() {
            refused(made, Status::Unsupported, &["fabric"]);
            continue;
        }
        let Some(resource) = had(what, made) else { continue };
        // Fabric memory is refused to whom the system did not give a channel, and only when it is made.
        let Some(first) = had(what, resource.allocate(1, LEGACY)) else { continue };
        drop(first);
        keeps_data(&resource, 3 * MIB);
    }
    let aligned = made(|o| o.addr_align = 64 << 20).unwrap().allocate(1, LEGACY).unwrap();
    assert!((aligned.at() as u64).is_multiple_of(64 << 20));
    for (change, status, word) in [
        ((|o| o.allocation_type = 1) as fn(&mut VirtualOptions), Status::Unsupported, "allocation_type"),
        (|o| o.allocation_type = 2, Status::InvalidArgument, "allocation type"),
        (|o| o.location_type = ForebayLocation::None as u32, Status::InvalidArgument, "location_type"),
        (|o| o.location_type = 9, Status::InvalidArgument, "9 is no location"),
        (|o| o.handle_type = ForebayHandleType::Generic as u32, Status::Unsupported, "handle_type 2"),
        (|o| o.handle_type = ForebayHandleType::Win32 as u32, Status::Unsupported, "handle_type 3"),
        (|o| o.handle_type = ForebayHandleType::Win32Kmt as u32, Status::Unsupported, "handle_type 4"),
        (|o| o.handle_type = 6, Status::InvalidArgument, "handle type"),
        (|o| o.granularity = 2, Status::InvalidArgument, "granularity"),
        (|o| o.gpu_direct_rdma = 7, Status::InvalidArgument, "gpu_direct_rdma"),
        (|o| o.self_access = 3, Status::InvalidArgument, "access"),
        (|o| o.peer_access = 3, Status::InvalidArgument, "access"),
        (|o| o.peer_count = 1, Status::NullPointer, "peers"),
        (|o| o.addr_hint = 4097, Status::InvalidArgument, "addr_hint"),
        (|o| o.addr_align = 3 << 20, Status::InvalidArgument, "addr_align"),
        (|o| o.addr_align = 4096, Status::InvalidArgument, "addr_align"),
    ] {
        refused(made(change), status, &[word]);
    }
}

#[test]
fn a_device_that_may_only_read_is_held_to_it() {
    let readers = Resource::virtual_memory(|options| options.self_access = ForebayAccess::Read as u32);
    let Some(readers) = had("memory to read", readers) else { return };
    let Some(buffer) = had_or_not("memory to read", readers.allocate(1, LEGACY)) else { return };
    assert_eq!(readers.peer_access(DEVICE).unwrap(), ForebayAccess::Read as u32);
    if !on_cuda() {
        // On CUDA a write would end the context.
        assert!(buffer.fill(1, 1).is_err());
        buffer.holds(0);
    }
    let nobodys = Resource::virtual_memory(|options| options.self_access = 0).unwrap();
    assert_eq!((nobodys.info().is_device_accessible, nobodys.peer_access(DEVICE).unwrap()), (0, 0));
    let buffer = nobodys.allocate(1, LEGACY).unwrap();
    nobodys.modify(&buffer, 2 * buffer.bytes(), None).unwrap();
    buffer.close().unwrap();
}

#[test]
fn peers_are_named_in_the_options() {
    let name = "virtual_memory::peers_are_named_in_the_options";
    in_child(name, &[("FOREBAY_HOST_DEVICES", "2")], || {
        let peers = [1, 0, 1];
        let with = |count| Resource::virtual_memory(|o| (o.peers, o.peer_count) = (peers.as_ptr(), count));
        let absent = [2];
        let wrong = Resource::virtual_memory(|o| (o.peers, o.peer_count) = (absent.as_ptr(), 1));
        if shared().device_count().unwrap() < 2 {
            refused(with(3), Status::BadDevice, &["1"]);
            println!("skipped: one device only");
            return;
        }
        refused(wrong, Status::BadDevice, &["2"]);
        let Some(resource) = had("memory for a peer", with(3)) else { return };
        assert_eq!(resource.peer_access(1).unwrap(), ForebayAccess::ReadWrite as u32);
        keeps_data(&resource, 3 * MIB);
        resource.set_peer_access(1, ForebayAccess::ReadWrite).unwrap();
        refused(resource.set_peer_access(1, ForebayAccess::None), Status::Unsupported, &["options"]);
        assert_eq!(Resource::virtual_memory(|_| ()).unwrap().peer_access(1).unwrap(), 0);
    });
}
