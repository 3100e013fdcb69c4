//! A libcuda that lacks the newer functions, a device, or what every one has.

use forebay::driver::{Choice, Driver, DriverError, ErrorKind, Event, Place, PoolOptions, open};

use crate::calls::POOL;
use crate::fake::Fake;
use crate::{DEVICE, STREAM};

const POOLS: PoolOptions =
    PoolOptions { place: Some(Place::Device(DEVICE)), managed: false, share: false, max_size: 0 };

fn unsupported(error: &DriverError, text: &str) {
    assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::Unsupported, text), "{error}");
}

/// What host and managed pools answer before 13.0.
fn no_place_pools(driver: &dyn Driver, text: &str) {
    for place in [Some(Place::Host), Some(Place::HostNuma(0))] {
        unsupported(&driver.pool_default(DEVICE, place, false).unwrap_err(), text);
    }
    unsupported(&driver.pool_current(DEVICE, None, true).unwrap_err(), text);
}

#[test]
#[ignore = "a_libcuda_of_12_4 runs it in a process of its own"]
fn child_12() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let driver = &*driver;
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.driver_pools && found.pool_fd && found.managed && found.legacy_ipc, "{found:?}");
    assert!(!found.host_numa && !found.host_pools && !found.managed_pools, "{found:?}");
    assert_eq!(found.numa_node, Some(1));
    assert_eq!(driver.device_uuid(DEVICE).unwrap()[..3], [170, 171, 172]);
    let text = "needs driver API 13.0 or newer, this is 12.4";
    no_place_pools(driver, text);
    let managed = PoolOptions { place: None, managed: true, ..POOLS };
    unsupported(&driver.pool_create(DEVICE, &managed).unwrap_err(), text);
    assert!(fake.calls().iter().all(|call| !call.starts_with("cuMemPoolCreate")));
    driver.pool_default(DEVICE, POOLS.place, false).unwrap();
    driver.pool_create(DEVICE, &PoolOptions { max_size: 1 << 30, ..POOLS }).unwrap();
}

#[test]
#[ignore = "a_libcuda_of_10_2 runs it in a process of its own"]
fn child_oldest() {
    let driver = open(Choice::Cuda).unwrap();
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.vmm && found.managed && !found.driver_pools && !found.legacy_ipc, "{found:?}");
    let text = "needs driver API 11.0 or newer, this is 10.2";
    unsupported(&driver.ipc_export(DEVICE, forebay::units::Address(0xa000)).unwrap_err(), text);
    unsupported(&driver.ipc_open(DEVICE, &[0; 64]).unwrap_err(), text);
}

#[test]
#[ignore = "a_libcuda_from_before_the_newer_functions runs it in a process of its own"]
fn child_old() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.vmm && !found.stream_identity && !found.driver_pools, "{found:?}");
    assert_eq!(driver.device_uuid(DEVICE).unwrap()[..3], [70, 71, 72]);
    fake.set(b"fake_capture", 1);
    for (error, text) in [
        (driver.stream_identity(DEVICE, STREAM).unwrap_err(), "needs driver API 12.0 or newer, this is 11.1"),
        (driver.event_record_all(DEVICE, Event(0xe000)).unwrap_err(), "needs driver API 12.5 or newer, this is 11.1"),
        (driver.pool_create(DEVICE, &POOLS).unwrap_err(), "needs driver API 11.2 or newer, this is 11.1"),
        (driver.pool_trim(DEVICE, POOL, 0).unwrap_err(), "needs driver API 11.2 or newer, this is 11.1"),
        (driver.trim_driver_pools(DEVICE).unwrap_err(), "needs driver API 11.2 or newer, this is 11.1"),
        (driver.stream_capture(DEVICE, STREAM).unwrap_err(), "needs driver API 11.3 or newer, this is 11.1"),
    ] {
        unsupported(&error, text);
    }
    no_place_pools(&*driver, "needs driver API 11.2 or newer, this is 11.1");
}

#[test]
#[ignore = "its parents run it in a process of its own"]
fn child_broken() {
    let expected = std::env::var("EXPECT").expect("run by its parent test");
    let error = open(Choice::Cuda).expect_err("CUDA is unusable");
    assert_eq!(error.kind, ErrorKind::NoDriver, "{error}");
    let text = error.to_string();
    assert!(text.contains(&expected) && text.contains("FOREBAY_DRIVER=host"), "{text}");
}
