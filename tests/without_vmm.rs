//! A pool on a device without virtual memory management: the driver's stream-ordered pool serves it.
//!
//! On the host driver with that capability switched off. What both kinds of device share runs in `generated.rs` and
//! `faults.rs`.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay::driver::host::{Call, Clock, HostDriver, HostOptions, Usage};
use forebay::driver::{Access, Driver, ErrorKind, PoolAttribute};
use forebay::error::{Error, Result};
use forebay::pool::{BlockState, Location, Options, Pool};
use forebay::resource::memory_resource::MemoryResource;
use forebay::resource::pool_resource::PoolResource;
use forebay::units::{Address, DeviceId, StreamHandle};

const MIB: u64 = 1 << 20;
const DEVICE: i32 = 0;
const HOME: DeviceId = DeviceId(0);
const LEGACY: StreamHandle = StreamHandle::LEGACY;

fn bare() -> HostOptions {
    HostOptions { vmm: false, capacity: 64 * MIB, ..HostOptions::default() }
}

fn driver(options: HostOptions) -> Arc<HostDriver> {
    Arc::new(HostDriver::new(options).unwrap())
}

fn pool_on(driver: &Arc<HostDriver>, options: Options) -> Arc<Pool> {
    let driver: Arc<dyn Driver> = driver.clone();
    Pool::with_driver(driver, options).unwrap()
}

/// A pool whose streams run when they are stepped, and two of them.
fn held_back(options: HostOptions) -> (Arc<HostDriver>, Arc<Pool>, StreamHandle, StreamHandle) {
    let driver = driver(HostOptions { clock: Clock::Manual, ..options });
    let pool = pool_on(&driver, Options::default());
    let (first, second) = (driver.stream_create(HOME).unwrap(), driver.stream_create(HOME).unwrap());
    (driver, pool, first, second)
}

#[track_caller]
fn is_told<T: std::fmt::Debug>(result: Result<T>, kind: fn(&Error) -> bool, words: &[&str]) {
    let error = result.unwrap_err();
    assert!(kind(&error), "{error:?}");
    let text = error.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?} in {text}"));
}

#[track_caller]
fn ends_clean(driver: &HostDriver, pool: Arc<Pool>) {
    pool.check(DEVICE).unwrap();
    drop(pool);
    assert_eq!((driver.bad_accesses(), driver.dead_stream_uses()), (0, 0));
    let usage = driver.usage();
    // Streams may be the test's own.
    assert_eq!(Usage { streams: 0, ..usage }, Usage::default());
}

// ---- blocks --------------------------------------------------------------------------------------------

#[test]
fn blocks_are_given_out_and_accounted_for() {
    let driver = driver(bare());
    let pool = pool_on(&driver, Options::default());
    let stream = driver.stream_create(HOME).unwrap();
    let small = pool.malloc(1000, DEVICE, LEGACY, 1).unwrap();
    let large = pool.malloc(3 * MIB, DEVICE, stream, 2).unwrap();
    assert_eq!(pool.malloc(0, DEVICE, stream, 0).unwrap(), Address(0));
    pool.free(Address(0), stream).unwrap();
    driver.fill(HOME, large, 7, 3 * MIB, stream).unwrap();
    assert_eq!(pool.block_size(small).unwrap(), 1024);
    assert_eq!(pool.block_around(large.plus(MIB)).unwrap(), (large, 3 * MIB));
    let (account, home) = pool.block_info(small, 1).unwrap();
    assert_eq!((account.bytes, account.requested, home), (1024, 1000, LEGACY));
    let mut seen = pool.blocks(DEVICE).unwrap();
    seen.sort_by_key(|block| block.bytes);
    let seen: Vec<_> = seen.iter().map(|block| (block.address, block.requested, block.state, block.stream)).collect();
    assert_eq!(seen, [(small, 1000, BlockState::Live, Some(LEGACY)), (large, 3 * MIB, BlockState::Live, Some(stream))]);
    pool.free(large, stream).unwrap();
    let stats = pool.stats(DEVICE).unwrap();
    assert_eq!((stats.live, stats.live_peak), (1024, 1024 + 3 * MIB));
    assert_eq!((stats.allocations, stats.frees, stats.hits), (2, 1, 0));
    assert_eq!(stats.live_by_framework[..3], [0, 1024, 0]);
    assert_eq!((stats.physical, stats.free), (3 * MIB + 4096, 3 * MIB + 4096 - 1024), "what was freed is kept");
    let of_stream = pool.stream_stats(DEVICE, stream).unwrap();
    assert_eq!((of_stream.live, of_stream.live_peak, of_stream.frees), (0, 3 * MIB, 1));
    let report = pool.report(DEVICE).unwrap();
    for word in ["live 1.00 KiB", "PyTorch 1.00 KiB", "limit none", "no virtual memory management"] {
        assert!(report.contains(word), "no {word:?} in {report}");
    }
    assert_eq!(pool.trim(DEVICE, 0).unwrap(), 3 * MIB);
    pool.reset_peaks(DEVICE).unwrap();
    let stats = pool.stats(DEVICE).unwrap();
    assert_eq!((stats.live_peak, stats.physical, stats.physical_peak), (1024, 4096, 4096));
    driver.stream_destroy(HOME, stream).unwrap();
    driver.fail_with(Call::StreamCapture, 1, ErrorKind::Deinitialized);
    pool.free(small, LEGACY).unwrap();
    // With a block that is still live.
    pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    ends_clean(&driver, pool);
}

