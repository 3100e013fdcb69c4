//! What plug-ins of frameworks use: blocks with a name, frees behind everything, page-locking.

use std::ffi::c_void;

use crate::kit::abi::*;
use forebay::abi::core::handle::ForebayPool;
use forebay::abi::pool::host::{forebay_pool_host_register, forebay_pool_host_unregister};
use forebay::abi::pool::memory::{ForebayFramework, forebay_pool_free_after_all, forebay_pool_malloc_for};

fn malloc_for(pool: &Pool, framework: u32, bytes: u64, stream: Stream) -> Outcome<Block> {
    let mut out = std::ptr::null_mut();
    outcome(unsafe { forebay_pool_malloc_for(pool.0, framework, bytes, DEVICE, stream as *mut c_void, &raw mut out) })?;
    Ok(out as Block)
}

fn free_after_all(pool: &Pool, block: Block) -> Outcome {
    outcome(unsafe { forebay_pool_free_after_all(pool.0, block as *mut c_void) })
}

#[test]
fn a_block_is_counted_for_whom_it_is() {
    let pool = Pool::new();
    for framework in 0..=ForebayFramework::Rmm as u32 {
        let block = malloc_for(&pool, framework, 700, LEGACY).unwrap();
        assert_eq!(pool.stats().live_by_framework[framework as usize], 1024);
        pool.free(block, LEGACY).unwrap();
    }
    for framework in [6, 7, 8, 256, u32::MAX] {
        refused(
            malloc_for(&pool, framework, 700, LEGACY),
            Status::InvalidArgument,
            &[&framework.to_string(), "0 to 5"],
        );
    }
    assert_eq!(pool.stats().live, 0);
    pool.check();
}

#[test]
fn a_free_behind_everything_waits_for_streams_that_nobody_names() {
    // No room for a third block: it is the first one's memory.
    let pool = Pool::limited(2 * MIB);
    let (user, other) = (pool.stream(), pool.stream());
    for number in 0..50 {
        let block = malloc_for(&pool, 3, MIB, LEGACY).unwrap();
        pool.fill(block, 7, MIB, user).unwrap();
        let copy = pool.malloc(MIB, user).unwrap();
        pool.copy(copy, block, MIB, user).unwrap();
        free_after_all(&pool, block).unwrap();
        let next = pool.malloc(MIB, other).unwrap();
        pool.fill(next, number, MIB, other).unwrap();
        // On CUDA this can fail; the host driver runs work as it is queued here: see tests/faults.rs.
        pool.holds(next, number, MIB, other);
        pool.holds(copy, 7, MIB, user);
        pool.free(copy, user).unwrap();
        pool.free(next, other).unwrap();
    }
    refused(free_after_all(&pool, 512), Status::BadFree, &[]);
    free_after_all(&pool, 0).unwrap();
    assert_eq!(pool.stats().live, 0);
    pool.check();
    for stream in [user, other] {
        pool.destroy_stream(stream).unwrap();
    }
}

#[test]
fn memory_of_the_program_is_page_locked_once_at_a_time() {
    let pool = Pool::new();
    let bytes = vec![0u8; 100_000];
    let register = |pool: *const ForebayPool, device, at: *const u8, bytes, portable, mapped| {
        outcome(unsafe { forebay_pool_host_register(pool, device, at as *mut c_void, bytes, portable, mapped) })
    };
    let unregister =
        |at: *const u8| outcome(unsafe { forebay_pool_host_unregister(pool.0, DEVICE, at as *mut c_void) });
    for flags in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        register(pool.0, DEVICE, bytes.as_ptr(), 100_000, flags.0, flags.1).unwrap();
        assert!(register(pool.0, DEVICE, bytes.as_ptr(), 100_000, 0, 0).is_err(), "registered twice");
        unregister(bytes.as_ptr()).unwrap();
        assert!(unregister(bytes.as_ptr()).is_err(), "unregistered twice");
    }
    let at = bytes.as_ptr();
    refused(register(std::ptr::null(), DEVICE, at, 1, 0, 0), Status::NullPointer, &["pool"]);
    refused(register(pool.0, DEVICE, std::ptr::null(), 1, 0, 0), Status::NullPointer, &["ptr"]);
    refused(register(pool.0, DEVICE, at, 0, 0, 0), Status::InvalidArgument, &["bytes is 0"]);
    refused(register(pool.0, DEVICE, at, 1, 2, 0), Status::InvalidArgument, &["portable is 2"]);
    refused(register(pool.0, DEVICE, at, 1, 0, 9), Status::InvalidArgument, &["mapped is 9"]);
    refused(register(pool.0, 99, at, 1, 0, 0), Status::BadDevice, &["99"]);
    refused(unregister(std::ptr::null()), Status::NullPointer, &["ptr"]);
}

#[test]
fn free_blocks_are_counted_wherever_they_lie() {
    let pool = Pool::new();
    assert_eq!(pool.stats().free_blocks, 0);
    let blocks: Vec<_> = (0..6).map(|_| pool.malloc(512, LEGACY).unwrap()).collect();
    let before = pool.stats().free_blocks;
    for (freed, block) in blocks.iter().enumerate() {
        pool.free(*block, LEGACY).unwrap();
        assert_eq!(pool.stats().free_blocks, before + freed as u64 + 1, "kept at hand by the stream");
    }
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().free_blocks, 0);
}
