//! Frees without an event, on streams that were not registered: how many events there are, and that memory which none is
//! behind is used by nobody else too early, whether the stream is alive or not.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::sync::Arc;

use forebay::driver::Driver;
use forebay::driver::host::{Call, Clock, HostDriver, HostOptions};
use forebay::pool::{Location, Options, Pool};
use forebay::units::{Address, DeviceId, StreamHandle};

const MIB: u64 = 1 << 20;
const DEVICE: i32 = 0;
const HOME: DeviceId = DeviceId(0);

struct Bench {
    driver: Arc<HostDriver>,
    pool: Arc<Pool>,
}

/// A pool on a device whose streams run only when stepped.
fn held_back(options: HostOptions) -> Bench {
    let driver = Arc::new(HostDriver::new(HostOptions { clock: Clock::Manual, ..options }).unwrap());
    let pool = Pool::with_driver(Arc::clone(&driver) as Arc<dyn Driver>, Options::default()).unwrap();
    Bench { driver, pool }
}

fn small() -> HostOptions {
    HostOptions { capacity: 64 * MIB, ..HostOptions::default() }
}

impl Bench {
    fn stream(&self) -> StreamHandle {
        self.driver.stream_create(HOME).unwrap()
    }

    #[track_caller]
    fn malloc(&self, bytes: u64, stream: StreamHandle) -> Address {
        self.pool.malloc(bytes, DEVICE, stream, 0).unwrap()
    }

    #[track_caller]
    fn free(&self, at: Address, stream: StreamHandle) {
        self.pool.free(at, stream).unwrap();
        self.pool.check(DEVICE).unwrap();
    }

    /// How many events `work` recorded: on a stream, and behind everything.
    fn events(&self, work: impl FnOnce()) -> (u64, u64) {
        let count = || (self.driver.calls(Call::EventRecord), self.driver.calls(Call::EventRecordAll));
        let before = count();
        work();
        let after = count();
        (after.0 - before.0, after.1 - before.1)
    }

    /// A stream on which an event has been recorded, so that frees may go without.
    fn proven(&self) -> StreamHandle {
        let stream = self.stream();
        self.pair(MIB, stream);
        stream
    }

    fn pair(&self, bytes: u64, stream: StreamHandle) {
        let block = self.malloc(bytes, stream);
        self.free(block, stream);
    }
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
fn is_read_in_time(bench: &Bench, destroyed: bool, ask: impl FnOnce(&Bench, StreamHandle) -> Option<(Address, u64)>) {
    let (stream, other) = (bench.proven(), bench.stream());
    bench.driver.run_all();
    let mut read = vec![0_u8; MIB as usize];
    let block = bench.malloc(MIB, stream);
    bench.driver.fill(HOME, block, 1, MIB, stream).unwrap();
    bench.driver.copy(HOME, Address(read.as_mut_ptr() as u64), block, MIB, stream).unwrap();
    assert_eq!(bench.events(|| bench.free(block, stream)), (0, 0), "bare");
    if destroyed {
        bench.driver.stream_destroy(HOME, stream).unwrap();
    }
    if let Some((next, bytes)) = ask(bench, other) {
        bench.driver.fill(HOME, next, 0xEE, bytes, other).unwrap();
        // As far as the writer gets by itself, and then everybody.
        bench.driver.run_stream(HOME, other).unwrap();
        bench.driver.run_all();
        bench.free(next, other);
    }
    bench.driver.run_all();
    assert!(read.iter().all(|&byte| byte == 1), "the block was written again before its last reader ran");
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
    let bench = held_back(HostOptions { capacity: 4 * MIB, ..HostOptions::default() });
    let mut met = false;
    for _ in 0..20 {
        let stream = bench.proven();
        let mut read = vec![0_u8; 2 * MIB as usize];
        let block = bench.malloc(2 * MIB, stream);
        bench.driver.fill(HOME, block, 1, 2 * MIB, stream).unwrap();
        bench.driver.copy(HOME, Address(read.as_mut_ptr() as u64), block, 2 * MIB, stream).unwrap();
        bench.free(block, stream);
        bench.driver.stream_destroy(HOME, stream).unwrap();
        let heir = bench.stream();
        met |= heir == stream;
        let next = bench.malloc(2 * MIB, heir);
        bench.driver.fill(HOME, next, 0xEE, 2 * MIB, heir).unwrap();
        bench.driver.run_stream(HOME, heir).unwrap();
        bench.driver.run_all();
        assert!(read.iter().all(|&byte| byte == 1));
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
        let stream = bench.proven();
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
    let (stream, other) = (bench.proven(), bench.stream());
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
    let driver = Arc::new(HostDriver::new(HostOptions { clock: Clock::Manual, ..small() }).unwrap());
    let options = Options { location: Location::Host { numa_node: None }, ..Options::default() };
    let pool = Pool::with_driver(Arc::clone(&driver) as Arc<dyn Driver>, options).unwrap();
    let bench = Bench { driver, pool };
    let stream = bench.proven();
    bench.driver.run_all();
    let block = bench.malloc(MIB, stream);
    bench.driver.fill(HOME, block, 1, MIB, stream).unwrap();
    assert_eq!(bench.events(|| bench.free(block, stream)), (0, 0), "bare");
    let ready = bench.pool.malloc_ready(MIB, DEVICE, stream, 0).unwrap();
    assert_ne!(ready, block, "the stream has yet to write there");
    bench.driver.run_all();
    bench.free(ready, stream);
}
