//! Pools on host drivers.

use std::sync::Arc;

use forebay::driver::Driver;
use forebay::driver::host::{Call, HostDriver, HostOptions};
use forebay::pool::{Location, Options, Pool};
use forebay::units::{Address, StreamHandle};

use super::driver::{HOME, host};

/// Where a pinned pool has its memory.
pub const PINNED: Location = Location::Host { numa_node: None };

pub fn pool_on(driver: &Arc<HostDriver>, options: Options) -> Arc<Pool> {
    Pool::with_driver(driver.clone(), options).unwrap()
}

/// A pool and the driver that it alone is on.
pub struct PoolOnHost {
    pub driver: Arc<HostDriver>,
    pub pool: Arc<Pool>,
}

impl PoolOnHost {
    pub fn new(options: HostOptions, of_pool: Options) -> Self {
        let driver = host(options);
        let pool = pool_on(&driver, of_pool);
        Self { driver, pool }
    }

    pub fn stream(&self) -> StreamHandle {
        self.driver.stream_create(HOME).unwrap()
    }

    pub fn registered(&self) -> StreamHandle {
        let stream = self.stream();
        self.pool.stream_register(0, stream).unwrap();
        stream
    }

    #[track_caller]
    pub fn malloc(&self, bytes: u64, stream: StreamHandle) -> Address {
        self.pool.malloc(bytes, 0, stream, 0).unwrap()
    }

    #[track_caller]
    pub fn free(&self, at: Address, stream: StreamHandle) {
        self.pool.free(at, stream).unwrap();
        self.pool.check(0).unwrap();
    }

    /// Allocates and frees.
    #[track_caller]
    pub fn pair(&self, bytes: u64, stream: StreamHandle) {
        let block = self.malloc(bytes, stream);
        self.free(block, stream);
    }

    /// How many events `work` recorded: on a stream, and behind everything.
    pub fn events(&self, work: impl FnOnce()) -> (u64, u64) {
        let count = || (self.driver.calls(Call::EventRecord), self.driver.calls(Call::EventRecordAll));
        let before = count();
        work();
        let after = count();
        (after.0 - before.0, after.1 - before.1)
    }
}
