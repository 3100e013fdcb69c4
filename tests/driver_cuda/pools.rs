//! The driver's pools, as libcuda is told of them.

use forebay::driver::{Access, Choice, ErrorKind, Place, PoolAttribute, PoolHandle, PoolOptions, open};
use forebay::units::{Address, DeviceId};

use crate::calls::POOL;
use crate::fake::Fake;
use crate::{DEVICE, STREAM};

const PLAIN: PoolOptions =
    PoolOptions { place: Some(Place::Device(DEVICE)), managed: false, share: false, max_size: 0 };
const OTHER: Place = Place::Device(DeviceId(1));

#[test]
#[ignore = "driver_pools runs it in a process of its own"]
fn child_pools() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();

    // Every driver that has pools tells a device's; the others have to be asked for by place.
    for (place, managed, seen, default, current) in [
        (Some(OTHER), false, "device=71", 0xb0, 0xb1),
        (Some(OTHER), true, "place=1:71 type=2", 0xb4, 0xb5),
        (None, true, "place=0:0 type=2", 0xb4, 0xb5),
        (Some(Place::Host), false, "place=2:0 type=1", 0xb4, 0xb5),
        (Some(Place::HostNuma(1)), false, "place=3:1 type=1", 0xb4, 0xb5),
        (Some(Place::Host), true, "place=2:0 type=2", 0xb4, 0xb5),
    ] {
        assert_eq!(driver.pool_default(DEVICE, place, managed).unwrap(), PoolHandle(default));
        assert_eq!(fake.said(), seen);
        assert_eq!(driver.pool_current(DEVICE, place, managed).unwrap(), PoolHandle(current));
        assert_eq!(fake.said(), seen);
    }

    for (options, seen) in [
        (PLAIN, "type=1 handles=0 place=1:70 most=0 rest=0"),
        (PoolOptions { share: true, max_size: 1 << 33, ..PLAIN }, "type=1 handles=1 place=1:70 most=8589934592 rest=0"),
        (PoolOptions { place: Some(Place::Host), ..PLAIN }, "type=1 handles=0 place=2:0 most=0 rest=0"),
        (
            PoolOptions { place: Some(Place::HostNuma(1)), share: true, ..PLAIN },
            "type=1 handles=1 place=3:1 most=0 rest=0",
        ),
        (PoolOptions { place: None, managed: true, ..PLAIN }, "type=2 handles=0 place=0:0 most=0 rest=0"),
        (PoolOptions { place: Some(OTHER), managed: true, ..PLAIN }, "type=2 handles=0 place=1:71 most=0 rest=0"),
    ] {
        assert_eq!(driver.pool_create(DEVICE, &options).unwrap(), POOL);
        assert_eq!(fake.said(), seen);
    }
    fake.calls();
    for (options, kind) in [
        (PoolOptions { place: None, ..PLAIN }, ErrorKind::Invalid),
        (PoolOptions { managed: true, max_size: 1, ..PLAIN }, ErrorKind::Invalid),
        (PoolOptions { managed: true, share: true, ..PLAIN }, ErrorKind::Unsupported),
        (PoolOptions { place: Some(Place::Host), share: true, ..PLAIN }, ErrorKind::Unsupported),
    ] {
        let error = driver.pool_create(DEVICE, &options).unwrap_err();
        assert_eq!((error.kind, error.code), (kind, 0), "{error}");
    }
    assert_eq!(driver.pool_default(DEVICE, None, false).unwrap_err().kind, ErrorKind::Invalid);
    assert!(fake.calls().is_empty(), "libcuda was asked");

    // The first three are an `int`: what is read beside one is not part of it.
    for (attribute, value) in [
        (PoolAttribute::ReuseFollowEventDependencies, 1),
        (PoolAttribute::ReuseAllowOpportunistic, 0),
        (PoolAttribute::ReuseAllowInternalDependencies, 1),
        (PoolAttribute::ReleaseThreshold, (1 << 40) + 4),
        (PoolAttribute::UsedHigh, (1 << 40) + 8),
    ] {
        assert_eq!(driver.pool_attribute(DEVICE, POOL, attribute).unwrap(), value, "{attribute:?}");
    }
    for (attribute, value, seen) in [
        (PoolAttribute::ReuseAllowOpportunistic, 1, "2=1"),
        (PoolAttribute::ReleaseThreshold, u64::MAX, "4=18446744073709551615"),
        (PoolAttribute::ReservedHigh, 0, "6=0"),
    ] {
        driver.pool_set_attribute(DEVICE, POOL, attribute, value).unwrap();
        assert_eq!(fake.said(), seen);
    }
    fake.calls();
    for (attribute, value) in [
        (PoolAttribute::ReuseAllowOpportunistic, 1 << 32),
        (PoolAttribute::ReservedCurrent, 0),
        (PoolAttribute::UsedCurrent, 0),
        (PoolAttribute::UsedHigh, 1),
    ] {
        let error = driver.pool_set_attribute(DEVICE, POOL, attribute, value).unwrap_err();
        assert_eq!((error.kind, error.code), (ErrorKind::Invalid, 0), "{error}");
    }
    assert!(fake.calls().is_empty(), "libcuda was asked");

    for (flags, access) in [(0, Access::None), (1, Access::Read), (3, Access::ReadWrite)] {
        fake.set(b"fake_access", flags);
        assert_eq!(driver.pool_access(DEVICE, POOL, Place::HostNuma(1)).unwrap(), access);
        assert_eq!(fake.said(), "pool=0xb2 place=3:1");
        driver.pool_set_access(DEVICE, POOL, OTHER, access).unwrap();
        assert_eq!(fake.said(), format!("pool=0xb2 1:71={flags} count=1"));
    }
    fake.set(b"fake_access", 9);
    assert_eq!(driver.pool_access(DEVICE, POOL, OTHER).unwrap_err().kind, ErrorKind::Failed);

    assert_eq!(driver.pool_allocate(DEVICE, POOL, 1 << 32, STREAM).unwrap(), Address(0xa100));
    assert_eq!(fake.said(), "bytes=4294967296 pool=0xb2 stream=0x5000");
    driver.pool_free(DEVICE, Address(0xa100), STREAM).unwrap();
    assert_eq!(fake.said(), "at=a100 stream=0x5000");
    driver.pool_trim(DEVICE, POOL, 4096).unwrap();
    assert_eq!(fake.said(), "pool=0xb2 keep=4096");
    driver.pool_destroy(DEVICE, POOL).unwrap();
    assert_eq!(fake.said(), "pool=0xb2");
    fake.answer(c"cuMemAllocFromPoolAsync", 2);
    let error = driver.pool_allocate(DEVICE, POOL, 64, STREAM).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
    assert!(error.detail.contains("asked for 64 bytes of pool 0xb2 on stream 0x5000"), "{error}");
}

#[test]
#[ignore = "driver_pools_of_devices_that_can_do_little runs it in a process of its own"]
fn child_lacking() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.driver_pools && !found.pool_fd && !found.host_pools && !found.managed_pools, "{found:?}");
    fake.calls();
    for (options, text) in [
        (PoolOptions { share: true, ..PLAIN }, "file descriptor"),
        (PoolOptions { place: Some(Place::Host), ..PLAIN }, "host memory"),
        (PoolOptions { place: Some(Place::HostNuma(0)), ..PLAIN }, "NUMA node"),
    ] {
        let error = driver.pool_create(DEVICE, &options).unwrap_err();
        assert_eq!((error.kind, error.code), (ErrorKind::Unsupported, 0), "{error}");
        assert!(error.detail.contains(text), "{error}");
    }
    // Pools of the host could be had from libcuda here, but not used.
    assert_eq!(driver.pool_current(DEVICE, Some(Place::Host), false).unwrap_err().kind, ErrorKind::Unsupported);
    assert!(fake.calls().is_empty(), "libcuda was asked");
}
