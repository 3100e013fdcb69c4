//! Allocating, freeing, and what is known of a block.

use crate::kit::abi::*;
use crate::kit::memory::KIB;
use crate::kit::process::in_child;
use forebay::abi::pool::memory::{
    forebay_pool_base_address, forebay_pool_block_size, forebay_pool_block_size_for, forebay_pool_malloc,
};

#[test]
fn a_block_is_aligned_writable_and_as_long_as_it_says() {
    let pool = Pool::new();
    for (bytes, size) in [
        (1, 512),
        (511, 512),
        (512, 512),
        (513, 1024),
        (64 * KIB, 64 * KIB),
        (64 * KIB + 1, 65 * KIB),
        (100_000, 98 * KIB),
        (MIB / 2 + 1, MIB / 2 + 8 * KIB),
        (MIB - 8 * KIB + 1, MIB),
        (MIB + 1, MIB + 512),
        (2 * MIB, 2 * MIB),
        (5 * MIB + 1, 5 * MIB + 512),
    ] {
        let block = pool.malloc(bytes, LEGACY).unwrap();
        assert_eq!(block % 512, 0, "{bytes}");
        assert_eq!(pool.block_size(block).unwrap(), size, "{bytes}");
        assert_eq!(forebay_pool_block_size_for(bytes), size, "{bytes}");
        pool.fill(block, 0x5A, size, LEGACY).unwrap();
        pool.holds(block, 0x5A, size, LEGACY);
        pool.free(block, LEGACY).unwrap();
    }
    pool.check();
}

#[test]
fn no_bytes_are_null_and_ok() {
    let pool = Pool::new();
    assert_eq!((forebay_pool_block_size_for(0), forebay_pool_block_size_for(u64::MAX)), (0, u64::MAX));
    assert_eq!(pool.malloc(0, LEGACY).unwrap(), 0);
    refused(pool.malloc_on(0, -1, LEGACY), Status::BadDevice, &["-1"]);
    assert_eq!(pool.stats().allocations, 0);
}

#[test]
fn sizes_that_no_device_has_are_refused_and_change_nothing() {
    let pool = Pool::new();
    let live = pool.malloc(512, LEGACY).unwrap();
    let before = (pool.stats().live, pool.stats().physical);
    for bytes in [u64::MAX, u64::MAX - 510, u64::MAX - 511, i64::MAX as u64 + 1] {
        refused(pool.malloc(bytes, LEGACY), Status::InvalidArgument, &[&bytes.to_string(), "negative"]);
    }
    for bytes in [i64::MAX as u64, i64::MAX as u64 - 511, 1 << 62, 1 << 50, pool.memory_info(DEVICE).unwrap().1 + 1] {
        refused(pool.malloc(bytes, LEGACY), Status::OutOfMemory, &["asked for", "live 512 B", "device 0"]);
    }
    assert_eq!((pool.stats().live, pool.stats().physical), before);
    pool.check();
    pool.free(live, LEGACY).unwrap();
}

#[test]
fn a_device_that_is_not_there_is_refused_by_number() {
    let pool = Pool::new();
    let count = pool.device_count().unwrap();
    for device in [-1, i32::MIN, count, i32::MAX] {
        refused(pool.malloc_on(512, device, LEGACY), Status::BadDevice, &[&device.to_string(), "devices are 0 to"]);
        refused(pool.memory_info(device), Status::BadDevice, &[&device.to_string()]);
        refused(pool.try_stream(device), Status::BadDevice, &[&device.to_string()]);
        refused(
            pool.try_stats(device, size_of::<ForebayPoolStats>() as u32, 1),
            Status::BadDevice,
            &[&device.to_string()],
        );
    }
}

