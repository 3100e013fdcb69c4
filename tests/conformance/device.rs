//! Checks of devices.

use forebay::driver::{Driver, ErrorKind, HostFlags};
use forebay::units::{Address, DeviceId};

use super::kit::{DEVICE, ok, refused};

pub(super) fn capabilities_make_sense(driver: &dyn Driver) {
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

pub(super) fn a_device_out_of_range_is_refused(driver: &dyn Driver) {
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
