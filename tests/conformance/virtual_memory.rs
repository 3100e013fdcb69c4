//! Checks of virtual memory with all its options, of peers, and of what names a device.

use std::collections::HashSet;

use forebay::driver::{Access, Capabilities, Driver, ErrorKind, PhysicalOptions, Place, Share};
use forebay::units::{Address, DeviceId};

use super::kit::{DEVICE, Stream, granule, ok, pattern, read, refused, write};

const OWN: Place = Place::Device(DEVICE);

fn capabilities(driver: &dyn Driver) -> Capabilities {
    ok("capabilities", driver.capabilities(DEVICE))
}

/// Physical memory of a kind, mapped, with the access named; taken apart at the end.
struct Kind<'a> {
    driver: &'a dyn Driver,
    at: Address,
    bytes: u64,
}

impl<'a> Kind<'a> {
    fn new(driver: &'a dyn Driver, options: &PhysicalOptions, access: &[(Place, Access)]) -> Self {
        let bytes = ok("granularity", driver.granularity(DEVICE, options, false));
        let at = ok("reserve_at", driver.reserve_at(DEVICE, bytes, 0, Address(0)));
        let physical = ok("create_with", driver.create_with(DEVICE, bytes, options));
        ok("map", driver.map(DEVICE, at, bytes, physical));
        ok("release", driver.release(DEVICE, physical));
        ok("grant_access", driver.grant_access(DEVICE, at, bytes, access));
        Self { driver, at, bytes }
    }
}

impl Drop for Kind<'_> {
    fn drop(&mut self) {
        let _ = self.driver.unmap(DEVICE, self.at, self.bytes);
        let _ = self.driver.unreserve(DEVICE, self.at, self.bytes);
    }
}

pub(super) fn granularities_make_sense(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let options = PhysicalOptions { place: OWN, share: Share::None, rdma: false };
    let minimum = ok("granularity", driver.granularity(DEVICE, &options, false));
    let recommended = ok("granularity, recommended", driver.granularity(DEVICE, &options, true));
    assert!(minimum.is_power_of_two() && recommended.is_power_of_two(), "{minimum}, {recommended}");
    assert!(minimum <= recommended && minimum <= granule, "{minimum}, {recommended}; capabilities say {granule}");
}

pub(super) fn every_kind_of_device_memory_works(driver: &dyn Driver) {
    if granule(driver).is_none() {
        return;
    }
    let found = capabilities(driver);
    let shares =
        [(Share::None, true), (Share::Fd, found.posix_fd), (Share::Fabric, found.fabric && has_channel(driver))];
    for (share, _) in shares.into_iter().filter(|&(_, possible)| possible) {
        for rdma in [false, true].into_iter().filter(|&rdma| !rdma || found.rdma) {
            let kind = Kind::new(driver, &PhysicalOptions { place: OWN, share, rdma }, &[(OWN, Access::ReadWrite)]);
            let data = pattern(0x21, 4096);
            write(driver, kind.at, &data);
            assert!(read(driver, kind.at, 4096) == data, "memory of {share:?}, rdma {rdma} does not keep its data");
        }
    }
}

/// Whether fabric memory can be created: what capabilities allow may still lack an IMEX channel.
fn has_channel(driver: &dyn Driver) -> bool {
    let options = PhysicalOptions { place: OWN, share: Share::Fabric, rdma: false };
    let Some(granule) = granule(driver) else { return false };
    match driver.create_with(DEVICE, granule, &options) {
        Ok(physical) => {
            ok("release", driver.release(DEVICE, physical));
            true
        }
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            eprintln!("skipped: {error}");
            false
        }
    }
}

pub(super) fn what_capabilities_deny_is_refused(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let found = capabilities(driver);
    let create = |place, share| driver.create_with(DEVICE, granule, &PhysicalOptions { place, share, rdma: false });
    // Memory at no node in particular is there on some drivers; where it is, it cannot leave the process.
    if let Ok(physical) = create(Place::Host, Share::None) {
        ok("release", driver.release(DEVICE, physical));
    }
    assert!(create(Place::Host, Share::Fd).is_err(), "memory at {} that can be shared", Place::Host);
    if !found.fabric {
        refused("fabric memory", ErrorKind::Unsupported, create(OWN, Share::Fabric));
    }
    if !found.posix_fd {
        assert!(create(OWN, Share::Fd).is_err(), "capabilities deny shareable memory, and there is some");
    }
    assert!(create(Place::HostNuma(10_000), Share::None).is_err(), "memory on NUMA node 10000");
}

pub(super) fn memory_of_a_numa_node_is_the_hosts_and_the_devices(driver: &dyn Driver) {
    let found = capabilities(driver);
    let Some(node) = found.numa_node.filter(|_| found.host_numa) else {
        eprintln!("skipped: device 0 has no physical memory on NUMA nodes of the host");
        return;
    };
    let place = Place::HostNuma(node);
    let options = PhysicalOptions { place, share: Share::None, rdma: false };
    let kind = Kind::new(driver, &options, &[(OWN, Access::ReadWrite), (place, Access::ReadWrite)]);
    let data = pattern(0x31, 4096);
    // SAFETY: memory of the host that its threads were just given; nothing else uses it.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), kind.at.0 as *mut u8, data.len()) };
    assert!(read(driver, kind.at, 4096) == data, "the device does not see what the host wrote");
    let data = pattern(0x32, 4096);
    write(driver, kind.at, &data);
    // SAFETY: as above, and the copy has ended.
    let seen = unsafe { std::slice::from_raw_parts(kind.at.0 as *const u8, 4096) };
    assert!(seen == data, "the host does not see what the device wrote");
}

