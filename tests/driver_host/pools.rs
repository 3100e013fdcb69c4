//! Stream-ordered pools: order, attributes, limits, access.

use std::sync::Arc;

use forebay::driver::host::{Clock, HostDriver};
use forebay::driver::{
    Access, Driver, ErrorKind, Place, PoolAttribute as Attribute, PoolHandle, PoolOptions, Pools, Result,
};
use forebay::units::{Address, StreamHandle};

use crate::{DEVICE, LEGACY, MIB, PEER, byte, driver, invalid, put, refused};

const PLAIN: PoolOptions =
    PoolOptions { place: Some(Place::Device(DEVICE)), managed: false, share: false, max_size: 0 };

fn with_pool(clock: Clock, options: PoolOptions) -> (Arc<HostDriver>, PoolHandle, StreamHandle) {
    let driver = driver(clock);
    let (pool, stream) = (driver.pool_create(DEVICE, &options).unwrap(), driver.stream_create(DEVICE).unwrap());
    (driver, pool, stream)
}

/// Reserved and used bytes, and their highest values.
fn figures(driver: &HostDriver, pool: PoolHandle) -> [u64; 4] {
    let read = |attribute| driver.pool_attribute(DEVICE, pool, attribute).unwrap();
    [Attribute::ReservedCurrent, Attribute::UsedCurrent, Attribute::ReservedHigh, Attribute::UsedHigh].map(read)
}

#[test]
fn a_free_waits_for_its_turn_on_the_stream() {
    let (driver, pool, stream) = with_pool(Clock::Manual, PLAIN);
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    put(at, 5);
    let plain = driver.allocate(DEVICE, 4096).unwrap();
    driver.copy(DEVICE, plain, at, 4096, stream).unwrap();
    driver.pool_free(DEVICE, at, stream).unwrap();
    assert_eq!((byte(at), driver.usage().pool_allocations), (5, 1), "its turn has not come");
    invalid(driver.pool_free(DEVICE, at, stream), "freed before");
    invalid(driver.copy(DEVICE, plain, at.plus(512), 512, LEGACY), "was freed");
    invalid(driver.fill(DEVICE, at, 1, 512, stream), "was freed");
    driver.stream_synchronize(DEVICE, stream).unwrap();
    assert_eq!((byte(plain), driver.bad_accesses(), driver.usage().pool_allocations), (5, 0, 0));
    invalid(driver.pool_free(DEVICE, at, stream), "not the start of a pool's");
    invalid(driver.fill(DEVICE, at, 1, 512, stream), "freed before, or never made");
}

#[test]
fn work_behind_the_free_without_an_order_is_noticed_and_harmless() {
    let (driver, pool, stream) = with_pool(Clock::Manual, PLAIN);
    let other = driver.stream_create(DEVICE).unwrap();
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    driver.fill(DEVICE, at, 1, MIB, other).unwrap();
    driver.pool_free(DEVICE, at, stream).unwrap();
    driver.stream_synchronize(DEVICE, stream).unwrap();
    driver.stream_synchronize(DEVICE, other).unwrap();
    assert_eq!(driver.bad_accesses(), 1);
}

#[test]
fn a_pool_keeps_up_to_its_threshold_until_a_synchronisation() {
    let (driver, pool, stream) = with_pool(Clock::Immediate, PLAIN);
    let allocate = || driver.pool_allocate(DEVICE, pool, 4 * MIB, stream).unwrap();
    let (first, second) = (allocate(), allocate());
    assert_eq!(figures(&driver, pool), [8 * MIB; 4]);
    driver.pool_free(DEVICE, first, stream).unwrap();
    assert_eq!(figures(&driver, pool), [8 * MIB, 4 * MIB, 8 * MIB, 8 * MIB], "kept so far");
    assert_eq!(driver.usage().bytes, 8 * MIB);
    driver.stream_synchronize(DEVICE, stream).unwrap();
    assert_eq!(figures(&driver, pool), [4 * MIB, 4 * MIB, 8 * MIB, 8 * MIB]);
    driver.pool_set_attribute(DEVICE, pool, Attribute::ReleaseThreshold, 3 * MIB).unwrap();
    driver.pool_free(DEVICE, second, stream).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(figures(&driver, pool)[..2], [3 * MIB, 0]);
    let third = allocate();
    assert_eq!(figures(&driver, pool)[..2], [4 * MIB, 4 * MIB], "what was kept was used");
    driver.pool_free(DEVICE, third, stream).unwrap();
    driver.pool_trim(DEVICE, pool, MIB).unwrap();
    assert_eq!(figures(&driver, pool)[..2], [MIB, 0]);
    driver.pool_trim(DEVICE, pool, 2 * MIB).unwrap();
    assert_eq!(figures(&driver, pool)[0], MIB, "a trim takes nothing new");
    driver.pool_destroy(DEVICE, pool).unwrap();
    assert_eq!(driver.usage().bytes, 0);
}

