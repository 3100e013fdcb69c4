//! Threads that share a pool, each alone with it for a while: the locks that a lone thread enters without an atomic instruction change
//! hands all the time, and every equation must hold whenever all threads stand still.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use forebay::driver::Driver;
use forebay::driver::host::{HostDriver, HostOptions};
use forebay::resource::{Options, Pool};
use forebay::units::{Address, DeviceId, StreamHandle};

const KIB: u64 = 1 << 10;
const LEGACY: StreamHandle = StreamHandle::LEGACY;

/// xorshift64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

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
        let quick = self.pool.malloc_quick(bytes, 0, stream, 0);
        quick.unwrap_or_else(|| self.pool.malloc(bytes, 0, stream, 0).unwrap())
    }

    fn free(&self, at: Address, stream: StreamHandle) {
        if !self.pool.free_quick(at, stream) {
            self.pool.free(at, stream).unwrap();
        }
    }

    fn work(&self, seed: u64, own: StreamHandle) {
        let mut dice = Dice(seed * 7919 + 1);
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
    let driver = Arc::new(HostDriver::new(HostOptions { capacity: 8 << 30, ..HostOptions::default() }).unwrap());
    let pool = Pool::with_driver(Arc::clone(&driver) as Arc<dyn Driver>, Options::default()).unwrap();
    let stream = || {
        let stream = driver.stream_create(DeviceId(0)).unwrap();
        pool.stream_register(0, stream).unwrap();
        stream
    };
    let (shared, own): (Vec<_>, Vec<_>) = ((0..4).map(|_| stream()).collect(), (0..4).map(|_| stream()).collect());
    let world = World {
        pool: Arc::clone(&pool),
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