#[test]
fn what_is_not_the_start_of_a_live_block_is_told_from_what_never_was_one() {
    let driver = driver(HostOptions { devices: 2, ..bare() });
    let pool = pool_on(&driver, Options::default());
    let bad = |error: &Error| matches!(error, Error::BadFree(_));
    is_told(pool.free(Address(4096), LEGACY), bad, &["0x1000 is not memory of this pool"]);
    // Addresses of both devices, in turns.
    let blocks: Vec<Address> = (0..6).map(|turn| pool.malloc(MIB, turn % 2, LEGACY, 0).unwrap()).collect();
    let inside = blocks[2].plus(512);
    is_told(pool.free(inside, LEGACY), bad, &["lies 512 bytes inside the live block of 1048576 bytes at"]);
    is_told(pool.block_size(inside), bad, &["only its start"]);
    is_told(pool.block_info(blocks[0], 3), bad, &["another framework"]);
    for &block in &blocks {
        pool.free(block, LEGACY).unwrap();
        let again: [Result<()>; 3] =
            [pool.free(block, LEGACY), pool.record_use(block, LEGACY), pool.block_around(block).map(drop)];
        again.into_iter().for_each(|result| is_told(result, bad, &["is not live: it was freed before"]));
    }
    assert_eq!([0, 1].map(|device| pool.stats(device).unwrap().frees), [3, 3]);
    ends_clean(&driver, pool);
}

#[test]
fn threads_share_the_pool_and_keep_to_its_limit() {
    let driver = driver(bare());
    let pool = pool_on(&driver, Options { limit: 24 * MIB, ..Options::default() });
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pool, driver, refused) = (&pool, &driver, &refused);
            scope.spawn(move || {
                let stream = driver.stream_create(HOME).unwrap();
                let mut live = Vec::new();
                for round in 0..300 {
                    match pool.malloc((round * 7 + thread) % 5 * MIB / 2 + 1, DEVICE, stream, 0) {
                        Ok(at) => live.push(at),
                        Err(Error::OutOfMemory(_)) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => panic!("{error}"),
                    }
                    assert!(pool.stats(DEVICE).unwrap().live <= 24 * MIB);
                    if live.len() > 6 || refused.load(Ordering::Relaxed) % 3 == 1 {
                        live.drain(..).for_each(|at| pool.free(at, stream).unwrap());
                    }
                }
                live.into_iter().for_each(|at| pool.free(at, stream).unwrap());
                driver.stream_destroy(HOME, stream).unwrap();
            });
        }
    });
    let stats = pool.stats(DEVICE).unwrap();
    assert_eq!((stats.live, stats.out_of_memory), (0, refused.into_inner()));
    assert!(stats.physical <= 24 * MIB);
    ends_clean(&driver, pool);
}

