//! Asking others to give memory back before a request fails.

use std::cell::Cell;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::units::DeviceId;

/// Told the device and the bytes wanted; says whether it gave anything back. Called without any lock held,
/// so it may free into the pool.
pub type Callback = Box<dyn Fn(DeviceId, u64) -> bool + Send + Sync>;

/// A pool that others may ask for memory.
pub(crate) trait Spare: Send + Sync {
    /// Gives back what a device's pool can spare. Returns the bytes that went.
    fn trim(&self, device: DeviceId) -> u64;
}

/// A pool, and what it takes its memory from.
type Announced = (u64, Source, Weak<dyn Spare>);

/// All pools of the process, so that one can ask the others.
static POOLS: Mutex<Vec<Announced>> = Mutex::new(Vec::new());

/// What pools take their memory from: a driver's devices, or its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// [`Driver::memory`](crate::driver::Driver::memory).
    pub memory: usize,
    pub host: bool,
}

thread_local! {
    /// A callback that allocates must not be called again by that allocation.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Whom a pool asks.
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

    /// Calls every callback, in the order they were added.
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

    /// Trims every other pool of the process that takes from the same memory for this device.
    pub fn trim_others(&self, device: DeviceId) -> bool {
        let others: Vec<_> = {
            let pools = POOLS.lock();
            let others = pools.iter().filter(|&&(id, of, _)| id != self.pool && of == self.source);
            others.filter_map(|(_, _, devices)| devices.upgrade()).collect()
        };
        others.iter().map(|devices| devices.trim(device)).sum::<u64>() > 0
    }
}

pub(crate) fn announce(id: u64, source: Source, devices: Weak<dyn Spare>) {
    let mut pools = POOLS.lock();
    // What is left of an ended pool goes with the next one.
    pools.retain(|(_, _, devices)| devices.strong_count() > 0);
    pools.push((id, source, devices));
}
