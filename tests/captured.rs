//! Memory for captures that nobody announced.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::sync::Arc;

use forebay::driver::Driver;
use forebay::driver::host::{HostDriver, HostOptions};
use forebay::resource::{Error, Options, Pool};
use forebay::units::DeviceId;

const MIB: u64 = 1 << 20;
const HOME: DeviceId = DeviceId(0);

fn pool(options: Options) -> (Arc<HostDriver>, Arc<Pool>) {
    let driver = Arc::new(HostDriver::new(HostOptions { capacity: 8 << 30, ..HostOptions::default() }).unwrap());
    let pool = Pool::with_driver(Arc::clone(&driver) as Arc<dyn Driver>, options).unwrap();
    (driver, pool)
}

#[test]
fn a_capture_keeps_what_it_took_until_it_is_released() {
    let (driver, pool) = pool(Options::default());
    let stream = driver.stream_create(HOME).unwrap();
    let first = pool.malloc_also_captured(4 * MIB, 0, stream, 2).unwrap();
    pool.free(first, stream).unwrap();

    driver.begin_capture(HOME, stream).unwrap();
    assert!(matches!(pool.malloc(MIB, 0, stream, 2), Err(Error::Capturing(_))), "the plain call still refuses");
    let inside = pool.malloc_also_captured(2 * MIB, 0, stream, 2).unwrap();
    pool.free(inside, stream).unwrap();
    assert_eq!(pool.malloc_also_captured(2 * MIB, 0, stream, 2).unwrap(), inside, "used again within the capture");
    pool.free(inside, stream).unwrap();
    let kept = pool.malloc_also_captured(MIB, 0, stream, 2).unwrap();
    driver.end_capture(HOME, stream).unwrap();

    // Everything that others can get, and none of it is the graph's.
    let others: Vec<_> = (0..64).map(|_| pool.malloc_also_captured(2 * MIB, 0, stream, 2).unwrap()).collect();
    assert!(!others.contains(&inside));
    others.into_iter().for_each(|block| pool.free(block, stream).unwrap());

    driver.begin_capture(HOME, stream).unwrap();
    let second = pool.malloc_also_captured(2 * MIB, 0, stream, 2).unwrap();
    assert_ne!(second, inside, "another capture has memory of its own");
    pool.free(second, stream).unwrap();
    driver.end_capture(HOME, stream).unwrap();

    let private = pool.stats(0).unwrap().private_free;
    assert!(private >= 3 * MIB, "{private}");
    assert_eq!(pool.release_captures(0).unwrap(), 2);
    assert_eq!(pool.release_captures(0).unwrap(), 0);
    pool.free(kept, stream).unwrap();
    assert_eq!((pool.stats(0).unwrap().private_free, pool.stats(0).unwrap().live), (0, 0));
    pool.trim(0, 0).unwrap();
    assert_eq!(pool.stats(0).unwrap().physical, 0);
    pool.check(0).unwrap();
}

#[test]
fn memory_freed_on_another_stream_of_the_capture_waits_for_its_release() {
    let (driver, pool) = pool(Options::default());
    let (one, other) = (driver.stream_create(HOME).unwrap(), driver.stream_create(HOME).unwrap());
    driver.begin_capture(HOME, one).unwrap();
    let block = pool.malloc_also_captured(2 * MIB, 0, one, 2).unwrap();
    pool.free(block, other).unwrap();
    assert_ne!(pool.malloc_also_captured(2 * MIB, 0, one, 2).unwrap(), block, "the other stream may use it later");
    driver.end_capture(HOME, one).unwrap();
    pool.check(0).unwrap();
}
