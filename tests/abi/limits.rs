//! Limits, fractions, trimming, and running out.

use crate::kit::abi::*;
use forebay::abi::pool::limits::forebay_pool_trim;

#[test]
fn over_the_limit_is_out_of_memory_with_a_report_and_changes_nothing() {
    let pool = Pool::limited(64 * MIB);
    let block = pool.malloc(40 * MIB, LEGACY).unwrap();
    let before = pool.stats();
    let words = [
        "32.00 MiB",
        "asked for",
        "live 40.00 MiB",
        "held 40.00 MiB",
        "limit 64.00 MiB",
        "device 0",
        "forebay_pool_set_limit",
    ];
    refused(pool.malloc(32 * MIB, LEGACY), Status::OutOfMemory, &words);
    let after = pool.stats();
    assert_eq!((after.live, after.physical, after.out_of_memory), (before.live, before.physical, 1));
    pool.check();
    let small = pool.malloc(24 * MIB, LEGACY).unwrap();
    assert_eq!(pool.stats().physical, 64 * MIB, "all that the limit allows");
    refused(pool.malloc(512, LEGACY), Status::OutOfMemory, &["512 B"]);
    pool.free(small, LEGACY).unwrap();
    pool.free(block, LEGACY).unwrap();
    let all = pool.malloc(64 * MIB, LEGACY).unwrap();
    pool.free(all, LEGACY).unwrap();
    pool.check();
}

#[test]
fn what_other_streams_freed_is_used_before_the_limit_is_an_error() {
    let pool = Pool::limited(64 * MIB);
    let streams: Vec<Stream> = (0..4).map(|_| pool.stream()).collect();
    for round in 0..8u8 {
        for &stream in &streams {
            let block = pool.malloc(60 * MIB, stream).unwrap();
            pool.fill(block, round, 60 * MIB, stream).unwrap();
            pool.free(block, stream).unwrap();
        }
    }
    assert!(pool.stats().physical <= 64 * MIB);
    pool.check();
    streams.into_iter().for_each(|stream| pool.destroy_stream(stream).unwrap());
}

#[test]
fn a_limit_can_be_moved_read_and_taken_away() {
    let pool = Pool::new();
    let block = pool.malloc(32 * MIB, LEGACY).unwrap();
    pool.set_limit(16 * MIB).unwrap();
    assert_eq!((pool.limit().unwrap(), pool.stats().limit), (16 * MIB, 16 * MIB));
    assert_eq!(pool.stats().physical, 32 * MIB, "what is held above it stays");
    refused(pool.malloc(512, LEGACY), Status::OutOfMemory, &["limit 16.00 MiB"]);
    pool.set_limit(0).unwrap();
    assert_eq!(pool.limit().unwrap(), 0);
    let small = pool.malloc(512, LEGACY).unwrap();
    pool.free(small, LEGACY).unwrap();
    pool.free(block, LEGACY).unwrap();
}

#[test]
fn a_fraction_is_a_share_of_the_device() {
    let pool = Pool::new();
    let total = pool.memory_info(DEVICE).unwrap().1;
    pool.set_fraction(0.5).unwrap();
    assert_eq!(pool.limit().unwrap(), total / 2);
    pool.set_fraction(1.0).unwrap();
    assert_eq!(pool.limit().unwrap(), total);
    for fraction in [0.0, -0.0, -1.0, 1.000_001, f64::NAN, f64::INFINITY] {
        refused(pool.set_fraction(fraction), Status::InvalidArgument, &["fraction", &fraction.to_string()]);
        assert_eq!(pool.limit().unwrap(), total, "a refused call changes nothing");
    }
}

#[test]
fn a_fraction_of_next_to_nothing_is_not_no_limit() {
    let pool = Pool::new();
    pool.set_fraction(1e-300).unwrap();
    refused(pool.malloc(512, LEGACY), Status::OutOfMemory, &["limit"]);
    assert_ne!(pool.limit().unwrap(), 0, "0 would say that there is none");
}

#[test]
fn trim_gives_back_what_is_free_and_keeps_what_it_is_told_to() {
    let pool = Pool::new();
    let stream = pool.stream();
    let kept = pool.malloc(2 * MIB, stream).unwrap();
    let blocks: Vec<Block> = (0..16).map(|_| pool.malloc(4 * MIB, stream).unwrap()).collect();
    blocks.iter().for_each(|&block| pool.fill(block, 1, 4 * MIB, stream).unwrap());
    blocks.into_iter().for_each(|block| pool.free(block, stream).unwrap());
    let held = pool.stats().physical;
    assert_eq!(pool.trim(held).unwrap(), 0, "held already");
    let released = pool.trim(32 * MIB).unwrap();
    assert_eq!(released, held - pool.stats().physical);
    assert!(pool.stats().physical <= 32 * MIB, "{}", pool.stats().physical);
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 2 * MIB, "all but the live block");
    let status = unsafe { forebay_pool_trim(pool.0, DEVICE, 0, std::ptr::null_mut()) };
    assert_eq!(status, Status::Ok, "nobody has to ask how much went");
    pool.holds_after_write(kept, stream);
    pool.free(kept, stream).unwrap();
    assert_eq!(pool.trim(0).unwrap(), 2 * MIB);
    assert_eq!(pool.stats().physical, 0);
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn trim_reaches_what_every_stream_freed() {
    let pool = Pool::new();
    let streams: Vec<Stream> = (0..8).map(|_| pool.stream()).chain([LEGACY, PER_THREAD]).collect();
    for &stream in &streams {
        let block = pool.malloc(6 * MIB, stream).unwrap();
        pool.fill(block, 1, 6 * MIB, stream).unwrap();
        pool.free(block, stream).unwrap();
    }
    assert!(pool.trim(0).unwrap() > 0);
    assert_eq!(pool.stats().physical, 0);
    streams[..8].iter().for_each(|&stream| pool.destroy_stream(stream).unwrap());
}

impl Pool {
    fn holds_after_write(&self, block: Block, stream: Stream) {
        self.fill(block, 0x77, 2 * MIB, stream).unwrap();
        self.holds(block, 0x77, 2 * MIB, stream);
    }
}
