//! Memory freed on another stream than its own, with the work of both held back.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use std::sync::Arc;

use forebay::driver::host::{Call, HostDriver, HostOptions};
use forebay::driver::{Driver, PoolAttribute};
use forebay::error::Error;
use forebay::resource::driver_pool::{DeviceOptions, PinnedOptions, Source, device, pinned};
use forebay::resource::memory_resource::MemoryResource;
use forebay::resource::stream_tracking::StreamTracking;
use forebay::units::StreamHandle;

use kit::driver::{self, HOME, LEGACY, host};
use kit::memory::MIB;
use kit::streams::{LateRead, write_early};

/// A pool of the driver on which streams run only when stepped.
fn held_back(options: HostOptions) -> (Arc<HostDriver>, Arc<StreamTracking>) {
    let driver = host(driver::held_back(options));
    let own = DeviceOptions { source: Source::New, max_size: 2 * MIB, ..DeviceOptions::default() };
    let resource: Arc<dyn MemoryResource> = device(driver.clone(), 0, own).unwrap();
    (driver, StreamTracking::of(&resource).unwrap())
}

/// Frees a block, which its stream has yet to read, on `freed_on`; whoever gets the memory writes to it at once.
#[track_caller]
fn is_read_in_time(driver: &HostDriver, pool: &StreamTracking, freed_on: StreamHandle, destroyed: bool) {
    let own = driver.stream_create(HOME).unwrap();
    let block = pool.malloc(2 * MIB, 0, own).unwrap();
    driver.fill(HOME, block, 1, 2 * MIB, own).unwrap();
    let read = LateRead::of(driver, block, 4096, own);
    if destroyed {
        driver.stream_destroy(HOME, own).unwrap();
    }
    pool.free(block, freed_on).unwrap();
    let next = pool.malloc(2 * MIB, 0, LEGACY).unwrap();
    write_early(driver, next, 2 * MIB, LEGACY);
    read.was_in_time();
    pool.free(next, LEGACY).unwrap();
    driver.run_all();
    assert_eq!(pool.used().unwrap(), 0);
}

#[test]
fn a_free_elsewhere_waits_for_the_stream_of_the_allocation_dead_or_alive() {
    for device_events in [true, false] {
        let (driver, pool) = held_back(HostOptions { device_events, ..HostOptions::default() });
        for destroyed in [false, true] {
            for _ in 0..5 {
                is_read_in_time(&driver, &pool, LEGACY, destroyed);
            }
        }
    }
}

#[test]
fn who_waits_for_the_stream_of_the_free_has_the_memory() {
    for device_events in [true, false] {
        let (driver, pool) = held_back(HostOptions { device_events, ..HostOptions::default() });
        let (own, current) = (driver.stream_create(HOME).unwrap(), driver.stream_create(HOME).unwrap());
        let block = pool.malloc(MIB, 0, own).unwrap();
        driver.fill(HOME, block, 1, MIB, own).unwrap();
        let read = LateRead::of(&driver, block, 4096, own);
        pool.free(block, current).unwrap();
        assert!(!device_events || pool.used().unwrap() >= MIB, "its own stream has work on it");
        driver.stream_synchronize(HOME, current).unwrap();
        assert_eq!(pool.used().unwrap(), 0, "it was freed on another stream than the one it was freed on");
        read.was_in_time();
    }
}

#[test]
fn a_pointer_goes_back_behind_the_work_of_its_own_stream() {
    let driver = host(driver::held_back(HostOptions::default()));
    let pools: [Arc<dyn MemoryResource>; 2] = [
        device(driver.clone(), 0, DeviceOptions { source: Source::New, ..DeviceOptions::default() }).unwrap(),
        pinned(driver.clone(), PinnedOptions { source: Source::New, ..PinnedOptions::default() }).unwrap(),
    ];
    for pool in pools {
        let used = || pool.attribute(PoolAttribute::UsedCurrent).unwrap();
        let own = driver.stream_create(HOME).unwrap();
        let at = pool.allocate_pointer(MIB, own).unwrap();
        driver.fill(HOME, at, 1, MIB, own).unwrap();
        driver.fail(Call::PoolFree, 1);
        assert!(pool.deallocate_pointer(at, MIB, None).is_err());
        driver.clear_faults();
        pool.deallocate_pointer(at, MIB, None).unwrap();
        assert!(matches!(pool.deallocate_pointer(at, MIB, None), Err(Error::BadFree(_))));
        driver.stream_synchronize(HOME, LEGACY).unwrap();
        assert_eq!(used(), MIB, "its own stream still writes there");
        driver.stream_synchronize(HOME, own).unwrap();
        assert_eq!(used(), 0);
    }
}

#[test]
fn a_free_that_fails_leaves_the_block_live() {
    let (driver, pool) = held_back(HostOptions::default());
    let block = pool.malloc(MIB, 0, LEGACY).unwrap();
    driver.fail(Call::PoolFree, 1);
    assert!(pool.free(block, LEGACY).is_err());
    driver.clear_faults();
    assert_eq!(pool.size_of(block), Some(MIB));
    pool.free(block, LEGACY).unwrap();
    assert!(matches!(pool.free(block, LEGACY), Err(Error::BadFree(_))));
    driver.run_all();
    assert_eq!(pool.used().unwrap(), 0);
}
