//! The driver's pool of a device.

use crate::kit::process::in_child;
use crate::kit::resources::*;

#[test]
fn a_new_pool_keeps_data_and_says_what_it_is() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    let info = resource.info();
    assert_eq!((info.kind, info.device_id, info.numa_id), (Kind::Device as u32, DEVICE, -1));
    assert_eq!((info.is_handle_owned, info.is_mapped, info.is_closed, info.is_managed), (1, 0, 0, 0));
    assert_eq!((info.is_device_accessible, info.is_host_accessible, info.is_ipc_enabled), (1, 0, 0));
    assert_eq!((info.preferred_location_type, info.preferred_location), (ForebayLocation::None as u32, -1));
    assert_ne!(info.handle, 0, "the CUmemoryPool");
    keeps_data(&resource, 3 * MIB + 4096);
    keeps_data(&resource, 1 << 12);
}

#[test]
fn the_current_and_the_default_pool_are_not_owned_and_outlive_their_resources() {
    let Some(current) = had("the current pool", Resource::current()) else { return };
    let default = Resource::device(|options| options.source = ForebayPoolSource::Default as u32).unwrap();
    assert_eq!(current.info().handle, default.info().handle, "nobody set another");
    assert_eq!((current.info().is_handle_owned, default.info().is_handle_owned), (0, 0));
    current.close().unwrap();
    assert_eq!(current.info().is_closed, 0, "closing has no effect on what is not owned");
    keeps_data(&current, MIB);
    drop(current);
    keeps_data(&default, MIB);
}

#[test]
fn a_pool_of_the_programs_own_is_taken_by_its_handle() {
    let Some(owner) = had("a pool of the device", Resource::device(|_| ())) else { return };
    let handle = owner.info().handle;
    let borrower = Resource::device(|options| {
        (options.source, options.handle) = (ForebayPoolSource::Handle as u32, handle);
    })
    .unwrap();
    assert_eq!((borrower.info().handle, borrower.info().is_handle_owned), (handle, 0));
    let before = owner.attribute(Attribute::UsedMemCurrent).unwrap();
    let buffer = borrower.allocate(MIB, LEGACY).unwrap();
    synchronize();
    assert!(owner.attribute(Attribute::UsedMemCurrent).unwrap() > before, "it is the same pool");
    buffer.close().unwrap();
    borrower.close().unwrap();
    drop(borrower);
    keeps_data(&owner, MIB);
    let nothing = Resource::device(|options| options.source = ForebayPoolSource::Handle as u32);
    refused(nothing, Status::InvalidArgument, &["CUmemoryPool"]);
}

#[test]
fn a_closed_pool_gives_nothing_more_and_its_open_buffers_live_on() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    buffer.write_pattern(3);
    let pointer = resource.pointer(MIB, LEGACY).unwrap();
    resource.close().unwrap();
    resource.close().unwrap();
    assert_eq!(resource.info().is_closed, 1);
    refused(resource.allocate(MIB, LEGACY), Status::Closed, &["closed"]);
    refused(resource.pointer(MIB, LEGACY), Status::Closed, &["closed"]);
    refused(resource.attribute(Attribute::UsedMemCurrent), Status::Closed, &[]);
    refused(resource.trim(0), Status::Closed, &[]);
    refused(buffer.copy(), Status::Closed, &[]);
    buffer.holds_pattern(3, MIB);
    resource.deallocate(pointer, MIB, LEGACY).unwrap();
    drop(resource);
    buffer.holds_pattern(3, MIB);
    buffer.close().unwrap();
}

#[test]
fn a_pool_holds_no_more_than_its_limit() {
    let Some(resource) = had("a pool with a limit", Resource::device(|options| options.max_size = 64 * MIB)) else {
        return;
    };
    let held = resource.allocate(32 * MIB, LEGACY).unwrap();
    let text = refused(resource.allocate(256 * MIB, LEGACY), Status::OutOfMemory, &["268435456 bytes", "max_size"]);
    assert!(text.contains("in use"), "{text}");
    held.close().unwrap();
    synchronize();
    keeps_data(&resource, 8 * MIB);
}

