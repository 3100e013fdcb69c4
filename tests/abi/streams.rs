//! Streams: registered or not, created and destroyed, and the default ones.

use crate::kit::abi::*;
use crate::kit::process::in_child;

#[test]
fn the_legacy_stream_has_two_names_and_is_one() {
    let pool = Pool::new();
    let block = pool.malloc(MIB, LEGACY).unwrap();
    pool.free(block, LEGACY_BY_NAME).unwrap();
    assert_eq!(pool.malloc(MIB, LEGACY_BY_NAME).unwrap(), block);
    assert_eq!((pool.stats().streams, pool.stats().hits), (1, 1));
    assert_eq!(pool.stream_stats(LEGACY).live, MIB);
    pool.free(block, LEGACY).unwrap();
}

#[test]
fn the_per_thread_stream_is_another_one_on_every_thread() {
    let pool = Pool::new();
    let block = pool.malloc(4 * MIB, PER_THREAD).unwrap();
    pool.fill(block, 5, 4 * MIB, PER_THREAD).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(pool.stream_stats(PER_THREAD).live, 0);
            let own = pool.malloc(4 * MIB, PER_THREAD).unwrap();
            pool.fill(own, 6, 4 * MIB, PER_THREAD).unwrap();
            pool.holds(own, 6, 4 * MIB, PER_THREAD);
            pool.free(own, PER_THREAD).unwrap();
        });
    });
    assert_eq!(pool.stream_stats(PER_THREAD).live, 4 * MIB);
    pool.holds(block, 5, 4 * MIB, PER_THREAD);
    pool.free(block, PER_THREAD).unwrap();
    assert_eq!(pool.malloc(4 * MIB, PER_THREAD).unwrap(), block, "its own thread gets it back");
    pool.free(block, PER_THREAD).unwrap();
    refused(pool.register(PER_THREAD), Status::InvalidArgument, &["stream 2", "cannot be registered"]);
    refused(pool.unregister(PER_THREAD), Status::NotFound, &["not registered"]);
    pool.check();
}

#[test]
fn hundreds_of_threads_may_come_and_go_with_their_own_default_stream() {
    let pool = Pool::new();
    for value in 0..200u8 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let block = pool.malloc(MIB, PER_THREAD).unwrap();
                pool.fill(block, value, MIB, PER_THREAD).unwrap();
                pool.holds(block, value, MIB, PER_THREAD);
                pool.free(block, PER_THREAD).unwrap();
            });
        });
    }
    let stats = pool.stats();
    assert_eq!((stats.live, stats.allocations, stats.frees), (0, 200, 200));
    assert!(stats.streams < 130, "{} streams known: dead ones are not forgotten", stats.streams);
    pool.check();
}

#[test]
fn registering_is_a_promise_that_ends_once() {
    let pool = Pool::new();
    let stream = pool.stream();
    pool.unregister(stream).unwrap();
    refused(pool.unregister(stream), Status::NotFound, &[&format!("{stream:#x}"), "not registered"]);
    // Not registered: every free records an event while the handle lives.
    let block = pool.malloc(2 * MIB, stream).unwrap();
    pool.fill(block, 1, 2 * MIB, stream).unwrap();
    pool.free(block, stream).unwrap();
    assert_eq!(pool.malloc(2 * MIB, stream).unwrap(), block, "reused on the stream itself all the same");
    pool.register(stream).unwrap();
    pool.register(stream).unwrap();
    pool.free(block, stream).unwrap();
    let before = pool.stats().driver_calls;
    for _ in 0..10 {
        let again = pool.malloc(2 * MIB, stream).unwrap();
        pool.free(again, stream).unwrap();
    }
    assert_eq!(pool.stats().driver_calls, before, "registered, it costs no driver call");
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn a_default_stream_needs_no_promise() {
    let pool = Pool::new();
    pool.register(LEGACY).unwrap();
    refused(pool.unregister(LEGACY), Status::NotFound, &["not registered"]);
}

#[test]
fn destroying_a_stream_twice_or_a_default_stream_is_refused() {
    // Where other tests run beside this one, the next stream has the handle.
    in_child("streams::destroying_a_stream_twice_or_a_default_stream_is_refused", &[], || {
        let pool = Pool::new();
        refused(pool.destroy_stream(LEGACY), Status::NotFound, &["not registered"]);
        if !on_cuda() {
            // CUDA does not notice a dead handle; the host driver does.
            let stream = pool.stream();
            pool.destroy_stream(stream).unwrap();
            assert!(pool.destroy_stream(stream).is_err());
            assert!(pool.malloc(512, stream).is_err());
            assert!(pool.synchronize(stream).is_err());
        }
        pool.check();
    });
}

#[test]
fn thousands_of_streams_come_and_go_and_their_memory_is_used_by_the_next() {
    let pool = Pool::new();
    for round in 0..3000u32 {
        let stream = pool.stream();
        if round % 2 == 0 {
            // As a framework's own stream: never registered.
            pool.unregister(stream).unwrap();
        }
        let block = pool.malloc(2 * MIB, stream).unwrap();
        pool.fill(block, round as u8, 2 * MIB, stream).unwrap();
        if round % 100 == 0 {
            pool.holds(block, round as u8, 2 * MIB, stream);
        }
        pool.free(block, stream).unwrap();
        if round % 2 == 0 {
            pool.register(stream).unwrap();
        }
        pool.destroy_stream(stream).unwrap();
    }
    let stats = pool.stats();
    assert_eq!((stats.live, stats.allocations, stats.frees), (0, 3000, 3000));
    assert!(stats.streams < 200, "{} streams known: dead ones are not forgotten", stats.streams);
    assert!(stats.physical < 1 << 30, "{} bytes held by streams that are gone", stats.physical);
    pool.check();
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 0);
}

