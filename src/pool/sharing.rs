//! Exports, snapshot and observer of live blocks.

use super::device::export::{self, Extent};
use super::device::observer::Observer;
use super::device::state::Export;
use super::fallback::device::{Device, EXPORTS};
use super::pool::Pool;
use super::report::snapshot::SnapshotBlock;
use crate::driver::Place;
use crate::error::Result;
use crate::ticket::Ticket;
use crate::units::Address;

impl Pool {
    /// Records the export of a part of the live block at `base`. `on_free` runs when the block is freed, before its
    /// memory can be reused. Returns where the memory lies, and the part's ticket. If the part was exported before,
    /// that is its first ticket, and `export` is dropped.
    pub(crate) fn export(&self, base: Address, export: Export) -> Result<(Place, Ticket)> {
        export::export(self.device(self.device_of(base)?)?.arena(EXPORTS)?, base, export)
    }

    /// Calls `visit` with the chunks of the live block at `base`. `visit` runs under the arena's lock, so the block
    /// cannot be freed meanwhile, and must not call the pool.
    pub(crate) fn extent<T>(&self, base: Address, visit: impl FnOnce(&Extent) -> T) -> Result<T> {
        export::extent(self.device(self.device_of(base)?)?.arena(EXPORTS)?, base, visit)
    }

    /// Every mapped block of a device at one moment, in address order. An unused device has none and stays unused.
    ///
    /// # Errors
    /// See [`crate::error::Error`].
    pub fn blocks(&self, device: i32) -> Result<Vec<SnapshotBlock>> {
        Ok(self.device_if_used(device)?.map_or_else(Vec::new, Device::blocks))
    }

    /// Calls `observer` with every range of a device's pool that is mapped or unmapped from now on; `None` ends that.
    /// On a device without virtual memory management the driver maps, and the observer is never called.
    ///
    /// # Errors
    /// See [`crate::error::Error`].
    pub fn observe(&self, device: i32, observer: Option<Observer>) -> Result<()> {
        match self.device(device)? {
            Device::Arena(pool) => pool.backing.observe(observer),
            Device::DriverOrdered(_) => drop(observer),
        }
        Ok(())
    }
}
