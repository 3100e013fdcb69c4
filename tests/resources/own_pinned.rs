//! Forebay's own pool of pinned host memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::abi::pool::memory::forebay_pool_malloc_ready;
use forebay::driver::Driver;
use forebay::driver::host::HostOptions;
use forebay::pool::Options;
use forebay::units::{Address, StreamHandle};

use crate::kit::driver::{self, HOME};
use crate::kit::pool::{PINNED, PoolOnHost};
use crate::kit::resources::*;
use crate::pinned::round_trip;

fn pinned_pool() -> Option<Pool> {
    let made = Pool::with(|options| options.location = ForebayLocation::HostNuma as u32);
    had("a pinned pool of Forebay's own", made)
}

fn malloc_ready(pool: &Pool, bytes: u64, stream: Stream) -> Outcome<Block> {
    let mut out = std::ptr::null_mut();
    let stream = stream as *mut std::ffi::c_void;
    outcome(unsafe { forebay_pool_malloc_ready(pool.0, bytes, DEVICE, stream, &raw mut out) }).map(|()| out as Block)
}

fn bytes_at<'a>(block: Block, bytes: u64) -> &'a mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(block as *mut u8, bytes as usize) }
}

#[test]
fn its_blocks_are_the_hosts_and_the_devices() {
    let Some(pool) = pinned_pool() else { return };
    for bytes in [1, 512, 100_000, 3 * MIB, 40 * MIB] {
        let block = malloc_ready(&pool, bytes, LEGACY).unwrap();
        bytes_at(block, bytes).copy_from_slice(&pattern(bytes, bytes));
        assert!(pool.read(block, bytes, LEGACY) == pattern(bytes, bytes));
        pool.fill(block, 3, bytes, LEGACY).unwrap();
        pool.synchronize(LEGACY).unwrap();
        assert!(bytes_at(block, bytes).iter().all(|&byte| byte == 3));
        pool.free(block, LEGACY).unwrap();
    }
    pool.check();
    let resource = Resource::of_pool(&pool).unwrap();
    let info = resource.info();
    assert_eq!((info.kind, info.device_id), (Kind::Pool as u32, -1));
    assert_eq!((info.is_host_accessible, info.is_device_accessible), (1, 1));
    round_trip(&resource);
}

#[test]
fn it_holds_what_is_asked_for_and_no_power_of_two() {
    let Some(pool) = pinned_pool() else { return };
    for mib in [33, 65, 17, 129] {
        let before = pool.stats().physical;
        let block = malloc_ready(&pool, mib * MIB, LEGACY).unwrap();
        let held = pool.stats().physical - before;
        assert!((mib * MIB..=(mib + 1) * MIB).contains(&held), "{mib} MiB asked for, {held} bytes held");
        pool.free(block, LEGACY).unwrap();
        pool.synchronize(LEGACY).unwrap();
        pool.trim(0).unwrap();
        assert_eq!(pool.stats().physical, 0);
    }
    let blocks: Vec<Block> = (0..40).map(|n| malloc_ready(&pool, 700_000 + n * 77_777, LEGACY).unwrap()).collect();
    let stats = pool.stats();
    assert!(stats.physical <= stats.live + 4 * MIB, "{} live, {} held", stats.live, stats.physical);
    blocks.into_iter().for_each(|block| pool.free(block, LEGACY).unwrap());
}

