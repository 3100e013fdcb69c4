//! Memory for captures that nobody announced.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use forebay::driver::host::{Call, Clock};
use forebay::driver::{Driver, ErrorKind};
use forebay::error::Error;
use forebay::pool::Options;

use kit::driver::{HOME, LEGACY, sized};
use kit::memory::MIB;
use kit::pool::PoolOnHost;

fn pool() -> PoolOnHost {
    PoolOnHost::new(sized(8 << 30), Options::default())
}

#[test]
fn a_capture_keeps_what_it_took_until_it_is_released() {
    let PoolOnHost { driver, pool } = pool();
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
    let PoolOnHost { driver, pool } = pool();
    let (one, other) = (driver.stream_create(HOME).unwrap(), driver.stream_create(HOME).unwrap());
    driver.begin_capture(HOME, one).unwrap();
    let block = pool.malloc_also_captured(2 * MIB, 0, one, 2).unwrap();
    pool.free(block, other).unwrap();
    assert_ne!(pool.malloc_also_captured(2 * MIB, 0, one, 2).unwrap(), block, "the other stream may use it later");
    driver.end_capture(HOME, one).unwrap();
    pool.check(0).unwrap();
}

/// What the driver answers about the legacy stream while a stream that synchronises with it is captured.
#[test]
fn no_event_is_recorded_on_the_legacy_stream_while_that_would_break_a_capture() {
    let mut spared = 0;
    for question in 1..=8 {
        let PoolOnHost { driver, pool } = pool();
        driver.set_clock(Clock::Manual);
        let stream = driver.stream_create(HOME).unwrap();
        let freed = pool.malloc(4 * MIB, 0, LEGACY, 0).unwrap();
        driver.fill(HOME, freed, 1, 4096, LEGACY).unwrap();
        pool.free(freed, LEGACY).unwrap();
        pool.stream_register(0, stream).unwrap();

        let (asked, recorded) = (driver.calls(Call::StreamCapture), driver.calls(Call::EventRecord));
        driver.fail_with(Call::StreamCapture, question, ErrorKind::Capturing);
        let served = pool.malloc(4 * MIB, 0, stream, 0);
        if driver.calls(Call::StreamCapture) < asked + question {
            break;
        }
        driver.clear_faults();
        // Others were about the stream that asks.
        if let Ok(block) = served {
            assert_eq!(driver.calls(Call::EventRecord), recorded);
            assert_ne!(block, freed);
            driver.run_all();
            pool.malloc(4 * MIB, 0, stream, 0).unwrap();
            assert!(driver.calls(Call::EventRecord) > recorded, "the next request could look");
            spared += 1;
        }
        driver.run_all();
        pool.check(0).unwrap();
    }
    assert_eq!(spared, 1, "the pool asks once for each request whether it may look at the legacy stream");
}
