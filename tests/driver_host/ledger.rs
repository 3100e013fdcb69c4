//! The ledger: what calls would have cost.

use forebay::driver::host::Clock;
use forebay::driver::{Driver, HostFlags, HostMemory, PhysicalOptions, Place, Pools, Share, VirtualMemory};
use forebay::units::StreamHandle;

use crate::{DEVICE, GRANULE, LEGACY, MIB, driver};

#[test]
fn the_ledger_prices_each_handle() {
    let driver = driver(Clock::Immediate);
    let spent = |work: &dyn Fn()| {
        let before = driver.ledger().unwrap();
        work();
        let after = driver.ledger().unwrap();
        (after.calls - before.calls, after.nanoseconds - before.nanoseconds)
    };
    let at = driver.reserve(DEVICE, 4 * GRANULE).unwrap();
    let map = || {
        for place in 0..4 {
            let physical = driver.create(DEVICE, GRANULE).unwrap();
            driver.map(DEVICE, at.plus(place * GRANULE), GRANULE, physical).unwrap();
            driver.release(DEVICE, physical).unwrap();
        }
    };
    assert_eq!(spent(&map), (12, 4 * (10_500 + 1_000 + 12_500)));
    assert_eq!(spent(&|| driver.grant(DEVICE, at, 4 * GRANULE).unwrap()), (1, 4 * 25_000));
    assert_eq!(spent(&|| driver.unmap(DEVICE, at, 4 * GRANULE).unwrap()), (1, 4 * 17_000));
    let event = driver.event_create(DEVICE).unwrap();
    let events = || {
        driver.event_record(DEVICE, event, StreamHandle::LEGACY).unwrap();
        driver.event_passed(DEVICE, event).unwrap();
        driver.stream_wait(DEVICE, StreamHandle::LEGACY, event).unwrap();
    };
    assert_eq!(spent(&events), (3, 170 + 130 + 110));
    assert_eq!(spent(&|| driver.event_record_all(DEVICE, event).unwrap()), (1, 170));
    assert_eq!(spent(&|| assert!(driver.create(DEVICE, 1).is_err())), (1, 0), "a refused call is counted, not priced");
}

#[test]
fn memory_of_the_host_and_of_pools_has_its_price() {
    let driver = driver(Clock::Immediate);
    let spent = |work: &dyn Fn()| {
        let before = driver.ledger().unwrap().nanoseconds;
        work();
        driver.ledger().unwrap().nanoseconds - before
    };
    let pair = || {
        let at = driver.host_allocate(DEVICE, MIB, HostFlags::default()).unwrap();
        driver.host_free(DEVICE, at).unwrap();
    };
    assert_eq!(spent(&pair), 618_000 + 314_000);
    let options = PhysicalOptions { place: Place::HostNuma(0), share: Share::None, rdma: false };
    let create = || {
        let physical = driver.create_with(DEVICE, 1024 * MIB, &options).unwrap();
        driver.release(DEVICE, physical).unwrap();
    };
    assert!((297_000_000..300_000_000).contains(&spent(&create)));
    let pool = driver.pool_default(DEVICE, Some(Place::Device(DEVICE)), false).unwrap();
    let pair = || {
        let at = driver.pool_allocate(DEVICE, pool, MIB, LEGACY).unwrap();
        driver.pool_free(DEVICE, at, LEGACY).unwrap();
    };
    assert_eq!((spent(&pair), spent(&pair)), (6_400, 800), "the first one makes the pool grow");
}