#[test]
fn attributes_take_what_cuda_lets_them_take() {
    let (driver, pool, stream) = with_pool(Clock::Immediate, PLAIN);
    let read = |attribute| driver.pool_attribute(DEVICE, pool, attribute).unwrap();
    let write = |attribute, value| driver.pool_set_attribute(DEVICE, pool, attribute, value);
    for reuse in [
        Attribute::ReuseFollowEventDependencies,
        Attribute::ReuseAllowOpportunistic,
        Attribute::ReuseAllowInternalDependencies,
    ] {
        assert_eq!(read(reuse), 1);
        write(reuse, 0).unwrap();
        assert_eq!(read(reuse), 0);
        invalid(write(reuse, 2), "0 and 1");
    }
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    driver.pool_free(DEVICE, at, stream).unwrap();
    for high in [Attribute::ReservedHigh, Attribute::UsedHigh] {
        assert_eq!(read(high), MIB);
        invalid(write(high, 1), "only 0");
        write(high, 0).unwrap();
    }
    assert_eq!((read(Attribute::ReservedHigh), read(Attribute::UsedHigh)), (MIB, 0), "the present values");
    for current in [Attribute::ReservedCurrent, Attribute::UsedCurrent] {
        invalid(write(current, 0), "read only");
    }
    write(Attribute::ReleaseThreshold, u64::MAX).unwrap();
    driver.stream_synchronize(DEVICE, stream).unwrap();
    assert_eq!(read(Attribute::ReservedCurrent), MIB);
}

#[test]
fn limits_hold_and_what_is_being_freed_is_waited_for() {
    let (driver, pool, stream) = with_pool(Clock::Manual, PoolOptions { max_size: 4 * MIB, ..PLAIN });
    let allocate = |pool, bytes| driver.pool_allocate(DEVICE, pool, bytes, stream);
    let first = allocate(pool, 3 * MIB).unwrap();
    refused(allocate(pool, 2 * MIB), ErrorKind::OutOfMemory, "of the pool's 4.00 MiB");
    driver.pool_free(DEVICE, first, stream).unwrap();
    let second = allocate(pool, 4 * MIB).unwrap();
    assert_eq!(driver.usage().pool_allocations, 1);
    let huge = driver.pool_create(DEVICE, &PoolOptions { max_size: u64::MAX, ..PLAIN }).unwrap();
    refused(allocate(huge, 61 * MIB), ErrorKind::OutOfMemory, "device 0 has");
    let roomy = driver.pool_create(DEVICE, &PLAIN).unwrap();
    let before = driver.usage();
    refused(allocate(roomy, 61 * MIB), ErrorKind::OutOfMemory, "device 0 has 60.00 MiB free");
    invalid(allocate(roomy, 0), "0 bytes");
    invalid(allocate(roomy, u64::MAX), "more than there are addresses");
    assert_eq!(driver.usage(), before);
    driver.pool_free(DEVICE, second, stream).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(driver.usage().bytes, 0);
}