#[test]
fn null_outputs_are_refused() {
    let pool = Pool::new();
    let null = std::ptr::null_mut();
    let status = unsafe { forebay_pool_malloc(pool.0, 512, DEVICE, null, std::ptr::null_mut()) };
    refused(outcome(status), Status::NullPointer, &["out is NULL"]);
    assert_eq!(pool.stats().live, 0, "a block that nobody was told of");
    let block = pool.malloc(512, LEGACY).unwrap();
    let status = unsafe { forebay_pool_block_size(pool.0, block as *const _, std::ptr::null_mut()) };
    refused(outcome(status), Status::NullPointer, &["out is NULL"]);
    let mut bytes = 0u64;
    let status = unsafe { forebay_pool_base_address(pool.0, block as *const _, std::ptr::null_mut(), &raw mut bytes) };
    refused(outcome(status), Status::NullPointer, &["base is NULL"]);
    let mut base = null;
    let status = unsafe { forebay_pool_base_address(pool.0, block as *const _, &raw mut base, std::ptr::null_mut()) };
    refused(outcome(status), Status::NullPointer, &["bytes is NULL"]);
    assert!(base.is_null(), "written by a call that failed");
    pool.free(block, LEGACY).unwrap();
}

// ---- bad frees -----------------------------------------------------------------------------------------

#[test]
fn freeing_null_is_fine() {
    let pool = Pool::new();
    pool.free(0, LEGACY).unwrap();
    assert_eq!(pool.stats().frees, 0);
}

#[test]
fn a_second_free_is_refused_and_changes_nothing() {
    let pool = Pool::new();
    for bytes in [512, 300 << 10, 100 * MIB] {
        let (block, other) = (pool.malloc(bytes, LEGACY).unwrap(), pool.malloc(bytes, LEGACY).unwrap());
        pool.free(block, LEGACY).unwrap();
        let before = pool.stats();
        for _ in 0..3 {
            refused(pool.free(block, LEGACY), Status::BadFree, &[&format!("{block:#x}"), "freed before"]);
        }
        assert_eq!((pool.stats().live, pool.stats().frees), (before.live, before.frees));
        pool.check();
        pool.trim(0).unwrap();
        refused(pool.free(block, LEGACY), Status::BadFree, &["freed before"]);
        pool.free(other, LEGACY).unwrap();
    }
    pool.check();
}

#[test]
fn an_address_inside_a_block_is_refused_and_the_text_says_where_it_lies() {
    let pool = Pool::new();
    let block = pool.malloc(8 * MIB, LEGACY).unwrap();
    for offset in [1usize, 8, 511, 512, 513, 1 << 20, (2 << 20) + 7, (8 << 20) - 1] {
        let words = [&format!("{offset} bytes inside"), &format!("{block:#x}"), "8388608 bytes"];
        let words: Vec<&str> = words.iter().map(|word| word as &str).collect();
        refused(pool.free(block + offset, LEGACY), Status::BadFree, &words);
        refused(pool.block_size(block + offset), Status::BadFree, &["inside"]);
        refused(pool.record_use(block + offset, LEGACY), Status::BadFree, &["inside"]);
    }
    pool.check();
    pool.free(block, LEGACY).unwrap();
    refused(pool.free(block + 512, LEGACY), Status::BadFree, &["freed before, or never given out"]);
}

#[test]
fn a_foreign_address_is_refused() {
    let (pool, other) = (Pool::new(), Pool::new());
    let local = 0u64;
    let theirs = other.malloc(512, LEGACY).unwrap();
    for address in [&raw const local as usize, theirs, 1, 512, usize::MAX, usize::MAX - 511] {
        refused(pool.free(address, LEGACY), Status::BadFree, &[&format!("{address:#x}"), "not memory of this pool"]);
        refused(pool.record_use(address, LEGACY), Status::BadFree, &["not memory of this pool"]);
        refused(pool.block_size(address), Status::BadFree, &["not memory of this pool"]);
        refused(pool.base_address(address), Status::BadFree, &["not memory of this pool"]);
    }
    // The same once the pool has addresses of its own.
    let own = pool.malloc(512, LEGACY).unwrap();
    refused(pool.free(theirs, LEGACY), Status::BadFree, &["not memory of this pool"]);
    pool.free(own, LEGACY).unwrap();
    other.free(theirs, LEGACY).unwrap();
}