#[test]
fn a_request_under_way_counts_for_the_limit() {
    let (driver, bystander, first, second) = held_back(bare());
    let pool = pool_on(&driver, Options { limit: 40 * MIB, ..Options::default() });
    // Its free is queued: the driver runs what is queued before it answers that there is no memory.
    let block = bystander.malloc(40 * MIB, DEVICE, first, 0).unwrap();
    bystander.free(block, first).unwrap();
    let meanwhile = Arc::new(Mutex::new(None));
    let (weak, answer) = (Arc::downgrade(&pool), Arc::clone(&meanwhile));
    let ask = move || *answer.lock().unwrap() = weak.upgrade().map(|pool| pool.malloc(20 * MIB, DEVICE, LEGACY, 0));
    driver.host_call(HOME, second, Box::new(ask)).unwrap();
    let block = pool.malloc(30 * MIB, DEVICE, LEGACY, 0).unwrap();
    let answer = meanwhile.lock().unwrap().take().unwrap();
    is_told(answer, |error| matches!(error, Error::OutOfMemory(_)), &["limit is short by 10.00 MiB"]);
    assert_eq!(pool.stats(DEVICE).unwrap().physical_peak, 30 * MIB);
    pool.free(block, LEGACY).unwrap();
    drop(bystander);
    ends_clean(&driver, pool);
}

// ---- the order between streams -------------------------------------------------------------------------

/// A block of ones, and a copy of it queued on `reader`, whose result is `read`.
fn block_and_reader(
    driver: &HostDriver,
    pool: &Pool,
    home: StreamHandle,
    reader: StreamHandle,
    read: &mut [u8],
) -> Address {
    let block = pool.malloc(MIB, DEVICE, home, 0).unwrap();
    driver.fill(HOME, block, 1, MIB, home).unwrap();
    driver.run_all();
    driver.copy(HOME, Address(read.as_mut_ptr() as u64), block, MIB, reader).unwrap();
    block
}

/// Runs what is queued on the stream of the free, and then the rest.
#[track_caller]
fn was_read_in_time(driver: &HostDriver, freed_on: StreamHandle, read: &[u8]) {
    driver.run_stream(HOME, freed_on).unwrap();
    driver.run_all();
    assert_eq!(driver.bad_accesses(), 0, "the memory was gone");
    assert!(read.iter().all(|&byte| byte == 1), "the block was gone before its last reader ran");
}

#[test]
fn a_free_waits_for_the_streams_that_were_recorded() {
    for lie in [false, true] {
        let (driver, pool, home, other) = held_back(bare());
        let mut read = vec![0; MIB as usize];
        let block = block_and_reader(&driver, &pool, home, other, &mut read);
        pool.record_use(block, other).unwrap();
        driver.lie_ignore_waits(lie);
        pool.free(block, home).unwrap();
        if lie {
            // The proof that this test sees a missing wait.
            driver.run_stream(HOME, home).unwrap();
            driver.run_all();
            assert_eq!(driver.bad_accesses(), 1);
        } else {
            was_read_in_time(&driver, home, &read);
        }
    }
}

#[test]
fn a_use_recorded_on_a_threads_own_stream_holds_when_another_thread_frees_the_block() {
    let (driver, pool, home, _) = held_back(bare());
    let mut read = vec![0; MIB as usize];
    let block = std::thread::scope(|scope| {
        let work = || {
            let block = block_and_reader(&driver, &pool, home, StreamHandle::PER_THREAD, &mut read);
            pool.record_use(block, StreamHandle::PER_THREAD).unwrap();
            block
        };
        scope.spawn(work).join().unwrap()
    });
    pool.free(block, home).unwrap();
    // The stream that the handle names here.
    driver.run_stream(HOME, StreamHandle::PER_THREAD).unwrap();
    was_read_in_time(&driver, home, &read);
}

#[test]
fn a_free_behind_both_waits_for_the_stream_of_the_allocation_though_it_is_gone() {
    let (driver, pool, home, other) = held_back(bare());
    let mut read = vec![0; MIB as usize];
    let block = block_and_reader(&driver, &pool, home, home, &mut read);
    driver.stream_destroy(HOME, home).unwrap();
    pool.free_behind_both(block, other).unwrap();
    was_read_in_time(&driver, other, &read);
    driver.stream_destroy(HOME, other).unwrap();
    ends_clean(&driver, pool);
}

#[test]
fn a_free_while_another_stream_is_current_waits_for_that_stream() {
    let (driver, pool, home, other) = held_back(bare());
    let mut read = vec![0; MIB as usize];
    let block = block_and_reader(&driver, &pool, home, other, &mut read);
    let account = pool.free_while(block, Some(other), 0).unwrap();
    assert_eq!((account.bytes, account.requested), (MIB, MIB));
    was_read_in_time(&driver, home, &read);
}