#[test]
fn sizes_that_no_memory_has_are_refused_and_no_bytes_are_fine() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    for bytes in [u64::MAX, u64::MAX - 511, i64::MAX as u64 + 1] {
        refused(resource.allocate(bytes, LEGACY), Status::InvalidArgument, &[&bytes.to_string()]);
        refused(resource.pointer(bytes, LEGACY), Status::InvalidArgument, &[]);
    }
    refused(resource.allocate(1 << 60, LEGACY), Status::OutOfMemory, &["1152921504606846976"]);
    let none = resource.allocate(0, LEGACY).unwrap();
    assert_eq!((none.at(), none.bytes(), none.info().is_closed), (0, 0, 0));
    none.copy().unwrap().close().unwrap();
    none.fill(1, 1).unwrap();
    none.close().unwrap();
    assert_eq!(resource.pointer(0, LEGACY).unwrap(), 0);
    resource.deallocate(0, 0, LEGACY).unwrap();
    keeps_data(&resource, 1);
}

#[test]
fn memory_is_given_back_in_the_order_of_the_stream_that_is_named() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    let stream = shared().stream();
    let buffer = resource.allocate(MIB, stream).unwrap();
    assert_eq!(buffer.info().stream, stream as u64);
    let mut back = vec![0u8; MIB as usize];
    shared().fill(buffer.at(), 9, MIB, stream).unwrap();
    shared().copy(back.as_mut_ptr() as Block, buffer.at(), MIB, stream).unwrap();
    buffer.close_on(stream).unwrap();
    shared().synchronize(stream).unwrap();
    assert!(back.iter().all(|&byte| byte == 9));
    shared().destroy_stream(stream).unwrap();
}

#[test]
fn another_device_is_let_in_and_shut_out() {
    let name = "device::another_device_is_let_in_and_shut_out";
    in_child(name, &[("FOREBAY_HOST_DEVICES", "2")], || {
        if shared().device_count().unwrap() < 2 {
            println!("skipped: one device only");
            return;
        }
        let resource = Resource::device(|_| ()).unwrap();
        peers_come_and_go(&resource);
        refused(resource.set_peer_access(DEVICE, ForebayAccess::None), Status::InvalidArgument, &["own pool"]);
        resource.set_peer_access(DEVICE, ForebayAccess::ReadWrite).unwrap();
        refused(resource.set_peer_access(2, ForebayAccess::Read), Status::BadDevice, &["2"]);
        refused(resource.peer_access(2), Status::BadDevice, &["2"]);
    });
}

/// Lets device 1 in and out, with a live block.
pub fn peers_come_and_go(resource: &Resource) {
    assert_eq!(resource.peer_access(1).unwrap(), ForebayAccess::None as u32);
    let buffer = resource.allocate(4 * MIB, LEGACY).unwrap();
    buffer.write_pattern(5);
    let stream = shared().try_stream(1).unwrap() as *mut std::ffi::c_void;
    let from_peer = || {
        let mut back = vec![0u8; 4 * MIB as usize];
        let (to, from) = (back.as_mut_ptr().cast(), buffer.at() as *const std::ffi::c_void);
        let pool = shared().0;
        let copied =
            outcome(unsafe { forebay::abi::pool::streams::forebay_pool_copy(pool, 1, to, from, 4 * MIB, stream) });
        outcome(unsafe { forebay::abi::pool::streams::forebay_stream_synchronize(pool, 1, stream) }).unwrap();
        copied.map(|()| back)
    };
    if !on_cuda() {
        // CUDA stages such a copy through its own context; only kernels are stopped there.
        from_peer().expect_err("the host driver notices who has no access");
    }
    if had("access for a peer", resource.set_peer_access(1, ForebayAccess::ReadWrite)).is_none() {
        return;
    }
    assert_eq!(resource.peer_access(1).unwrap(), ForebayAccess::ReadWrite as u32);
    assert_eq!(from_peer().unwrap(), pattern(5, 4 * MIB));
    resource.set_peer_access(1, ForebayAccess::None).unwrap();
    assert_eq!(resource.peer_access(1).unwrap(), ForebayAccess::None as u32);
    if !on_cuda() {
        from_peer().expect_err("shut out again, also from what was live");
    }
    buffer.holds_pattern(5, 4 * MIB);
}
