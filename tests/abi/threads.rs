//! Many threads at once, with the data checked.

use crate::kit::abi::*;
use crate::kit::random::Random;

/// Sizes as frameworks ask for them: many small ones, some large.
fn size(random: &mut Random) -> u64 {
    match random.below(10) {
        0..=5 => random.below(64 << 10) + 1,
        6..=8 => random.below(2 * MIB) + 1,
        _ => random.below(16 * MIB) + 1,
    }
}

const STEPS: u64 = 1500;

/// Allocates, fills with the block's own value, checks and frees, all on one stream.
fn work(pool: &Pool, stream: Stream, seed: u64) {
    let mut random = Random(seed);
    let mut held: Vec<(Block, u64, u8)> = Vec::new();
    for step in 0..STEPS {
        if held.len() < 12 && random.below(5) < 3 {
            let (bytes, value) = (size(&mut random), random.below(256) as u8);
            let block = pool.malloc(bytes, stream).unwrap();
            pool.fill(block, value, bytes, stream).unwrap();
            held.push((block, bytes, value));
        } else if !held.is_empty() {
            let (block, bytes, value) = held.swap_remove(random.below(held.len() as u64) as usize);
            if step % 4 == 0 {
                pool.holds(block, value, bytes, stream);
            }
            pool.free(block, stream).unwrap();
        }
    }
    for (block, bytes, value) in held {
        pool.holds(block, value, bytes, stream);
        pool.free(block, stream).unwrap();
    }
}

#[track_caller]
fn all_came_back(pool: &Pool) {
    pool.check();
    let stats = pool.stats();
    assert_eq!((stats.live, stats.allocations), (0, stats.frees));
    pool.trim(0).unwrap();
    assert_eq!(pool.stats().physical, 0);
    pool.check();
}

#[test]
fn threads_with_a_stream_each_keep_their_data() {
    let pool = Pool::new();
    let streams: Vec<Stream> = (0..6).map(|_| pool.stream()).chain([LEGACY, PER_THREAD, PER_THREAD]).collect();
    std::thread::scope(|scope| {
        for (seed, &stream) in (1..).zip(&streams) {
            let pool = &pool;
            scope.spawn(move || work(pool, stream, seed));
        }
    });
    all_came_back(&pool);
    streams[..6].iter().for_each(|&stream| pool.destroy_stream(stream).unwrap());
}

#[test]
fn threads_that_share_streams_keep_their_data() {
    let pool = Pool::new();
    let (registered, plain) = (pool.stream(), pool.stream());
    pool.unregister(plain).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=6 {
            let (pool, stream) = (&pool, [registered, plain, LEGACY][seed as usize % 3]);
            scope.spawn(move || work(pool, stream, seed));
        }
    });
    pool.register(plain).unwrap();
    all_came_back(&pool);
    pool.destroy_stream(registered).unwrap();
    pool.destroy_stream(plain).unwrap();
}

#[test]
fn threads_under_a_limit_take_memory_from_one_another_and_keep_their_data() {
    let pool = Pool::limited(192 * MIB);
    let streams: Vec<Stream> = (0..4).map(|_| pool.stream()).collect();
    std::thread::scope(|scope| {
        for (seed, &stream) in (1..).zip(&streams) {
            let pool = &pool;
            scope.spawn(move || {
                let mut random = Random(seed);
                for value in 0..400u64 {
                    let bytes = random.below(40 * MIB) + 1;
                    let block = pool.malloc(bytes, stream).unwrap();
                    pool.fill(block, value as u8, bytes, stream).unwrap();
                    if value % 8 == 0 {
                        pool.holds(block, value as u8, bytes, stream);
                    }
                    pool.free(block, stream).unwrap();
                }
            });
        }
    });
    assert!(pool.stats().physical_peak <= 192 * MIB);
    assert!(pool.stats().waits + pool.stats().steals > 0, "the test presses nothing");
    all_came_back(&pool);
    streams.into_iter().for_each(|stream| pool.destroy_stream(stream).unwrap());
}

#[test]
fn blocks_that_pass_between_threads_and_streams_keep_their_data() {
    let pool = Pool::new();
    let (give, take) = std::sync::mpsc::sync_channel::<(Block, u64, u8)>(16);
    let (from, to) = (pool.stream(), pool.stream());
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            let mut random = Random(11);
            for value in 0..1000u64 {
                let bytes = size(&mut random);
                let block = pool.malloc(bytes, from).unwrap();
                pool.fill(block, value as u8, bytes, from).unwrap();
                // The order between the streams is the caller's to make.
                pool.synchronize(from).unwrap();
                give.send((block, bytes, value as u8)).unwrap();
            }
        });
        scope.spawn(move || {
            for (number, (block, bytes, value)) in take.iter().enumerate() {
                pool.holds(block, value, bytes, to);
                match number % 3 {
                    0 => pool.free(block, to).unwrap(),
                    1 => {
                        pool.record_use(block, to).unwrap();
                        pool.fill(block, !value, bytes, to).unwrap();
                        pool.free(block, from).unwrap();
                    }
                    _ => pool.free(block, from).unwrap(),
                }
            }
        });
    });
    all_came_back(&pool);
    pool.destroy_stream(from).unwrap();
    pool.destroy_stream(to).unwrap();
}

#[test]
fn one_block_freed_by_many_threads_is_freed_once() {
    let pool = Pool::new();
    for round in 0..200 {
        let block = pool.malloc(4096, LEGACY).unwrap();
        if round % 2 == 0 {
            pool.record_use(block, PER_THREAD).unwrap();
        }
        let barrier = std::sync::Barrier::new(4);
        let freed: usize = std::thread::scope(|scope| {
            let free = || {
                barrier.wait();
                usize::from(pool.free(block, LEGACY).is_ok())
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(free)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(freed, 1);
    }
    pool.check();
    assert_eq!((pool.stats().frees, pool.stats().live), (200, 0));
}

#[test]
fn uses_recorded_by_many_threads_at_once_are_all_kept() {
    let pool = Pool::new();
    let streams: Vec<Stream> = (0..4).map(|_| pool.stream()).collect();
    for _ in 0..300 {
        let block = pool.malloc(4096, LEGACY).unwrap();
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for &stream in &streams {
                let (pool, barrier) = (&pool, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    pool.record_use(block, stream).unwrap();
                });
            }
        });
        pool.free(block, LEGACY).unwrap();
    }
    pool.check();
    assert_eq!(pool.stats().live, 0);
    streams.into_iter().for_each(|stream| pool.destroy_stream(stream).unwrap());
}

#[test]
fn figures_and_reports_can_be_read_while_threads_work() {
    let pool = Pool::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pool, stop) = (&pool, &stop);
        let reader = scope.spawn(move || {
            let mut read = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                assert!(pool.stats().live_peak >= pool.stream_stats(LEGACY).live);
                assert!(pool.report(256).unwrap().1 > 1);
                pool.trim(64 * MIB).unwrap();
                pool.reset_peaks().unwrap();
                read += 1;
            }
            read
        });
        let workers: Vec<_> = (1..=3).map(|seed| scope.spawn(move || work(pool, PER_THREAD, seed))).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, std::sync::atomic::Ordering::Release);
        assert!(reader.join().unwrap() > 0);
    });
    all_came_back(&pool);
}