#[test]
fn blocks_outlive_the_stream_they_came_from() {
    let pool = Pool::new();
    let stream = pool.stream();
    let block = pool.malloc(2 * MIB, stream).unwrap();
    pool.fill(block, 8, 2 * MIB, stream).unwrap();
    pool.synchronize(stream).unwrap();
    pool.destroy_stream(stream).unwrap();
    // A new stream may well get the old handle.
    let next = pool.stream();
    let other = pool.malloc(2 * MIB, next).unwrap();
    pool.fill(other, 1, 2 * MIB, next).unwrap();
    pool.holds(block, 8, 2 * MIB, next);
    pool.free(block, next).unwrap();
    pool.free(other, next).unwrap();
    pool.check();
    assert_eq!(pool.stats().live, 0);
    pool.destroy_stream(next).unwrap();
}

#[test]
fn work_of_a_stream_is_in_order_and_copies_go_both_ways() {
    let pool = Pool::new();
    let stream = pool.stream();
    let (first, second) = (pool.malloc(MIB, stream).unwrap(), pool.malloc(MIB, stream).unwrap());
    let data: Vec<u8> = (0..MIB).map(|index| (index % 251) as u8).collect();
    pool.copy(first, data.as_ptr() as Block, MIB, stream).unwrap();
    pool.copy(second, first, MIB, stream).unwrap();
    pool.fill(first, 0, MIB, stream).unwrap();
    assert!(pool.read(second, MIB, stream) == data);
    pool.holds(first, 0, MIB, stream);
    pool.free(first, stream).unwrap();
    pool.free(second, stream).unwrap();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn a_stream_that_was_unregistered_can_be_destroyed() {
    let pool = Pool::new();
    let stream = pool.stream();
    let block = pool.malloc(2 * MIB, stream).unwrap();
    pool.unregister(stream).unwrap();
    pool.free(block, stream).unwrap();
    pool.destroy_stream(stream).unwrap();
    for default in [LEGACY, LEGACY_BY_NAME, PER_THREAD] {
        refused(pool.destroy_stream(default), Status::NotFound, &["not registered"]);
    }
    pool.check();
}

#[test]
fn a_pool_that_had_as_many_streams_as_it_can_takes_new_ones_when_these_are_gone() {
    if on_cuda() {
        return;
    }
    let pool = Pool::new();
    let mut held: Vec<Stream> = Vec::new();
    let full = loop {
        match pool.try_stream(DEVICE) {
            Ok(stream) => held.push(stream),
            Err(failure) => break failure,
        }
    };
    assert_eq!(held.len(), 1 << 16);
    assert_eq!(full.status, Status::InvalidArgument);
    assert!(full.text.contains("65536 streams") && full.text.contains("free what they have"), "{}", full.text);
    held.into_iter().for_each(|stream| pool.destroy_stream(stream).unwrap());
    for _ in 0..200 {
        let stream = pool.stream();
        let block = pool.malloc(512, stream).unwrap();
        pool.free(block, stream).unwrap();
        pool.destroy_stream(stream).unwrap();
    }
    assert!(pool.stats().streams < 200, "{} streams known", pool.stats().streams);
    pool.check();
}