#[test]
fn a_free_behind_everything_waits_for_work_that_nobody_told_of() {
    // Without such events the wait is on the host, in the trim.
    for device_events in [true, false] {
        let (driver, pool, home, other) = held_back(HostOptions { device_events, ..bare() });
        let mut read = vec![0; MIB as usize];
        let block = block_and_reader(&driver, &pool, home, other, &mut read);
        pool.free_after_all(block).unwrap();
        assert_eq!(driver.queued(HOME, LEGACY).unwrap(), 0, "the legacy stream waits for nobody");
        pool.check(DEVICE).unwrap();
        assert_eq!(pool.trim(DEVICE, 0).unwrap(), MIB);
        was_read_in_time(&driver, home, &read);
        [home, other].into_iter().for_each(|stream| driver.stream_destroy(HOME, stream).unwrap());
        ends_clean(&driver, pool);
    }
}

#[test]
fn memory_that_is_ready_is_nobodys() {
    let (driver, pool, home, _) = held_back(bare());
    let block = pool.malloc(MIB, DEVICE, home, 0).unwrap();
    driver.fill(HOME, block, 1, MIB, home).unwrap();
    pool.malloc_ready(MIB, DEVICE, home, 0).unwrap();
    assert_eq!(driver.queued(HOME, home).unwrap(), 0, "the host waited");
    driver.fail(Call::StreamSynchronize, 1);
    let before = pool.stats(DEVICE).unwrap().live;
    assert!(pool.malloc_ready(MIB, DEVICE, home, 0).is_err());
    assert_eq!(pool.stats(DEVICE).unwrap().live, before);
    assert_eq!(pool.trim(DEVICE, 0).unwrap(), MIB, "what failed to be waited for went back");
}

// ---- captures ------------------------------------------------------------------------------------------

#[test]
fn a_captured_stream_gets_nothing_and_what_is_freed_there_waits_for_the_device() {
    let driver = driver(bare());
    let pool = pool_on(&driver, Options::default());
    let (stream, other) = (driver.stream_create(HOME).unwrap(), driver.stream_create(HOME).unwrap());
    let blocks: Vec<Address> = (0..2).map(|_| pool.malloc(MIB, DEVICE, stream, 0).unwrap()).collect();
    pool.record_use(blocks[1], stream).unwrap();
    driver.begin_capture(HOME, stream).unwrap();
    is_told(
        pool.malloc(MIB, DEVICE, stream, 0),
        |error| matches!(error, Error::Capturing(_)),
        &["is being captured", "no private pools", "before its capture"],
    );
    pool.free(blocks[0], stream).unwrap();
    pool.free(blocks[1], other).unwrap();
    is_told(pool.free(blocks[0], stream), |error| matches!(error, Error::BadFree(_)), &["is not live"]);
    let stats = pool.stats(DEVICE).unwrap();
    assert_eq!((stats.live, stats.physical), (0, 2 * MIB));
    assert_eq!(pool.trim(DEVICE, 0).unwrap(), 0, "a captured device cannot be waited for");
    assert_eq!(driver.end_capture(HOME, stream).unwrap(), 0, "nothing became a part of the graph");
    assert_eq!(pool.trim(DEVICE, 0).unwrap(), 2 * MIB);
    [stream, other].into_iter().for_each(|stream| driver.stream_destroy(HOME, stream).unwrap());
    ends_clean(&driver, pool);
}

#[test]
fn what_cannot_be_had_is_named_with_a_way_out() {
    let driver = driver(HostOptions { devices: 2, ..bare() });
    let pool = pool_on(&driver, Options::default());
    let unsupported = |error: &Error| matches!(error, Error::Unsupported(_));
    let block = pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    let filter = || -> forebay::pool::Filter { Box::new(|_| true) };
    let graphs: [Result<()>; 6] = [
        pool.private_begin(DEVICE, 1, filter()),
        pool.private_end(DEVICE, 1),
        pool.private_release(DEVICE, 1),
        pool.private_hold(DEVICE, 1),
        pool.private_holds(DEVICE, 1).map(drop),
        pool.private_restore(1, block, MIB, LEGACY, 0),
    ];
    for result in graphs {
        is_told(result, unsupported, &["device 0 has no virtual memory", "private pools", "before its capture"]);
    }
    assert_eq!((pool.private_of(block).unwrap(), pool.release_captures(DEVICE).unwrap()), (None, 0));
    pool.observe(DEVICE, Some(Box::new(|_, _, _| panic!("the driver maps, and tells nobody")))).unwrap();
    let exported = forebay::resource::buffer::export_pointer(&pool, block).map(drop);
    is_told(exported, unsupported, &["blocks for other processes", "forebay_device_resource_create"]);
    pool.free(block, LEGACY).unwrap();
    ends_clean(&driver, pool);
}

