//! What happens to the whole process: forks and exits. Each in a process of its own.

use crate::kit::abi::*;
use crate::kit::process::{forked, in_child};
use forebay::abi::pool::create::{forebay_pool_create, forebay_pool_options_init};

#[test]
fn a_forked_child_is_told_so_by_every_call_and_the_parent_goes_on() {
    in_child("process::a_forked_child_is_told_so_by_every_call_and_the_parent_goes_on", &[], || {
        let (pool, shared) = (Pool::new(), Pool::shared().unwrap());
        let stream = pool.stream();
        let (block, other) = (pool.malloc(2 * MIB, stream).unwrap(), shared.malloc(512, LEGACY).unwrap());
        pool.fill(block, 6, 2 * MIB, stream).unwrap();
        forked(|| {
            let told = |what: &str, result: Outcome| match result {
                Err(failure) => assert_eq!(failure.status, Status::Forked, "{what}: {}", failure.text),
                Ok(()) => panic!("{what} says that it worked"),
            };
            told("malloc", pool.malloc(512, stream).map(drop));
            told("malloc of nothing", pool.malloc(0, stream).map(drop));
            told("malloc elsewhere", pool.malloc(512, LEGACY).map(drop));
            told("free", pool.free(block, stream));
            told("free of another's", shared.free(other, LEGACY));
            told("record_use", pool.record_use(block, LEGACY));
            told("record_use on a known stream", pool.record_use(block, stream));
            told("block_size", pool.block_size(block).map(drop));
            told("base_address", pool.base_address(block).map(drop));
            told("trim", pool.trim(0).map(drop));
            told("set_limit", pool.set_limit(MIB));
            told("set_fraction", pool.set_fraction(0.5));
            told("limit", pool.limit().map(drop));
            told("memory_info", pool.memory_info(DEVICE).map(drop));
            told("stats", pool.try_stats(DEVICE, size_of::<ForebayPoolStats>() as u32, 1).map(drop));
            told("stream_stats", pool.try_stream_stats(stream, size_of::<ForebayStreamStats>() as u32, 1).map(drop));
            told("reset_peaks", pool.reset_peaks());
            told("report", pool.report(10).map(drop));
            told("stream_create", pool.try_stream(DEVICE).map(drop));
            told("stream_destroy", pool.destroy_stream(stream));
            told("register", pool.register(stream));
            told("unregister", pool.unregister(stream));
            told("synchronize", pool.synchronize(stream));
            told("fill", pool.fill(block, 1, 1, stream));
            told("copy", pool.copy(block, block + 512, 1, stream));
            told("private_begin", pool.private_begin(1, stream));
            told("private_end", pool.private_end(1));
            told("private_release", pool.private_release(1));
            let mut options = std::mem::MaybeUninit::uninit();
            told("options_init", outcome(unsafe { forebay_pool_options_init(options.as_mut_ptr()) }));
            let mut made = std::ptr::null_mut();
            told("a new pool", outcome(unsafe { forebay_pool_create(std::ptr::null(), &raw mut made) }));
            told("the shared pool", Pool::shared().map(std::mem::forget));
            unsafe {
                forebay::abi::torch::allocator::forebay_torch_free(other as *mut _, 512, 0, std::ptr::null_mut());
                forebay::abi::cupy::allocator::forebay_cupy_free(std::ptr::null_mut(), other as *mut _, 0);
                forebay::abi::torch::allocator::forebay_torch_reset();
                forebay::abi::pool::create::forebay_pool_destroy(pool.0);
                forebay::abi::pool::create::forebay_pool_destroy(shared.0);
            }
        });
        pool.holds(block, 6, 2 * MIB, stream);
        pool.free(block, stream).unwrap();
        shared.free(other, LEGACY).unwrap();
        pool.check();
        shared.check();
    });
}

#[test]
fn a_child_forked_while_threads_work_is_not_stuck_on_their_locks() {
    in_child("process::a_child_forked_while_threads_work_is_not_stuck_on_their_locks", &[], || {
        let pool = Pool::new();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Acquire) {
                        let block = pool.malloc(80 * MIB, PER_THREAD).unwrap();
                        pool.free(block, PER_THREAD).unwrap();
                        pool.stats();
                    }
                });
            }
            for _ in 0..20 {
                forked(|| {
                    refused(pool.malloc(512, LEGACY), Status::Forked, &["fork"]);
                    refused(
                        pool.try_stats(DEVICE, size_of::<ForebayPoolStats>() as u32, 1),
                        Status::Forked,
                        &["spawn or exec"],
                    );
                    unsafe { forebay::abi::pool::create::forebay_pool_destroy(pool.0) };
                });
            }
            stop.store(true, std::sync::atomic::Ordering::Release);
        });
        pool.check();
    });
}

#[test]
fn a_process_may_end_with_live_blocks_streams_and_threads() {
    in_child("process::a_process_may_end_with_live_blocks_streams_and_threads", &[], || {
        let (pool, shared) = (Pool::new(), Pool::shared().unwrap());
        let stream = pool.stream();
        let block = pool.malloc(64 * MIB, stream).unwrap();
        pool.fill(block, 1, 64 * MIB, stream).unwrap();
        shared.malloc(512, PER_THREAD).unwrap();
        let (ready, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let block = shared.malloc(512, PER_THREAD).unwrap();
            ready.send(()).unwrap();
            // Is still here, with a live block, when the process ends.
            std::thread::park();
            shared.free(block, PER_THREAD).unwrap();
        });
        wait.recv().unwrap();
        std::mem::forget(pool);
    });
}