#[test]
fn a_destroyed_pools_memory_stays_until_it_is_freed() {
    let (driver, pool, stream) = with_pool(Clock::Manual, PLAIN);
    driver.pool_set_attribute(DEVICE, pool, Attribute::ReleaseThreshold, u64::MAX).unwrap();
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    let gone = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    driver.pool_free(DEVICE, gone, stream).unwrap();
    driver.stream_synchronize(DEVICE, stream).unwrap();
    driver.pool_destroy(DEVICE, pool).unwrap();
    assert_eq!((driver.usage().pools, driver.usage().bytes), (0, MIB));
    invalid(driver.pool_destroy(DEVICE, pool), "is destroyed");
    invalid(driver.pool_allocate(DEVICE, pool, MIB, stream), "is destroyed");
    put(at, 1);
    driver.pool_free(DEVICE, at, stream).unwrap();
    assert_eq!((byte(at), driver.usage().bytes), (1, MIB));
    driver.run_all();
    assert_eq!((driver.usage().bytes, driver.usage().pool_allocations), (0, 0));
}

#[test]
fn access_is_each_devices_own_and_covers_live_blocks() {
    let (driver, pool, stream) = with_pool(Clock::Immediate, PLAIN);
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    let (home, peer) = (Place::Device(DEVICE), Place::Device(PEER));
    let set = |place, access| driver.pool_set_access(DEVICE, pool, place, access);
    let get = |place| driver.pool_access(DEVICE, pool, place).unwrap();
    assert_eq!([get(home), get(peer), get(Place::Host)], [Access::ReadWrite, Access::None, Access::None]);
    let (fill, plain) = (|device| driver.fill(device, at, 1, 512, LEGACY), driver.allocate(PEER, 512).unwrap());
    invalid(fill(PEER), "has no access");
    set(peer, Access::Read).unwrap();
    invalid(fill(PEER), "may read");
    driver.copy(PEER, plain, at, 512, LEGACY).unwrap();
    set(peer, Access::ReadWrite).unwrap();
    fill(PEER).unwrap();
    set(peer, Access::None).unwrap();
    invalid(fill(PEER), "has no access");
    invalid(set(home, Access::None), "ReadWrite is all");
    invalid(set(home, Access::Read), "ReadWrite is all");
    invalid(set(Place::Host, Access::Read), "None is all");
    fill(DEVICE).unwrap();
}

#[test]
fn pools_of_the_host_and_managed_ones_count_for_the_host() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let kinds = [(Some(Place::Host), false), (Some(Place::HostNuma(1)), false), (None, true), (PLAIN.place, true)];
    for (place, managed) in kinds {
        let pool = driver.pool_create(DEVICE, &PoolOptions { place, managed, ..PLAIN }).unwrap();
        let at = driver.pool_allocate(DEVICE, pool, 128 * MIB, LEGACY).unwrap();
        assert_eq!((driver.usage().bytes, driver.usage().host_bytes), (0, 128 * MIB));
        put(at, 3);
        if !managed {
            invalid(driver.fill(DEVICE, at.plus(1), 1, 1, LEGACY), "has no access");
            invalid(driver.pool_set_access(DEVICE, pool, Place::Host, Access::None), "ReadWrite is all");
            driver.pool_set_access(DEVICE, pool, Place::Device(DEVICE), Access::ReadWrite).unwrap();
        }
        driver.fill(DEVICE, at.plus(1), 4, 1, LEGACY).unwrap();
        assert_eq!((byte(at), byte(at.plus(1))), (3, 4));
        driver.pool_free(DEVICE, at, LEGACY).unwrap();
        driver.pool_destroy(DEVICE, pool).unwrap();
        assert_eq!(driver.usage(), before);
    }
    let create =
        |place, managed, share| driver.pool_create(DEVICE, &PoolOptions { place, managed, share, max_size: 0 });
    invalid(create(None, false, false), "nowhere in particular");
    invalid(create(Some(Place::HostNumaCurrent), false, false), "must be named");
    invalid(create(Some(Place::HostNuma(2)), false, false), "node 2 of 2");
    invalid(create(Some(Place::Host), false, true), "of a device or of a NUMA node");
    invalid(create(None, true, true), "of a device or of a NUMA node");
}