#[test]
fn ready_memory_may_be_written_while_the_stream_is_behind() {
    let Some(pool) = pinned_pool() else { return };
    let (stream, bytes) = (pool.stream(), 64 * MIB);
    let there = shared().malloc(bytes, LEGACY).unwrap();
    shared().fill(there, 0xEE, bytes, LEGACY).unwrap();
    synchronize();
    let busy = malloc_ready(&pool, bytes, stream).unwrap();
    for _ in 0..20 {
        pool.copy(busy, there, bytes, stream).unwrap();
    }
    pool.free(busy, stream).unwrap();
    // The stream still writes to what was freed; the host writes to what is new.
    let ready = malloc_ready(&pool, bytes, stream).unwrap();
    bytes_at(ready, bytes).copy_from_slice(&pattern(8, bytes));
    pool.synchronize(stream).unwrap();
    assert!(bytes_at(ready, bytes) == pattern(8, bytes), "the memory was still in use");
    pool.free(ready, stream).unwrap();
    shared().free(there, LEGACY).unwrap();
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn misuse_is_told() {
    let Some(pool) = pinned_pool() else { return };
    refused(malloc_ready(&pool, u64::MAX, LEGACY), Status::InvalidArgument, &["18446744073709551615"]);
    assert_eq!(malloc_ready(&pool, 0, LEGACY).unwrap(), 0);
    refused(pool.free(0x1234, LEGACY), Status::BadFree, &["0x1234"]);
    let block = malloc_ready(&pool, 4096, LEGACY).unwrap();
    refused(pool.free(block + 512, LEGACY), Status::BadFree, &[]);
    pool.free(block, LEGACY).unwrap();
    refused(pool.free(block, LEGACY), Status::BadFree, &[]);
    for location in [ForebayLocation::Host, ForebayLocation::HostNumaCurrent, ForebayLocation::None] {
        refused(Pool::with(|o| o.location = location as u32).map(|_| ()), Status::InvalidArgument, &["location"]);
    }
    refused(Pool::with(|options| options.location = 77).map(|_| ()), Status::InvalidArgument, &["77"]);
    let odd = Pool::with(|options| {
        (options.location, options.numa_id) = (ForebayLocation::HostNuma as u32, -7);
    });
    refused(odd.map(|_| ()), Status::InvalidArgument, &["numa_id", "-7"]);
}

#[test]
fn a_limit_holds() {
    let made = Pool::with(|options| {
        (options.location, options.limit) = (ForebayLocation::HostNuma as u32, 16 * MIB);
    });
    let Some(pool) = had("a pinned pool with a limit", made) else { return };
    let held = malloc_ready(&pool, 12 * MIB, LEGACY).unwrap();
    refused(malloc_ready(&pool, 8 * MIB, LEGACY), Status::OutOfMemory, &["limit 16.00 MiB"]);
    pool.free(held, LEGACY).unwrap();
    let again = malloc_ready(&pool, 16 * MIB, LEGACY).unwrap();
    pool.free(again, LEGACY).unwrap();
}

#[test]
fn threads_that_grow_at_once_near_the_limit_hold_nothing_back() {
    let limit = 24 * MIB;
    let made = Pool::with(|options| (options.location, options.limit) = (ForebayLocation::HostNuma as u32, limit));
    let Some(pool) = had("a pinned pool with a limit", made) else { return };
    for bytes in [8 * MIB, 12 * MIB, 16 * MIB] {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        match malloc_ready(&pool, bytes, LEGACY) {
                            Ok(block) => pool.free(block, LEGACY).unwrap(),
                            Err(failure) => assert_eq!(failure.status, Status::OutOfMemory, "{}", failure.text),
                        }
                        pool.trim(0).unwrap();
                    }
                });
            }
        });
        assert!(pool.stats().physical <= limit);
        // What they made for themselves and did not get to use is in nobody's way.
        let all = malloc_ready(&pool, limit, LEGACY).unwrap();
        pool.free(all, LEGACY).unwrap();
        pool.trim(0).unwrap();
        pool.check();
    }
}

// ---- the order, with work held back: on the host driver alone ------------------------------------------

fn held_back(limit: u64) -> (PoolOnHost, StreamHandle) {
    let options = Options { location: PINNED, limit, ..Options::default() };
    let made = PoolOnHost::new(driver::held_back(HostOptions::default()), options);
    let stream = made.stream();
    (made, stream)
}

