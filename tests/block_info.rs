//! Blocks that are freed while another stream is current, and what is known of a block, with the work of streams held back.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use forebay::driver::host::{Call, HostOptions};
use forebay::driver::{Driver, ErrorKind};
use forebay::error::Error;
use forebay::pool::{BlockInfo, Options};
use forebay::units::{Address, StreamHandle};

use kit::driver::{HOME, LEGACY, held_back};
use kit::memory::MIB;
use kit::pool::PoolOnHost;
use kit::streams::{LateRead, write_early};

const OURS: u8 = 1;
const THEIRS: u8 = 2;

fn world() -> PoolOnHost {
    PoolOnHost::new(held_back(HostOptions::default()), Options::default())
}

fn stream(world: &PoolOnHost, registered: bool) -> StreamHandle {
    if registered { world.registered() } else { world.stream() }
}

fn malloc(world: &PoolOnHost, bytes: u64, stream: StreamHandle) -> Address {
    world.pool.malloc(bytes, 0, stream, OURS).unwrap()
}

#[test]
fn a_block_is_known_with_what_was_asked_for() {
    let world = world();
    let pool = &world.pool;
    for registered in [true, false] {
        let stream = stream(&world, registered);
        // New, from the front cache, and in each zone.
        for bytes in [1, 511, 512, 513, 100_000, 3 * MIB - 7, 3 * MIB, 1, 3 * MIB - 7, 5 * MIB] {
            let at = malloc(&world, bytes, stream);
            let known = BlockInfo { device: 0, bytes: bytes.next_multiple_of(512), requested: bytes };
            assert_eq!(pool.block_info(at, OURS).unwrap(), (known, stream), "{bytes}");
            let seen = pool.blocks(0).unwrap().into_iter().find(|block| block.address == at).unwrap();
            assert_eq!((seen.bytes, seen.requested), (known.bytes, bytes));
            assert!(matches!(pool.block_info(at, THEIRS), Err(Error::BadFree(_))));
            assert!(matches!(pool.free_while(at, Some(stream), THEIRS), Err(Error::BadFree(_))));
            assert!(matches!(pool.free_while(at.plus(256), Some(stream), OURS), Err(Error::BadFree(_))));
            assert_eq!(pool.stats(0).unwrap().live, known.bytes, "a refused free changes nothing");
            assert_eq!(pool.free_while(at, Some(stream), OURS).unwrap(), known);
            assert!(matches!(pool.free_while(at, Some(stream), OURS), Err(Error::BadFree(_))), "freed before");
            assert!(matches!(pool.block_info(at, OURS), Err(Error::BadFree(_))));
            let seen = pool.blocks(0).unwrap().into_iter().find(|block| block.address == at);
            assert!(seen.is_none_or(|block| block.requested == 0));
        }
        world.driver.run_all();
        pool.check(0).unwrap();
    }
    assert_eq!(pool.stats(0).unwrap().live, 0);
}

/// A stream reads a block; it is freed while that stream is current, or while it is not. Whoever gets it writes at once.
fn read_in_time(current_is_reader: bool, registered: bool) -> bool {
    let world = world();
    let (own, reader) = (stream(&world, registered), stream(&world, registered));
    let block = malloc(&world, 2 * MIB, own);
    world.driver.fill(HOME, block, 1, 2 * MIB, own).unwrap();
    world.driver.run_all();
    let read = LateRead::of(&world.driver, block, 4096, reader);
    let current = current_is_reader.then_some(reader);
    assert_eq!(world.pool.free_while(block, current, OURS).unwrap().requested, 2 * MIB);
    let next = malloc(&world, 2 * MIB, own);
    write_early(&world.driver, next, 2 * MIB, own);
    world.pool.free_while(next, Some(own), OURS).unwrap();
    world.pool.trim_all();
    world.pool.check(0).unwrap();
    read.is_right()
}

#[test]
fn a_free_waits_for_the_stream_that_is_current() {
    for registered in [true, false] {
        assert!(read_in_time(true, registered), "registered: {registered}");
        // Else the test above would show nothing.
        assert!(!read_in_time(false, registered), "registered: {registered}");
    }
}

#[test]
fn private_memory_stays_with_its_stream_and_a_captured_current_stream_is_not_asked() {
    let world = world();
    let (own, other) = (world.registered(), world.registered());
    world.pool.private_begin(0, 7, Box::new(move |stream| stream == own)).unwrap();
    let block = malloc(&world, 2 * MIB, own);
    assert_eq!(world.pool.free_while(block, Some(other), OURS).unwrap().bytes, 2 * MIB);
    assert_eq!(malloc(&world, 2 * MIB, own), block, "used again at once, inside of the graph");
    world.pool.free_while(block, Some(other), OURS).unwrap();

    let plain = malloc(&world, 3 * MIB, other);
    // An event on the default stream would break the capture of a stream that synchronises with it.
    world.driver.fail_with(Call::StreamCapture, 1, ErrorKind::Capturing);
    world.pool.free_while(plain, Some(LEGACY), OURS).unwrap();
    assert_eq!(malloc(&world, 3 * MIB, other), plain, "it waits for nothing");
    world.pool.free_while(plain, None, OURS).unwrap();
    world.pool.private_end(0, 7).unwrap();
    world.pool.private_release(0, 7).unwrap();
    world.pool.check(0).unwrap();
}