#[test]
fn default_pools_are_one_for_each_place_and_stay() {
    let driver = driver(Clock::Immediate);
    let before = driver.usage();
    let kinds = [
        (Some(Place::Device(DEVICE)), false),
        (Some(Place::Device(PEER)), false),
        (Some(Place::Host), false),
        (Some(Place::HostNuma(0)), false),
        (None, true),
        (Some(Place::Device(DEVICE)), true),
    ];
    let pools = kinds.map(|(place, managed)| driver.pool_default(DEVICE, place, managed).unwrap());
    for (index, (place, managed)) in kinds.into_iter().enumerate() {
        assert_eq!(driver.pool_current(PEER, place, managed).unwrap(), pools[index]);
        assert!(!pools[..index].contains(&pools[index]));
        invalid(driver.pool_destroy(DEVICE, pools[index]), "default pool");
    }
    assert_eq!(driver.usage(), before, "the driver's own pools are nobody's leak");
    // What a default pool keeps goes with a trim of the driver's pools, and what a program's pool keeps does not.
    let own = driver.pool_create(DEVICE, &PLAIN).unwrap();
    for pool in [pools[0], own] {
        driver.pool_set_attribute(DEVICE, pool, Attribute::ReleaseThreshold, u64::MAX).unwrap();
        let at = driver.pool_allocate(DEVICE, pool, MIB, LEGACY).unwrap();
        driver.pool_free(DEVICE, at, LEGACY).unwrap();
    }
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(driver.usage().bytes, 2 * MIB);
    driver.trim_driver_pools(PEER).unwrap();
    assert_eq!(driver.usage().bytes, 2 * MIB);
    driver.trim_driver_pools(DEVICE).unwrap();
    assert_eq!(driver.usage().bytes, MIB);
}

#[test]
fn streams_that_cannot_be_used_are_refused_and_nothing_is_lost() {
    let (driver, pool, stream) = with_pool(Clock::Immediate, PLAIN);
    let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
    let before = driver.usage();
    let kind = |result: Result<()>| result.unwrap_err().kind;
    driver.begin_capture(DEVICE, stream).unwrap();
    assert_eq!(kind(driver.pool_free(DEVICE, at, stream)), ErrorKind::Capturing);
    assert_eq!(kind(driver.pool_allocate(DEVICE, pool, MIB, stream).map(drop)), ErrorKind::Capturing);
    driver.end_capture(DEVICE, stream).unwrap();
    let dead = driver.stream_create(DEVICE).unwrap();
    driver.stream_destroy(DEVICE, dead).unwrap();
    invalid(driver.pool_free(DEVICE, at, dead), "is destroyed");
    invalid(driver.pool_allocate(DEVICE, pool, MIB, dead), "is destroyed");
    assert_eq!(driver.usage(), before);
    driver.pool_free(DEVICE, at, stream).unwrap();
}

#[test]
fn threads_allocate_and_free_at_once() {
    let (driver, pool, _) = with_pool(Clock::Immediate, PLAIN);
    std::thread::scope(|scope| {
        for seed in 1..=4u8 {
            let driver = &driver;
            scope.spawn(move || {
                let stream = driver.stream_create(DEVICE).unwrap();
                for _ in 0..200 {
                    let at = driver.pool_allocate(DEVICE, pool, 8192, stream).unwrap();
                    driver.fill(DEVICE, at, seed, 8192, stream).unwrap();
                    assert_eq!((byte(at), byte(at.plus(8191))), (seed, seed));
                    driver.pool_free(DEVICE, at, stream).unwrap();
                }
                driver.stream_destroy(DEVICE, stream).unwrap();
            });
        }
    });
    driver.synchronize(DEVICE).unwrap();
    assert_eq!((driver.usage().bytes, driver.bad_accesses()), (0, 0));
}

#[test]
fn fresh_memory_never_shows_what_was_freed() {
    let (driver, pool, stream) = with_pool(Clock::Immediate, PLAIN);
    for _ in 0..8 {
        let at = driver.pool_allocate(DEVICE, pool, MIB, stream).unwrap();
        assert_eq!(byte(Address(at.0 + MIB - 1)), 0);
        driver.fill(DEVICE, at, 9, MIB, stream).unwrap();
        driver.pool_free(DEVICE, at, stream).unwrap();
    }
}