#[test]
fn a_device_with_neither_and_a_pinned_pool_are_refused() {
    let unsupported = |error: &Error| matches!(error, Error::Unsupported(_));
    let driver = driver(HostOptions { driver_pools: false, ..bare() });
    let pool = pool_on(&driver, Options::default());
    let words = ["device 0 has neither", "CUDA 11.2", "forebay_managed_resource_create"];
    is_told(pool.malloc(MIB, DEVICE, LEGACY, 0), unsupported, &words);
    let location = Location::Host { numa_node: None };
    for (vmm, host_numa) in [(false, true), (true, false)] {
        let driver = self::driver(HostOptions { vmm, host_numa, ..bare() });
        let pinned = pool_on(&driver, Options { location, ..Options::default() });
        let words = ["CUDA 12.2", "forebay_host_resource_create", "page-locked memory without a pool"];
        is_told(pinned.malloc(MIB, DEVICE, LEGACY, 0), unsupported, &words);
        assert_eq!(driver.usage(), Usage::default());
    }
}

// ---- limits, and want of memory ------------------------------------------------------------------------

#[test]
fn a_limit_counts_what_is_held_and_waits_for_what_was_freed() {
    let (driver, pool, home, other) = held_back(bare());
    pool.set_limit(DEVICE, 8 * MIB).unwrap();
    let block = pool.malloc(6 * MIB, DEVICE, home, 0).unwrap();
    let short = |error: &Error| matches!(error, Error::OutOfMemory(_));
    let words = ["3.00 MiB (3145728 bytes) asked for, the pool's limit is short by 1.00 MiB", "forebay_pool_set_limit"];
    is_told(pool.malloc(3 * MIB, DEVICE, home, 0), short, &words);
    // Its free is queued, and the other stream needs more than is left beside it.
    pool.free(block, home).unwrap();
    let block = pool.malloc(7 * MIB, DEVICE, other, 0).unwrap();
    assert_eq!(pool.stats(DEVICE).unwrap().physical, 8 * MIB);
    pool.set_fraction(DEVICE, 0.25).unwrap();
    assert_eq!(pool.limit(DEVICE).unwrap(), 16 * MIB);
    let more = pool.malloc(9 * MIB, DEVICE, other, 0).unwrap();
    is_told(pool.malloc(512, DEVICE, other, 0), short, &["short by 512 B", "limit 16.00 MiB"]);
    pool.set_limit(DEVICE, 0).unwrap();
    assert_eq!((pool.limit(DEVICE).unwrap(), pool.stats(DEVICE).unwrap().out_of_memory), (0, 2));
    pool.malloc(MIB, DEVICE, other, 0).unwrap();
    [block, more].into_iter().for_each(|block| pool.free(block, other).unwrap());
    [home, other].into_iter().for_each(|stream| driver.stream_destroy(HOME, stream).unwrap());
    ends_clean(&driver, pool);
}

#[test]
fn others_are_asked_before_a_request_fails_and_the_report_says_who_has_what() {
    let driver = driver(bare());
    let (pool, bystander) = (pool_on(&driver, Options::default()), pool_on(&driver, Options::default()));
    let idle = bystander.malloc(32 * MIB, DEVICE, LEGACY, 0).unwrap();
    bystander.free(idle, LEGACY).unwrap();
    let block = pool.malloc(48 * MIB, DEVICE, LEGACY, 0).unwrap();
    assert_eq!(bystander.stats(DEVICE).unwrap().physical, 0, "the other pool gave back");
    let asked = Arc::new(AtomicU64::new(0));
    let (counter, weak) = (Arc::clone(&asked), Arc::downgrade(&pool));
    pool.add_pressure_callback(Box::new(move |device, bytes| {
        assert_eq!((device, bytes), (HOME, 32 * MIB));
        counter.fetch_add(1, Ordering::Relaxed) == 0 && weak.upgrade().unwrap().free(block, LEGACY).is_ok()
    }));
    pool.malloc(32 * MIB, DEVICE, LEGACY, 1).unwrap();
    pool.malloc(32 * MIB, DEVICE, LEGACY, 2).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let words = ["32.00 MiB (33554432 bytes) asked for", "device 0 has no more", "live 64.00 MiB", "PyTorch 32.00 MiB"];
    let short = |error: &Error| matches!(error, Error::OutOfMemory(_));
    is_told(pool.malloc(32 * MIB, DEVICE, LEGACY, 0), short, &words);
    is_told(pool.malloc(65 * MIB, DEVICE, LEGACY, 0), short, &["device 0 has 64.00 MiB in all", "ask for less"]);
    assert_eq!((asked.load(Ordering::Relaxed), pool.stats(DEVICE).unwrap().out_of_memory), (2, 2));
    drop(bystander);
    ends_clean(&driver, pool);
}

