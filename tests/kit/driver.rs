//! Host drivers, with the clock and the memory that a test wants.

use std::sync::Arc;

use forebay::driver::host::{Clock, HostDriver, HostOptions};
use forebay::units::{DeviceId, StreamHandle};

use super::memory::MIB;

pub const HOME: DeviceId = DeviceId(0);
pub const PEER: DeviceId = DeviceId(1);
pub const LEGACY: StreamHandle = StreamHandle::LEGACY;

pub fn host(options: HostOptions) -> Arc<HostDriver> {
    Arc::new(HostDriver::new(options).unwrap())
}

/// A device of so much memory.
pub fn sized(capacity: u64) -> HostOptions {
    HostOptions { capacity, ..HostOptions::default() }
}

/// A device that is soon full.
pub fn small() -> HostOptions {
    sized(64 * MIB)
}

/// The same, with streams that run only when they are stepped.
pub fn held_back(options: HostOptions) -> HostOptions {
    HostOptions { clock: Clock::Manual, ..options }
}