#[test]
fn the_block_around_an_address_is_found_and_around_free_memory_there_is_none() {
    let pool = Pool::new();
    let (first, second) = (pool.malloc(8 * MIB, LEGACY).unwrap(), pool.malloc(700, LEGACY).unwrap());
    for offset in [0usize, 1, 512, 3 << 20, (8 << 20) - 1] {
        assert_eq!(pool.base_address(first + offset).unwrap(), (first, 8 * MIB));
    }
    assert_eq!(pool.base_address(second + 1023).unwrap(), (second, 1024));
    pool.free(first, LEGACY).unwrap();
    refused(pool.base_address(first), Status::BadFree, &["freed before"]);
    refused(pool.base_address(first + (3 << 20)), Status::BadFree, &["not live"]);
    pool.free(second, LEGACY).unwrap();
}

// ---- reuse ---------------------------------------------------------------------------------------------

#[test]
fn a_freed_block_is_handed_out_again_on_its_stream_without_a_driver_call() {
    let pool = Pool::new();
    let stream = pool.stream();
    for bytes in [512, 4096, 2 * MIB, 48 * MIB] {
        let block = pool.malloc(bytes, stream).unwrap();
        pool.free(block, stream).unwrap();
        let before = pool.stats();
        assert_eq!(pool.malloc(bytes, stream).unwrap(), block, "{bytes}");
        let after = pool.stats();
        assert_eq!((after.hits, after.driver_calls), (before.hits + 1, before.driver_calls), "{bytes}");
        pool.free(block, stream).unwrap();
    }
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn memory_of_one_shape_serves_another() {
    let pool = Pool::new();
    let blocks: Vec<Block> = (0..64).map(|_| pool.malloc(4 * MIB, LEGACY).unwrap()).collect();
    blocks.into_iter().for_each(|block| pool.free(block, LEGACY).unwrap());
    let held = pool.stats().physical;
    let big = pool.malloc(256 * MIB, LEGACY).unwrap();
    assert_eq!(pool.stats().physical, held, "64 blocks of 4 MiB are one of 256 MiB");
    pool.free(big, LEGACY).unwrap();
    pool.check();
}

#[test]
fn a_block_may_be_freed_on_another_stream_and_by_another_thread() {
    let pool = Pool::new();
    let (first, second) = (pool.stream(), pool.stream());
    let block = pool.malloc(4 * MIB, first).unwrap();
    pool.fill(block, 1, 4 * MIB, first).unwrap();
    pool.synchronize(first).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| pool.free(block, second).unwrap());
    });
    assert_eq!((pool.stats().live, pool.stream_stats(first).live, pool.stream_stats(second).live), (0, 0, 0));
    assert_eq!(
        (pool.stream_stats(first).frees, pool.stream_stats(second).frees),
        (1, 0),
        "counted where it was allocated"
    );
    assert_eq!(pool.malloc(4 * MIB, second).unwrap(), block, "it is in the order of the stream that freed it");
    pool.free(block, second).unwrap();
    pool.check();
    pool.destroy_stream(first).unwrap();
    pool.destroy_stream(second).unwrap();
}

#[test]
fn a_recorded_use_delays_the_block_and_is_not_needed_twice() {
    let pool = Pool::new();
    let (home, user) = (pool.stream(), pool.stream());
    let block = pool.malloc(8 * MIB, home).unwrap();
    pool.fill(block, 3, 8 * MIB, home).unwrap();
    pool.synchronize(home).unwrap();
    pool.record_use(block, user).unwrap();
    pool.record_use(block, user).unwrap();
    pool.record_use(block, home).unwrap();
    let copy = pool.malloc(8 * MIB, user).unwrap();
    pool.copy(copy, block, 8 * MIB, user).unwrap();
    pool.free(block, home).unwrap();
    refused(pool.free(block, home), Status::BadFree, &["freed before"]);
    refused(pool.record_use(block, user), Status::BadFree, &["freed before"]);
    // Whoever gets that memory now writes to it after the copy above has read it.
    let next = pool.malloc(8 * MIB, home).unwrap();
    pool.fill(next, 9, 8 * MIB, home).unwrap();
    pool.holds(copy, 3, 8 * MIB, user);
    pool.holds(next, 9, 8 * MIB, home);
    pool.free(next, home).unwrap();
    pool.free(copy, user).unwrap();
    pool.check();
    assert_eq!(pool.stats().live, 0);
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 0, "nothing keeps the block back for ever");
    pool.destroy_stream(home).unwrap();
    pool.destroy_stream(user).unwrap();
}