#[test]
fn ready_memory_is_another_than_what_queued_work_uses_and_ordered_memory_is_the_same() {
    let (PoolOnHost { driver, pool }, stream) = held_back(0);
    let bytes = 14 * MIB;
    let first = pool.malloc_ready(bytes, 0, stream, 0).unwrap();
    driver.fill(HOME, first, 0xEE, bytes, stream).unwrap();
    pool.free(first, stream).unwrap();
    let ready = pool.malloc_ready(bytes, 0, stream, 0).unwrap();
    assert!(ready.0 >= first.0 + bytes || ready.0 + bytes <= first.0, "queued work still writes there");
    assert!(driver.queued(HOME, stream).unwrap() > 0, "there was no need to wait");
    let ordered = pool.malloc(bytes, 0, stream, 0).unwrap();
    assert_eq!(ordered, first, "behind the work on its stream it can be had again");
    driver.run_all();
    for block in [ready, ordered] {
        pool.free(block, stream).unwrap();
    }
    driver.run_all();
    let idle = pool.malloc_ready(2 * bytes, 0, stream, 0).unwrap();
    pool.free(idle, stream).unwrap();
    pool.check(0).unwrap();
}

#[test]
fn where_nothing_else_is_left_ready_memory_waits_for_the_work() {
    let (PoolOnHost { driver, pool }, stream) = held_back(16 * MIB);
    let first = pool.malloc_ready(16 * MIB, 0, stream, 0).unwrap();
    driver.fill(HOME, first, 0xEE, 16 * MIB, stream).unwrap();
    pool.free(first, stream).unwrap();
    let ready = pool.malloc_ready(16 * MIB, 0, stream, 0).unwrap();
    assert_eq!((ready, driver.queued(HOME, stream).unwrap()), (first, 0), "the work is done");
    bytes_at(ready.0 as Block, 16 * MIB).fill(1);
    driver.run_all();
    assert!(bytes_at(ready.0 as Block, 16 * MIB).iter().all(|&byte| byte == 1));
    pool.free(ready, stream).unwrap();
    pool.check(0).unwrap();
}

/// Blocks are written by the host the moment they are there, and by queued work until they are freed.
#[test]
fn no_program_gets_memory_that_queued_work_still_uses() {
    let (PoolOnHost { driver, pool }, first) = held_back(24 * MIB);
    let streams = [first, driver.stream_create(HOME).unwrap(), StreamHandle::LEGACY];
    let mut random = crate::kit::random::Random(5);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut live: Vec<(Address, u64, StreamHandle, u8)> = Vec::new();
    for step in 0..6000 {
        let stream = streams[random.below(3) as usize];
        match random.below(10) {
            0..4 => {
                let longest = [2 << 10, 300 << 10, 5 << 20][random.below(3) as usize];
                let bytes = 1 + random.below(longest);
                let Ok(at) = pool.malloc_ready(bytes, 0, stream, 0) else { continue };
                bytes_at(at.0 as Block, bytes).fill(step as u8);
                live.push((at, bytes, stream, step as u8));
            }
            4..7 if !live.is_empty() => {
                let (at, bytes, stream, value) = live.swap_remove(random.below(live.len() as u64) as usize);
                // Nothing was queued on it before this, so the host's bytes are there.
                let found = bytes_at(at.0 as Block, bytes).iter().filter(|&&byte| byte != value).count();
                assert_eq!(found, 0, "step {step}: written by somebody else's work");
                let wrong = Arc::clone(&wrong);
                let check = move || {
                    let bytes = bytes_at(at.0 as Block, bytes);
                    wrong.fetch_add(bytes.iter().filter(|&&byte| byte != value).count() as u64, Ordering::Relaxed);
                    bytes.fill(0xEE);
                };
                driver.host_call(HOME, stream, Box::new(check)).unwrap();
                pool.free(at, stream).unwrap();
            }
            _ => {
                for _ in 0..random.below(4) {
                    driver.step(HOME, stream).unwrap();
                }
            }
        }
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "step {step}: handed out before its last use was over");
    }
    for (at, _, stream, _) in live {
        pool.free(at, stream).unwrap();
    }
    driver.run_all();
    pool.check(0).unwrap();
    assert_eq!((wrong.load(Ordering::Relaxed), driver.bad_accesses()), (0, 0));
}
