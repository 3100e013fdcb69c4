//! Threads that share a pool, each alone with it for a while: the locks that a lone thread enters without an atomic instruction change
//! hands all the time, and every equation must hold whenever all threads stand still.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod kit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use forebay::driver::Driver;
use forebay::driver::host::{HostDriver, HostOptions};
use forebay::pool::{Options, Pool};
use forebay::units::{Address, StreamHandle};

use kit::driver::{HOME, LEGACY, held_back, sized};
use kit::memory::{KIB, MIB, mark, wrong_marks};
use kit::pool::PoolOnHost;
use kit::random::Random;

type Block = (Address, StreamHandle);

struct World {
    pool: Arc<Pool>,
    shared: Vec<StreamHandle>,
    /// Blocks on their way to another thread.
    passed: Mutex<Vec<Block>>,
    /// Held for reading while a thread is at work.
    still: RwLock<()>,
    ends: AtomicBool,
}

impl World {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Address {
        let quick = self.pool.try_malloc(bytes, 0, stream, 0);
        quick.unwrap_or_else(|| self.pool.malloc(bytes, 0, stream, 0).unwrap())
    }

    fn free(&self, at: Address, stream: StreamHandle) {
        if !self.pool.try_free(at, stream) {
            self.pool.free(at, stream).unwrap();
        }
    }

    fn work(&self, seed: u64, own: StreamHandle) {
        let mut dice = Random(seed * 7919 + 1);
        let mut live: Vec<Block> = Vec::new();
        while !self.ends.load(Ordering::Relaxed) {
            let _at_work = self.still.read().unwrap();
            // Long enough, now and then, for the others to be forgotten.
            for _ in 0..dice.below(5000) {
                let stream = if dice.below(8) == 0 { self.shared[dice.below(4) as usize] } else { own };
                let largest = [4096 * KIB, 256 * KIB, 64 * KIB, 64 * KIB][dice.below(4) as usize];
                let bytes = 1 + dice.below(largest);
                if live.len() < 200 && dice.below(100) < 52 {
                    live.push((self.allocate(bytes, stream), stream));
                } else if !live.is_empty() {
                    let mut block = live.swap_remove(dice.below(live.len() as u64) as usize);
                    if dice.below(16) == 0 {
                        let mut passed = self.passed.lock().unwrap();
                        passed.push(block);
                        block = passed.swap_remove(0);
                    }
                    self.free(block.0, if dice.below(8) == 0 { LEGACY } else { block.1 });
                }
            }
            drop(_at_work);
            std::thread::sleep(Duration::from_micros(dice.below(3000)));
        }
        live.into_iter().for_each(|(at, stream)| self.free(at, stream));
    }
}

#[test]
fn every_equation_holds_whenever_all_threads_stand_still() {
    let alone = PoolOnHost::new(sized(8 << 30), Options::default());
    let streams = || (0..4).map(|_| alone.registered()).collect::<Vec<_>>();
    let (shared, own, pool) = (streams(), streams(), &alone.pool);
    let world = World {
        pool: Arc::clone(pool),
        shared,
        passed: Mutex::default(),
        still: RwLock::new(()),
        ends: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for (seed, own) in own.into_iter().enumerate() {
            let world = &world;
            scope.spawn(move || world.work(seed as u64 + 1, own));
        }
        let checked = (0..120).try_for_each(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let _still = world.still.write().unwrap();
            pool.check(0)
        });
        world.ends.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
    world.passed.lock().unwrap().drain(..).for_each(|(at, stream)| world.free(at, stream));
    assert_eq!(pool.stats(0).unwrap().live, 0);
    pool.check(0).unwrap();
}

/// A thread that writes to its blocks and reads them again before it frees them, with all of that still to be run when it does.
/// Returns how many words were not what it wrote.
fn lag(pool: &Pool, driver: &HostDriver, seed: u64, steps: u64) -> u64 {
    let mut dice = Random(seed * 104_729 + 1);
    let own = driver.stream_create(HOME).unwrap();
    let (mut live, wrong) = (Vec::new(), Arc::new(AtomicU64::new(0)));
    for step in 0..steps {
        if live.len() < 4 && dice.below(100) < 60 {
            let bytes = (1 + dice.below(40)) * 64 * KIB;
            let (at, owner) = (pool.malloc(bytes, 0, own, 0).unwrap(), seed << 48 | step << 24);
            driver.host_call(HOME, own, Box::new(move || mark(at, bytes, 64 * KIB, owner))).unwrap();
            live.push((at, bytes, owner));
        } else if !live.is_empty() {
            let (at, bytes, owner) = live.swap_remove(dice.below(live.len() as u64) as usize);
            let seen = Arc::clone(&wrong);
            let check = move || _ = seen.fetch_add(wrong_marks(at, bytes, 64 * KIB, owner), Ordering::Relaxed);
            driver.host_call(HOME, own, Box::new(check)).unwrap();
            pool.free(at, own).unwrap();
        }
        for _ in 0..dice.below(4) {
            driver.step(HOME, own).unwrap();
        }
    }
    live.into_iter().for_each(|(at, ..)| pool.free(at, own).unwrap());
    driver.run_stream(HOME, own).unwrap();
    driver.stream_synchronize(HOME, own).unwrap();
    wrong.load(Ordering::Relaxed)
}

#[test]
fn streams_that_were_not_registered_never_get_each_others_memory_too_early() {
    let host = held_back(HostOptions { granularity: 64 * KIB, ..sized(44 * MIB) });
    let PoolOnHost { driver, pool } = PoolOnHost::new(host, Options::default());
    let wrong: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|seed| {
                scope.spawn({
                    let (pool, driver) = (&pool, &driver);
                    move || lag(pool, driver, seed, 6000)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let stats = pool.stats(0).unwrap();
    pool.check(0).unwrap();
    assert_eq!((wrong, stats.live), (0, 0));
    assert!(stats.waits > 0 && stats.steals > 1000, "memory went from stream to stream: {stats:?}");
}