/// Turns after which a thread holds the front of a stream.
const HELD: usize = 2000;

fn use_front(pool: &Pool, turns: usize) {
    for _ in 0..turns {
        let block = pool.malloc(512, LEGACY).unwrap();
        pool.free(block, LEGACY).unwrap();
    }
}

#[test]
fn a_size_beyond_all_reason_is_refused_where_a_thread_holds_the_front_too() {
    let pool = Pool::new();
    let live = pool.malloc(MIB, LEGACY).unwrap();
    use_front(&pool, HELD);
    for bytes in [u64::MAX, u64::MAX - 511, u64::MAX - 600, u64::MAX / 2 + 1] {
        refused(pool.malloc(bytes, LEGACY), Status::InvalidArgument, &["no size is that large"]);
    }
    pool.free(live, LEGACY).unwrap();
    pool.check();
}

#[test]
fn what_a_freed_block_serves_is_never_longer() {
    let pool = Pool::new();
    // On the long way, then on the short one.
    for turns in [0, HELD] {
        use_front(&pool, turns);
        for granules in (1..300).chain(1020..1060).chain(2030..2060) {
            let shorter = pool.malloc(granules * 512, LEGACY).unwrap();
            pool.free(shorter, LEGACY).unwrap();
            let bytes = (granules + 1) * 512;
            let block = pool.malloc(bytes - 1, LEGACY).unwrap();
            let size = pool.block_size(block).unwrap();
            assert!(size >= bytes && (size - bytes) * 64 < size, "{size} bytes for {bytes}");
            pool.free(block, LEGACY).unwrap();
        }
        pool.check();
    }
}

#[test]
fn a_freed_block_serves_the_next_request_of_about_its_length() {
    let pool = Pool::new();
    for turns in [0, HELD] {
        use_front(&pool, turns);
        for (freed, asked) in [(100_000, 100_300), (MIB - 8000, MIB), (MIB / 2 + 8000, MIB / 2 + 1)] {
            let block = pool.malloc(freed, LEGACY).unwrap();
            pool.free(block, LEGACY).unwrap();
            assert_eq!(pool.malloc(asked, LEGACY).unwrap(), block, "{freed} freed, {asked} asked for");
            pool.free(block, LEGACY).unwrap();
        }
    }
}

#[test]
fn two_pools_know_nothing_of_each_other() {
    let (first, second) = (Pool::new(), Pool::new());
    let (a, b) = (first.malloc(3 * MIB, LEGACY).unwrap(), second.malloc(3 * MIB, LEGACY).unwrap());
    first.fill(a, 1, 3 * MIB, LEGACY).unwrap();
    second.fill(b, 2, 3 * MIB, LEGACY).unwrap();
    first.holds(a, 1, 3 * MIB, LEGACY);
    second.holds(b, 2, 3 * MIB, LEGACY);
    first.free(a, LEGACY).unwrap();
    assert_eq!((first.stats().live, second.stats().live), (0, 3 * MIB));
    drop(first);
    second.holds(b, 2, 3 * MIB, LEGACY);
    second.free(b, LEGACY).unwrap();
    second.check();
}

/// A device of 64 MiB that is full of blocks of that size, every second of which is freed.
fn half_freed(bytes: u64) -> (Pool, Vec<Block>) {
    let pool = Pool::limited(64 * MIB);
    let mut blocks: Vec<Block> = std::iter::from_fn(|| pool.malloc(bytes, LEGACY).ok()).collect();
    assert!(blocks.len() as u64 * bytes >= 60 * MIB, "{} blocks of {bytes}", blocks.len());
    for place in (0..blocks.len()).rev().step_by(2) {
        pool.free(blocks.swap_remove(place), LEGACY).unwrap();
    }
    (pool, blocks)
}

