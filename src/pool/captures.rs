//! Private pools, for captured graphs.

use super::device::captures;
use super::fallback::device::{Device, PRIVATE_POOLS};
use super::graph::routes::Filter;
use super::pool::Pool;
use crate::error::Result;
use crate::units::{Address, StreamHandle};

impl Pool {
    /// Routes allocations on streams that `takes` accepts to private pool `id`, and adds a reference to that pool.
    ///
    /// # Errors
    /// See [`Error`](crate::error::Error).
    pub fn private_begin(&self, device: i32, id: u128, takes: Filter) -> Result<()> {
        captures::begin(self.device(device)?.arena(PRIVATE_POOLS)?, id, takes);
        Ok(())
    }

    /// Ends the newest [`Pool::private_begin`] of this id.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::error::Error::NotFound) if there is none.
    pub fn private_end(&self, device: i32, id: u128) -> Result<()> {
        captures::end(self.device(device)?.arena(PRIVATE_POOLS)?, id)
    }

    /// Drops a reference; with the last, the pool's memory becomes unowned.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::error::Error::NotFound) for an unknown id.
    pub fn private_release(&self, device: i32, id: u128) -> Result<()> {
        captures::release(self.device(device)?.arena(PRIVATE_POOLS)?, id)
    }

    /// Adds a reference to private pool `id`, which is made if there is none.
    ///
    /// # Errors
    /// See [`Error`](crate::error::Error).
    pub fn private_hold(&self, device: i32, id: u128) -> Result<()> {
        self.device(device)?.arena(PRIVATE_POOLS)?.state.lock().graphs.hold(id);
        Ok(())
    }

    /// The number of references to private pool `id`; 0 for an unknown one.
    ///
    /// # Errors
    /// See [`Error`](crate::error::Error).
    pub fn private_holds(&self, device: i32, id: u128) -> Result<u32> {
        Ok(self.device(device)?.arena(PRIVATE_POOLS)?.state.lock().graphs.holds(id))
    }

    /// The private pool that a live block came from, if any.
    ///
    /// # Errors
    /// [`Error::BadFree`](crate::error::Error::BadFree) if no live block starts at `at`.
    pub fn private_of(&self, at: Address) -> Result<Option<u128>> {
        let device = self.device(self.device_of(at)?)?;
        let Some(pool) = device.as_arena() else { return device.block_size(at).map(|_| None) };
        let (start, _) = pool.find_live(at)?;
        Ok(pool.state.lock().graphs.pool_of(start))
    }

    /// Makes a block live again at its own address; private pool `id` gave it out before on `stream`.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::error::Error::NotFound) for an unknown pool;
    /// [`Error::Busy`](crate::error::Error::Busy) if part of that memory is not free in the pool.
    pub fn private_restore(&self, id: u128, at: Address, bytes: u64, stream: StreamHandle, tag: u8) -> Result<()> {
        let device = self.device_of(at)?;
        self.on_stream(None, device, stream, |pool, found| captures::restore(pool, id, (at, bytes), &found.stream, tag))
    }

    /// Gives back the memory of unannounced captures once the device is done with it; blocks still live there follow
    /// when they are freed. The graphs of these captures must not run again. Returns the number of captures.
    ///
    /// # Errors
    /// See [`Error`](crate::error::Error).
    pub fn release_captures(&self, device: i32) -> Result<u64> {
        let pool = self.device_if_used(device)?.and_then(Device::as_arena);
        pool.map_or(Ok(0), |pool| captures::release_unannounced(pool))
    }
}
