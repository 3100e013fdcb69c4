//! Asking other pools and callbacks for memory before a request fails.

use std::cell::Cell;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::units::DeviceId;

/// Gets the device and the bytes wanted; returns whether it gave memory back. Called without a lock, so it may free
/// into the pool.
pub type Callback = Box<dyn Fn(DeviceId, u64) -> bool + Send + Sync>;

/// A pool that other pools can trim.
pub(crate) trait Trim: Send + Sync {
    /// Gives back what the pool can spare on a device. Returns the bytes given back.
    fn trim(&self, device: DeviceId) -> u64;
}

/// A pool's id, the source of its memory, and the pool.
type PoolEntry = (u64, Source, Weak<dyn Trim>);

/// All pools of the process.
static POOLS: Mutex<Vec<PoolEntry>> = Mutex::new(Vec::new());

/// Where pools take their memory from: the devices of a driver, or its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// [`Driver::memory`](crate::driver::Driver::memory).
    pub memory: usize,
    pub host: bool,
}

thread_local! {
    /// Whether this thread is in a callback: an allocation made there calls no callback.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// What one pool can ask for memory: its callbacks and the other pools of the process.
pub(crate) struct Pressure {
    pool: u64,
    source: Source,
    next: AtomicU64,
    callbacks: Mutex<Vec<(u64, std::sync::Arc<Callback>)>>,
}

impl std::fmt::Debug for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pressure").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Pressure {
    pub fn new(pool: u64, source: Source) -> Self {
        Self { pool, source, next: AtomicU64::new(1), callbacks: Mutex::default() }
    }

    pub fn add(&self, callback: Callback) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.callbacks.lock().push((id, std::sync::Arc::new(callback)));
        id
    }

    pub fn remove(&self, id: u64) -> bool {
        let mut callbacks = self.callbacks.lock();
        let before = callbacks.len();
        callbacks.retain(|&(known, _)| known != id);
        callbacks.len() < before
    }

    /// Calls every callback, in the order of their registration.
    pub fn call(&self, device: DeviceId, bytes: u64) -> bool {
        if CALLING.replace(true) {
            return false;
        }
        let callbacks: Vec<_> =
            self.callbacks.lock().iter().map(|(_, callback)| std::sync::Arc::clone(callback)).collect();
        let helped = callbacks.iter().fold(false, |helped, callback| callback(device, bytes) | helped);
        CALLING.set(false);
        helped
    }

    /// Trims every other pool of the process that takes memory from the same source.
    pub fn trim_others(&self, device: DeviceId) -> bool {
        let others: Vec<_> = {
            let pools = POOLS.lock();
            let others = pools.iter().filter(|&&(id, of, _)| id != self.pool && of == self.source);
            others.filter_map(|(_, _, devices)| devices.upgrade()).collect()
        };
        others.iter().map(|devices| devices.trim(device)).sum::<u64>() > 0
    }
}

pub(crate) fn add_pool(id: u64, source: Source, devices: Weak<dyn Trim>) {
    let mut pools = POOLS.lock();
    // Entries of pools that have ended are removed when the next pool is added.
    pools.retain(|(_, _, devices)| devices.strong_count() > 0);
    pools.push((id, source, devices));
}
