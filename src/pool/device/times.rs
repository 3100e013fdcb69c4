//! Where the time of requests went that no free memory could serve.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What time is spent on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spent {
    /// Making room: looking for it, and the driver's calls.
    Making,
    /// Waiting until work was done, and asking others to give memory back.
    Waiting,
}

/// Nanoseconds since the pool was made, by what they were spent on.
#[derive(Debug, Default)]
pub(crate) struct Times([AtomicU64; 2]);

impl Times {
    pub fn add(&self, spent: Spent, time: Duration) {
        self.0[spent as usize].fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self, spent: Spent) -> u64 {
        self.0[spent as usize].load(Ordering::Relaxed)
    }
}
