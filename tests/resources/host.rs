//! Page-locked host memory without streams.

use crate::kit::resources::*;
use crate::pinned::round_trip;

#[test]
fn it_keeps_data_and_says_what_it_is() {
    let resource = Resource::host(|_| ()).unwrap();
    let info = resource.info();
    assert_eq!((info.kind, info.device_id, info.handle), (Kind::Host as u32, -1, 0));
    assert_eq!((info.is_host_accessible, info.is_device_accessible, info.is_managed), (1, 1, 0));
    keeps_data(&resource, MIB + 8);
    round_trip(&resource);
    let by_default = Resource::made(|out| unsafe {
        forebay::abi::resource::create::forebay_host_resource_create(std::ptr::null(), out)
    })
    .unwrap();
    round_trip(&by_default);
}

#[test]
fn its_flags_are_said_and_do_not_touch_the_data() {
    for (portable, mapped, write_combined) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)] {
        let resource = Resource::host(|options| {
            (options.portable, options.mapped, options.write_combined) = (portable, mapped, write_combined);
        })
        .unwrap();
        assert_eq!(resource.info().is_device_accessible, mapped);
        assert_eq!(resource.peer_access(DEVICE).unwrap() != 0, mapped == 1);
        keeps_data(&resource, 64 << 10);
    }
    refused(Resource::host(|options| options.mapped = 2), Status::InvalidArgument, &["mapped", "2"]);
    refused(Resource::host(|options| options.device = 99), Status::BadDevice, &["99"]);
}

#[test]
fn it_has_no_pool_and_is_not_shared() {
    let resource = Resource::host(|_| ()).unwrap();
    refused(resource.attribute(Attribute::UsedMemCurrent), Status::Unsupported, &["pool"]);
    refused(resource.set_attribute(Attribute::ReleaseThreshold, 1), Status::Unsupported, &["pool"]);
    refused(resource.allocation_handle(), Status::Unsupported, &["pool"]);
    refused(resource.set_peer_access(DEVICE, ForebayAccess::Read), Status::Unsupported, &[]);
    resource.trim(0).unwrap();
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    refused(buffer.descriptor(), Status::NotPermitted, &["shared"]);
    refused(resource.modify(&buffer, 2 * MIB, None), Status::Unsupported, &["virtual memory"]);
    resource.close().unwrap();
    refused(resource.allocate(MIB, LEGACY), Status::Closed, &[]);
    buffer.write_pattern(1);
    buffer.holds_pattern(1, MIB);
    drop(resource);
    buffer.close().unwrap();
}
