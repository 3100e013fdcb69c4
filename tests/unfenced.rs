//! Frees without an event, on streams that were not registered: how many events there are, and that memory which none is
//! behind is used by nobody else too early, whether the stream is alive or not.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use forebay::driver::Driver;
use forebay::driver::host::{Call, HostOptions};
use forebay::pool::Options;
use forebay::units::{Address, StreamHandle};

use kit::driver::{self, HOME, sized, small};
use kit::memory::MIB;
use kit::pool::{PINNED, PoolOnHost};
use kit::streams::{LateRead, write_early};

const DEVICE: i32 = 0;

/// A pool on a device whose streams run only when stepped.
fn held_back(options: HostOptions) -> PoolOnHost {
    PoolOnHost::new(driver::held_back(options), Options::default())
}

/// A stream on which an event has been recorded, so that frees may go without.
fn proven(bench: &PoolOnHost) -> StreamHandle {
    let stream = bench.stream();
    bench.pair(MIB, stream);
    stream
}

#[test]
fn a_stream_that_asks_for_its_block_again_records_one_event_in_all() {
    let bench = held_back(small());
    let stream = bench.stream();
    assert_eq!(bench.events(|| bench.pair(MIB, stream)), (1, 0), "the first shows that the stream takes our events");
    assert_eq!(bench.events(|| (0..100).for_each(|_| bench.pair(MIB, stream))), (0, 0));
    let two = || {
        let blocks = [MIB, 2 * MIB].map(|bytes| bench.malloc(bytes, stream));
        blocks.into_iter().for_each(|block| bench.free(block, stream));
    };
    two();
    assert_eq!(bench.events(two), (1, 0), "an event for every second free");
}

#[test]
fn without_identities_or_device_events_every_free_has_an_event() {
    for options in [HostOptions { stream_identity: false, ..small() }, HostOptions { device_events: false, ..small() }]
    {
        let bench = held_back(options);
        let stream = bench.stream();
        assert_eq!(bench.events(|| (0..10).for_each(|_| bench.pair(MIB, stream))), (10, 0));
    }
}

/// A block that its stream has yet to read, freed bare. Another stream then gets memory however it can, writes to it, and
/// runs first: the reader must not see that.
fn is_read_in_time(
    bench: &PoolOnHost,
    destroyed: bool,
    ask: impl FnOnce(&PoolOnHost, StreamHandle) -> Option<(Address, u64)>,
) {
    let (stream, other) = (proven(bench), bench.stream());
    bench.driver.run_all();
    let block = bench.malloc(MIB, stream);
    bench.driver.fill(HOME, block, 1, MIB, stream).unwrap();
    let read = LateRead::of(&bench.driver, block, MIB, stream);
    assert_eq!(bench.events(|| bench.free(block, stream)), (0, 0), "bare");
    if destroyed {
        bench.driver.stream_destroy(HOME, stream).unwrap();
    }
    if let Some((next, bytes)) = ask(bench, other) {
        write_early(&bench.driver, next, bytes, other);
        bench.free(next, other);
    }
    bench.driver.run_all();
    read.was_in_time();
    assert_eq!((bench.driver.bad_accesses(), bench.driver.dead_stream_uses()), (0, 0));
}

#[test]
fn nobody_else_gets_bare_memory_before_its_work_is_done() {
    for destroyed in [false, true] {
        is_read_in_time(&held_back(small()), destroyed, |bench, other| Some((bench.malloc(MIB, other), MIB)));
        // All that there is.
        is_read_in_time(&held_back(small()), destroyed, |bench, other| Some((bench.malloc(60 * MIB, other), 60 * MIB)));
        is_read_in_time(&held_back(small()), destroyed, |bench, other| {
            let all: Vec<_> = (0..58).map(|_| bench.malloc(MIB, other)).collect();
            all.iter().for_each(|&each| bench.driver.fill(HOME, each, 0xEE, MIB, other).unwrap());
            all.into_iter().skip(1).for_each(|each| bench.free(each, other));
            None
        });
        is_read_in_time(&held_back(small()), destroyed, |bench, _| {
            bench.pool.trim(DEVICE, 0).unwrap();
            assert_eq!(bench.pool.stats(DEVICE).unwrap().physical, 0, "all of it was given back");
            None
        });
    }
}

#[test]
fn a_new_stream_at_the_old_handle_is_another_stream() {
    let bench = held_back(sized(4 * MIB));
    let mut met = false;
    for _ in 0..20 {
        let stream = proven(&bench);
        let block = bench.malloc(2 * MIB, stream);
        bench.driver.fill(HOME, block, 1, 2 * MIB, stream).unwrap();
        let read = LateRead::of(&bench.driver, block, 2 * MIB, stream);
        bench.free(block, stream);
        bench.driver.stream_destroy(HOME, stream).unwrap();
        let heir = bench.stream();
        met |= heir == stream;
        let next = bench.malloc(2 * MIB, heir);
        write_early(&bench.driver, next, 2 * MIB, heir);
        read.was_in_time();
        bench.free(next, heir);
        bench.driver.stream_destroy(HOME, heir).unwrap();
    }
    assert!(met, "no handle was used again: the test shows nothing");
    bench.driver.run_all();
}

#[test]
fn streams_that_ended_with_a_bare_block_are_forgotten() {
    let bench = held_back(small());
    for _ in 0..1000 {
        let stream = proven(&bench);
        bench.pair(MIB, stream);
        bench.driver.run_all();
        bench.driver.stream_destroy(HOME, stream).unwrap();
    }
    let stats = bench.pool.stats(DEVICE).unwrap();
    assert!(stats.streams < 200, "{} streams are remembered", stats.streams);
    assert!(stats.physical <= 16 * MIB, "{} bytes are held for dead streams", stats.physical);
}

#[test]
fn a_failing_event_leaves_the_memory_waiting() {
    let bench = held_back(small());
    let (stream, other) = (proven(&bench), bench.stream());
    bench.pair(MIB, stream);
    bench.driver.stream_destroy(HOME, stream).unwrap();
    bench.driver.run_all();
    bench.driver.fail(Call::EventRecordAll, 1);
    bench.pair(2 * MIB, other);
    bench.driver.clear_faults();
    bench.pool.trim(DEVICE, 0).unwrap();
    assert_eq!(bench.pool.stats(DEVICE).unwrap().physical, 0);
}

#[test]
fn the_host_gets_no_bare_memory_that_is_still_read() {
    let options = Options { location: PINNED, ..Options::default() };
    let bench = PoolOnHost::new(driver::held_back(small()), options);
    let stream = proven(&bench);
    bench.driver.run_all();
    let block = bench.malloc(MIB, stream);
    bench.driver.fill(HOME, block, 1, MIB, stream).unwrap();
    assert_eq!(bench.events(|| bench.free(block, stream)), (0, 0), "bare");
    let ready = bench.pool.malloc_ready(MIB, DEVICE, stream, 0).unwrap();
    assert_ne!(ready, block, "the stream has yet to write there");
    bench.driver.run_all();
    bench.free(ready, stream);
}
