//! Managed memory.

use crate::kit::process::in_child;
use crate::kit::resources::*;

#[test]
fn a_new_pool_keeps_data_and_says_what_it_is() {
    let Some(resource) = had("managed memory", Resource::managed(|_| ())) else { return };
    let info = resource.info();
    assert_eq!((info.kind, info.is_managed, info.is_ipc_enabled), (Kind::Managed as u32, 1, 0));
    assert_eq!((info.is_device_accessible, info.is_host_accessible, info.is_handle_owned), (1, 1, 1));
    assert_eq!((info.preferred_location_type, info.preferred_location), (ForebayLocation::None as u32, -1));
    keeps_data(&resource, 3 * MIB);
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    assert_eq!((buffer.info().is_managed, buffer.info().is_host_accessible), (1, 1));
    buffer.fill(0x5a, 1).unwrap();
    synchronize();
    // The host sees what the device wrote, and the device what the host did.
    let seen = unsafe { std::slice::from_raw_parts_mut(buffer.at() as *mut u8, MIB as usize) };
    assert!(seen.iter().all(|&byte| byte == 0x5a));
    seen.copy_from_slice(&pattern(2, MIB));
    buffer.holds_pattern(2, MIB);
    let refusal = buffer.descriptor().map(drop).expect_err("managed memory is not shared");
    assert!(matches!(refusal.status, Status::NotPermitted | Status::Unsupported), "{refusal:?}");
}

#[test]
fn a_preferred_location_is_taken_and_said() {
    for (location, number) in
        [(ForebayLocation::Device, 0), (ForebayLocation::Host, -1), (ForebayLocation::HostNuma, 0)]
    {
        let made = Resource::managed(|options| {
            (options.preferred_location_type, options.preferred_location) = (location as u32, number);
        });
        let Some(resource) = had("managed memory with a preferred location", made) else { continue };
        let info = resource.info();
        if info.handle == 0 {
            println!("skipped: no managed pools here, so no preference");
            continue;
        }
        assert_eq!((info.preferred_location_type, info.preferred_location), (location as u32, number));
        keeps_data(&resource, MIB);
    }
    let nearest = Resource::managed(|options| options.preferred_location_type = ForebayLocation::HostNuma as u32);
    if let Some(nearest) = had("managed memory on the nearest node", nearest) {
        assert!(nearest.info().handle == 0 || nearest.info().preferred_location >= 0);
    }
    for (location, number, status) in [
        (ForebayLocation::Device, 77, Status::BadDevice),
        (ForebayLocation::Device, -1, Status::BadDevice),
        (ForebayLocation::HostNuma, -2, Status::InvalidArgument),
        (ForebayLocation::HostNumaCurrent, 0, Status::InvalidArgument),
    ] {
        let made = Resource::managed(|options| {
            (options.preferred_location_type, options.preferred_location) = (location as u32, number);
        });
        refused(made, status, &[]);
    }
}

#[test]
fn the_current_pool_is_not_owned_and_a_closed_one_gives_nothing() {
    let current = Resource::managed(|options| options.source = ForebayPoolSource::Current as u32);
    let Some(current) = had("the current managed pool", current) else { return };
    if current.info().handle != 0 {
        assert_eq!(current.info().is_handle_owned, 0);
    }
    keeps_data(&current, MIB);
    let own = Resource::managed(|_| ()).unwrap();
    let buffer = own.allocate(MIB, LEGACY).unwrap();
    own.close().unwrap();
    refused(own.allocate(MIB, LEGACY), Status::Closed, &[]);
    buffer.write_pattern(6);
    drop(own);
    buffer.holds_pattern(6, MIB);
}

#[test]
fn copies_come_after_what_the_same_default_stream_was_given() {
    let name = "managed::copies_come_after_what_the_same_default_stream_was_given";
    in_child(name, &[("FOREBAY_HOST_DEVICES", "2"), ("FOREBAY_HOST_LATE", "100")], || {
        if on_cuda() {
            println!("skipped: CUDA has as many devices as there are");
            return;
        }
        // The default stream is that of the resource's device, wherever the memory lies.
        let resource = Resource::managed(|options| {
            (options.preferred_location_type, options.preferred_location) = (ForebayLocation::Device as u32, 1);
        })
        .unwrap();
        let buffer = resource.allocate(MIB, LEGACY).unwrap();
        buffer.fill(0x5a, 1).unwrap();
        let copy = buffer.copy().unwrap();
        synchronize();
        copy.holds(0x5a);
    });
}
