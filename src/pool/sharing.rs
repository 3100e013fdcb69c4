//! What other processes, the snapshot and observers need of live blocks.

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
    /// Notes that a part of the live block at `base` was exported: `on_free` runs when the block is freed, before the memory can be
    /// anybody else's. Returns where the memory lies, and the part's ticket: of a part that was exported before, the one that it has,
    /// and `export` is dropped.
    pub(crate) fn export(&self, base: Address, export: Export) -> Result<(Place, Ticket)> {
        export::export(self.device(self.device_of(base)?)?.arena(EXPORTS)?, base, export)
    }

    /// What `look` makes of the chunks of the live block at `base`. The block cannot be freed meanwhile: `look` runs
    /// under the arena's lock, and must not call the pool.
    pub(crate) fn extent<T>(&self, base: Address, look: impl FnOnce(&Extent) -> T) -> Result<T> {
        export::extent(self.device(self.device_of(base)?)?.arena(EXPORTS)?, base, look)
    }

    /// Every block of a device that has memory, in address order, as of one moment. A device that was not used has none,
    /// and stays unused.
    ///
    /// # Errors
    /// See [`crate::error::Error`].
    pub fn blocks(&self, device: i32) -> Result<Vec<SnapshotBlock>> {
        Ok(self.device_if_used(device)?.map_or_else(Vec::new, Device::blocks))
    }

    /// Tells `observer` of every range of a device's pool that is mapped or unmapped from now on; `None` ends that. Of a device without
    /// virtual memory management nobody is told anything: the driver maps there.
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
