//! What the process keeps of what has ended, or of what is done again: every byte of the heap counted.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: the allocator passes on what it is given, and the tests pass objects of their own"
)]
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use self::kit::resources::*;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One test of this program at a time: the heap is everybody's.
static ALONE: Mutex<()> = Mutex::new(());

/// Does it so often, and demands that the heap comes down to what it was near the beginning.
#[track_caller]
fn keeps_nothing(what: &str, times: i64, mut again: impl FnMut()) {
    // What is forgotten some rounds later is no loss, so the lowest of many counts. What is made once is there before the first.
    let mut lowest = |rounds| {
        let after_each = (0..rounds).map(|_| {
            again();
            LIVE.load(Ordering::Relaxed)
        });
        after_each.min().unwrap_or_default()
    };
    lowest(times / 10);
    let before = lowest(times / 5);
    lowest(times / 2);
    let kept = lowest(times / 5) - before;
    // A list may double its room.
    assert!(kept < (25 * times).max(2048), "{what}: {kept} bytes are kept of {times} times");
}

fn bytes(pool: &Pool, at: Block) -> [u8; 256] {
    exported(pool, at).unwrap().bytes
}

#[test]
fn exporting_a_block_again_gives_the_same_and_keeps_nothing() {
    let _alone = ALONE.lock();
    let pool = shared();
    let block = pool.malloc(4 * MIB, LEGACY).unwrap();
    let places = [block, block + 4096, block + 13];
    let first = places.map(|at| bytes(pool, at));
    assert!(first[0] != first[1] && first[1] != first[2]);
    keeps_nothing("exports of one block", 1000, || assert!(places.map(|at| bytes(pool, at)) == first));
    for (at, descriptor) in places.into_iter().zip(first) {
        let came = Buffer::from_descriptor(None, &ForebayIpcDescriptor { bytes: descriptor }).unwrap();
        assert_eq!(came.bytes(), pool.block_size(block).unwrap() - (at - block) as u64);
    }
    pool.free(block, LEGACY).unwrap();
    let ended = Buffer::from_descriptor(None, &ForebayIpcDescriptor { bytes: first[0] });
    refused(ended, Status::NotFound, &["exported"]);
    keeps_nothing("blocks exported and freed", 1000, || {
        let block = pool.malloc(4 * MIB, LEGACY).unwrap();
        assert!(bytes(pool, block) != first[0], "another export has another name");
        pool.free(block, LEGACY).unwrap();
    });
}

#[test]
fn pools_and_resources_that_end_leave_nothing() {
    let _alone = ALONE.lock();
    let _shared = shared();
    keeps_nothing("pools that were never used", 1000, || drop(Pool::new()));
    // To end one takes the host driver a tenth of a second.
    keeps_nothing("pools", 15, || {
        let pool = Pool::new();
        let block = pool.malloc(MIB, LEGACY).unwrap();
        exported(&pool, block).unwrap();
        pool.free(block, LEGACY).unwrap();
    });
    keeps_nothing("pools that give memory back by themselves", 15, || {
        let pool = Pool::with(|options| options.give_back_ms = 1000).unwrap();
        pool.malloc(MIB, LEGACY).unwrap();
    });
    keeps_nothing("device resources", 500, || drop(Resource::device(|_| ()).unwrap().allocate(MIB, LEGACY).unwrap()));
    keeps_nothing("pinned resources", 500, || drop(Resource::pinned(|_| ()).unwrap().allocate(MIB, LEGACY).unwrap()));
    keeps_nothing("virtual resources with a buffer that was exported", 500, || {
        let buffer = Resource::virtual_memory(|_| ()).unwrap().allocate(2 * MIB, LEGACY).unwrap();
        buffer.descriptor().unwrap();
    });
    keeps_nothing("streams of one pool", 1000, || {
        let stream = shared().stream();
        let block = shared().malloc(MIB, stream).unwrap();
        shared().free(block, stream).unwrap();
        shared().destroy_stream(stream).unwrap();
    });
}