// ---- the rest ------------------------------------------------------------------------------------------

#[test]
fn options_and_attributes_are_the_driver_pools_where_it_has_them() {
    let driver = driver(bare());
    for (give_back_ms, kept) in [(0, 2 * MIB), (1000, 0)] {
        let pool = pool_on(&driver, Options { give_back_ms, grow_first: true, ..Options::default() });
        let block = pool.malloc(2 * MIB, DEVICE, LEGACY, 0).unwrap();
        pool.free(block, LEGACY).unwrap();
        driver.synchronize(HOME).unwrap();
        assert_eq!(pool.stats(DEVICE).unwrap().physical, kept);
        let resource = PoolResource::new(pool, DEVICE, 0).unwrap();
        assert!(!resource.info().is_ipc_enabled);
        assert_eq!(resource.attribute(PoolAttribute::ReservedHigh).unwrap(), 2 * MIB);
        resource.set_attribute(PoolAttribute::ReservedHigh, 0).unwrap();
        resource.set_attribute(PoolAttribute::UsedHigh, 0).unwrap();
        let high = [PoolAttribute::ReservedHigh, PoolAttribute::UsedHigh].map(|high| resource.attribute(high).unwrap());
        assert_eq!(high, [kept, 0]);
    }
    assert_eq!(driver.usage(), Usage::default());
}

#[test]
fn streams_are_registered_and_forgotten() {
    let driver = driver(bare());
    let pool = pool_on(&driver, Options::default());
    let stream = driver.stream_create(HOME).unwrap();
    pool.stream_register(DEVICE, stream).unwrap();
    let unknown = |error: &Error| matches!(error, Error::NotFound(_));
    let invalid = |error: &Error| matches!(error, Error::Invalid(_));
    is_told(pool.stream_unregister(DEVICE, LEGACY), unknown, &["stream 0x0 of device 0 is not registered"]);
    is_told(pool.stream_register(DEVICE, StreamHandle::PER_THREAD), invalid, &["cannot be registered"]);
    let block = pool.malloc(MIB, DEVICE, stream, 0).unwrap();
    pool.free(block, stream).unwrap();
    driver.fail(Call::StreamDestroy, 1);
    assert!(pool.stream_destroy(DEVICE, stream).is_err());
    pool.stream_unregister(DEVICE, stream).unwrap();
    is_told(pool.stream_unregister(DEVICE, stream), unknown, &["is not registered"]);
    pool.stream_destroy(DEVICE, stream).unwrap();
    assert!(pool.stream_register(DEVICE, stream).is_err());
    assert!(pool.malloc(MIB, DEVICE, stream, 0).is_err());
    let block = pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    assert!(pool.free(block, stream).is_err());
    // The pool asks who a stream is before anything else, and so the block is live.
    pool.free(block, LEGACY).unwrap();
    pool.check(DEVICE).unwrap();
    assert_eq!(driver.dead_stream_uses(), 3, "those that this test made");
}

#[test]
fn peers_get_access_to_all_of_the_pool() {
    let driver = driver(HostOptions { devices: 2, ..bare() });
    let pool = pool_on(&driver, Options::default());
    let peer = DeviceId(1);
    let block = pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    let home = pool.device(DEVICE).unwrap();
    assert_eq!((home.peer_access(HOME).unwrap(), home.peer_access(peer).unwrap()), (Access::ReadWrite, Access::None));
    let theirs = driver.stream_create(peer).unwrap();
    assert!(driver.fill(peer, block, 1, MIB, theirs).is_err());
    home.set_peer_access(peer, Access::ReadWrite).unwrap();
    driver.fill(peer, block, 1, MIB, theirs).unwrap();
    driver.fill(peer, pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap(), 1, MIB, theirs).unwrap();
    home.set_peer_access(HOME, Access::ReadWrite).unwrap();
    let invalid = |error: &Error| matches!(error, Error::Invalid(_));
    is_told(home.set_peer_access(HOME, Access::None), invalid, &["cannot be taken away"]);
    driver.stream_destroy(peer, theirs).unwrap();
    ends_clean(&driver, pool);
}