pub(super) fn hints_and_alignments_are_kept(driver: &dyn Driver) {
    let Some(granule) = granule(driver) else { return };
    let first = ok("reserve_at", driver.reserve_at(DEVICE, granule, 0, Address(0)));
    let second = ok("reserve_at where it is taken", driver.reserve_at(DEVICE, granule, 0, first));
    assert_ne!(first, second, "two reservations of one place");
    let aligned = ok("reserve_at, aligned", driver.reserve_at(DEVICE, granule, 16 * granule, Address(0)));
    assert!(aligned.0.is_multiple_of(16 * granule), "{aligned} is not aligned to {}", 16 * granule);
    for at in [first, second, aligned] {
        assert!(at.0.is_multiple_of(granule), "{at} is not aligned to {granule}");
        ok("unreserve", driver.unreserve(DEVICE, at, granule));
    }
    for wrong in [0, granule / 2, granule + 512] {
        refused("reserve_at", ErrorKind::Invalid, driver.reserve_at(DEVICE, wrong, 0, Address(0)));
    }
}

pub(super) fn access_that_is_not_named_stays(driver: &dyn Driver) {
    if granule(driver).is_none() {
        return;
    }
    let itself = ok("can_access_peer", driver.can_access_peer(DEVICE, DEVICE));
    assert!(itself, "a device cannot reach its own memory");
    refused("can_access_peer", ErrorKind::Invalid, driver.can_access_peer(DEVICE, DeviceId(driver.device_count())));
    let options = PhysicalOptions { place: OWN, share: Share::None, rdma: false };
    let kind = Kind::new(driver, &options, &[(OWN, Access::ReadWrite)]);
    let data = pattern(0x41, 4096);
    write(driver, kind.at, &data);
    let half = driver.grant_access(DEVICE, kind.at, kind.bytes / 2, &[(OWN, Access::ReadWrite)]);
    assert!(half.is_err(), "access to half of a handle");
    let peer = DeviceId(1);
    if driver.device_count() < 2 || !ok("can_access_peer", driver.can_access_peer(DEVICE, peer)) {
        eprintln!("skipped: device 0 has no peer");
        return;
    }
    let access = [(Place::Device(peer), Access::ReadWrite)];
    ok("grant_access to a peer", driver.grant_access(DEVICE, kind.at, kind.bytes, &access));
    let stream = ok("stream_create on the peer", driver.stream_create(peer));
    ok("fill by the peer", driver.fill(peer, kind.at, 9, 1024, stream));
    ok("stream_synchronize on the peer", driver.stream_synchronize(peer, stream));
    ok("stream_destroy on the peer", driver.stream_destroy(peer, stream));
    let seen = read(driver, kind.at, 4096);
    assert!(seen[..1024] == [9; 1024] && seen[1024..] == data[1024..], "what the peer filled is not what is seen");
}

pub(super) fn a_device_has_a_name_of_its_own(driver: &dyn Driver) {
    let names: Vec<[u8; 16]> =
        (0..driver.device_count()).map(|device| ok("device_uuid", driver.device_uuid(DeviceId(device)))).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "two devices of one name: {names:?}");
    assert_eq!(names[0], ok("device_uuid again", driver.device_uuid(DEVICE)));
    assert_ne!(names[0], [0; 16]);
}

pub(super) fn patterns_are_filled(driver: &dyn Driver) {
    let at = ok("allocate", driver.allocate(DEVICE, 4096));
    let stream = Stream::new(driver);
    for (width, unit) in [(1u32, &[0x44u8][..]), (2, &[0x44, 0x33]), (4, &[0x44, 0x33, 0x22, 0x11])] {
        ok("fill", driver.fill(DEVICE, at, 0xee, 4096, stream.1));
        ok("fill_pattern", driver.fill_pattern(DEVICE, at.plus(8), 0x1122_3344, width, 1000, stream.1));
        ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
        let seen = read(driver, at, 4096);
        let filled = seen[8..1008].chunks(unit.len()).all(|found| found == unit);
        let kept = seen[..8].iter().chain(&seen[1008..]).all(|&byte| byte == 0xee);
        assert!(filled && kept, "a pattern of {width} bytes: filled {filled}, kept the rest {kept}");
    }
    for (to, width, bytes) in [(0, 3, 12), (0, 0, 8), (0, 8, 8), (2, 4, 8), (1, 2, 8), (0, 2, 7)] {
        let call = driver.fill_pattern(DEVICE, at.plus(to), 0, width, bytes, stream.1);
        refused("fill_pattern", ErrorKind::Invalid, call);
    }
    ok("free", driver.free(DEVICE, at));
}