#[test]
fn small_requests_are_served_beside_large_blocks_before_they_fail() {
    let (pool, large) = half_freed(MIB);
    let stream = pool.stream();
    for asking in [LEGACY, stream] {
        let small: Vec<Block> = std::iter::from_fn(|| pool.malloc(512, asking).ok()).take(40).collect();
        assert!(small.len() > 20, "{} blocks of 512 bytes in 32 MiB that are free", small.len());
        for (&block, value) in small.iter().zip(1..) {
            pool.fill(block, value, 512, asking).unwrap();
        }
        for (&block, value) in small.iter().zip(1..) {
            pool.holds(block, value, 512, asking);
        }
        pool.check();
        small.into_iter().for_each(|block| pool.free(block, asking).unwrap());
    }
    large.into_iter().for_each(|block| pool.free(block, LEGACY).unwrap());
    let all = pool.malloc(60 * MIB, LEGACY).unwrap();
    pool.free(all, LEGACY).unwrap();
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn large_requests_are_served_beside_small_blocks_before_they_fail() {
    let pool = Pool::limited(64 * MIB);
    let small: Vec<Block> = std::iter::from_fn(|| pool.malloc(256 << 10, LEGACY).ok()).collect();
    // One is kept in each page of 2 MiB, so that no chunk can move and 1.75 MiB are free beside it.
    let (kept, freed): (Vec<Block>, Vec<Block>) = small.into_iter().partition(|block| (block >> 18) % 8 == 3);
    freed.into_iter().for_each(|block| pool.free(block, LEGACY).unwrap());
    let large: Vec<Block> = std::iter::from_fn(|| pool.malloc(257 << 10, LEGACY).ok()).collect();
    assert!(large.len() > 20, "{} blocks of 257 KiB", large.len());
    for (&block, value) in large.iter().zip(1..) {
        pool.fill(block, value, 257 << 10, LEGACY).unwrap();
    }
    for (&block, value) in large.iter().zip(1..) {
        pool.holds(block, value, 257 << 10, LEGACY);
    }
    pool.check();
    large.into_iter().chain(kept).for_each(|block| pool.free(block, LEGACY).unwrap());
    assert_eq!(pool.stats().live, 0);
    pool.check();
}

#[test]
fn a_request_that_cannot_be_served_takes_nothing_from_anybody() {
    let name = "memory::a_request_that_cannot_be_served_takes_nothing_from_anybody";
    in_child(name, &[("FOREBAY_HOST_CAPACITY", "16G")], || {
        let (pool, other) = (Pool::new(), Pool::new());
        let (_, total) = pool.memory_info(DEVICE).unwrap();
        let part = |sixteenths: u64| total / 16 * sixteenths;
        let live = other.malloc(part(6), LEGACY).unwrap();
        let idle = pool.malloc(part(2), LEGACY).unwrap();
        pool.free(idle, LEGACY).unwrap();
        let (before, free) = (pool.stats(), pool.memory_info(DEVICE).unwrap().0);
        refused(pool.malloc(part(24), LEGACY), Status::OutOfMemory, &[" in all", "ask for less"]);
        let calls = pool.stats().driver_calls;
        assert!(calls - before.driver_calls < 10, "{} driver calls", calls - before.driver_calls);
        // With what the pool has this would just not do.
        refused(pool.malloc(part(12), LEGACY), Status::OutOfMemory, &[" are free", "free memory"]);
        assert!(pool.stats().driver_calls - calls < 100, "{} driver calls", pool.stats().driver_calls - calls);
        assert_eq!((pool.stats().growths, pool.stats().physical), (before.growths, before.physical));
        assert_eq!(pool.memory_info(DEVICE).unwrap().0, free);
        let most = pool.malloc(part(8), LEGACY).unwrap();
        pool.free(most, LEGACY).unwrap();
        other.free(live, LEGACY).unwrap();
        pool.check();
    });
}
