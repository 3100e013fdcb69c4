//! Private pools: memory for captured graphs.

use crate::kit::abi::*;

#[test]
fn private_memory_is_reused_within_its_pool_and_nowhere_else() {
    let pool = Pool::new();
    let (captured, other) = (pool.stream(), pool.stream());
    pool.private_begin(7, captured).unwrap();
    let block = pool.malloc(8 * MIB, captured).unwrap();
    pool.fill(block, 7, 8 * MIB, captured).unwrap();
    let outside = pool.malloc(8 * MIB, other).unwrap();
    assert_ne!(outside, block, "the filter takes one stream only");
    pool.free(block, captured).unwrap();
    assert_eq!(pool.malloc(8 * MIB, captured).unwrap(), block, "reused within the capture");
    pool.free(block, captured).unwrap();
    pool.private_end(7).unwrap();
    pool.check();

    // The graph may be replayed at any time now: nobody gets what it uses.
    assert_eq!(pool.stats().private_bytes, 8 * MIB);
    let mut seen = Vec::new();
    for stream in [captured, other, LEGACY] {
        for _ in 0..8 {
            let next = pool.malloc(4 * MIB, stream).unwrap();
            assert!(next + (4 << 20) <= block || next >= block + (8 << 20), "{next:#x} is the graph's");
            seen.push(next);
        }
    }
    seen.into_iter().for_each(|block| pool.free(block, other).unwrap());
    pool.trim(0).unwrap();
    assert!(pool.stats().physical >= 16 * MIB, "trim leaves the graph's memory: {}", pool.stats().physical);
    pool.check();

    pool.private_release(7).unwrap();
    assert_eq!(pool.stats().private_bytes, 0);
    pool.free(outside, other).unwrap();
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 0, "all of it came back");
    pool.check();
    pool.destroy_stream(captured).unwrap();
    pool.destroy_stream(other).unwrap();
}

#[test]
fn a_block_that_outlives_its_private_pool_comes_back_when_it_is_freed() {
    let pool = Pool::new();
    let stream = pool.stream();
    pool.private_begin(1, stream).unwrap();
    let (live, freed) = (pool.malloc(4 * MIB, stream).unwrap(), pool.malloc(4 * MIB, stream).unwrap());
    pool.private_end(1).unwrap();
    pool.free(freed, stream).unwrap();
    pool.private_release(1).unwrap();
    pool.fill(live, 9, 4 * MIB, stream).unwrap();
    let other = pool.malloc(4 * MIB, LEGACY).unwrap();
    pool.fill(other, 1, 4 * MIB, LEGACY).unwrap();
    pool.holds(live, 9, 4 * MIB, stream);
    pool.free(other, LEGACY).unwrap();
    pool.free(live, stream).unwrap();
    pool.check();
    pool.trim(0).unwrap();
    assert_eq!((pool.stats().live, pool.stats().physical), (0, 0));
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn each_begin_is_a_hold_and_each_hold_is_let_go_once() {
    let pool = Pool::new();
    let stream = pool.stream();
    for _ in 0..2 {
        pool.private_begin(3, stream).unwrap();
        let block = pool.malloc(2 * MIB, stream).unwrap();
        pool.free(block, stream).unwrap();
        pool.private_end(3).unwrap();
    }
    assert_eq!(pool.stats().private_bytes, 2 * MIB, "the second capture used what the first had");
    pool.private_release(3).unwrap();
    assert_eq!(pool.stats().private_bytes, 2 * MIB, "one graph is left");
    pool.private_release(3).unwrap();
    assert_eq!(pool.stats().private_bytes, 0);
    refused(pool.private_release(3), Status::NotFound, &["private pool", "released before"]);
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn unknown_private_pools_are_not_found() {
    let pool = Pool::new();
    refused(pool.private_end(5), Status::NotFound, &["private pool 5:"]);
    refused(pool.private_release(5), Status::NotFound, &["private pool"]);
    pool.private_begin(5, LEGACY).unwrap();
    refused(pool.private_end(6), Status::NotFound, &["private pool 6:"]);
    pool.private_end(5).unwrap();
    refused(pool.private_end(5), Status::NotFound, &["private pool"]);
    pool.private_release(5).unwrap();
    refused(pool.private_release(5), Status::NotFound, &["private pool"]);
}

#[test]
fn private_memory_with_a_recorded_use_waits_for_the_end_of_the_capture() {
    let pool = Pool::new();
    let (stream, user) = (pool.stream(), pool.stream());
    pool.private_begin(2, stream).unwrap();
    let block = pool.malloc(2 * MIB, stream).unwrap();
    pool.record_use(block, user).unwrap();
    pool.free(block, stream).unwrap();
    let next = pool.malloc(2 * MIB, stream).unwrap();
    assert_ne!(next, block, "nothing proves inside a capture that the other stream is done");
    pool.check();
    pool.free(next, stream).unwrap();
    pool.private_end(2).unwrap();
    pool.check();
    pool.private_release(2).unwrap();
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 0);
    pool.destroy_stream(stream).unwrap();
    pool.destroy_stream(user).unwrap();
}

#[test]
fn a_private_pool_that_is_released_before_its_capture_ends_does_no_harm() {
    let pool = Pool::new();
    let stream = pool.stream();
    pool.private_begin(4, stream).unwrap();
    let block = pool.malloc(2 * MIB, stream).unwrap();
    pool.private_release(4).unwrap();
    if let Ok(more) = pool.malloc(2 * MIB, stream) {
        pool.free(more, stream).unwrap();
    }
    pool.private_end(4).unwrap();
    pool.free(block, stream).unwrap();
    let plain = pool.malloc(2 * MIB, stream).unwrap();
    pool.free(plain, stream).unwrap();
    pool.check();
    pool.trim(0).unwrap();
    assert_eq!((pool.stats().physical, pool.stats().private_bytes), (0, 0));
    pool.destroy_stream(stream).unwrap();
}
