//! Statistics and report of a driver-ordered pool.

use super::driver_ordered::DriverOrdered;
use crate::driver::{Place, PoolAttribute};
use crate::error::{Error, Result};
use crate::pool::device::need::Shortage;
use crate::pool::report::snapshot::{BlockState, SnapshotBlock};
use crate::pool::report::stats::{Stats, StreamStats};
use crate::pool::report::text;
use crate::units::{Human, StreamHandle};

impl DriverOrdered {
    /// The statistics; those of an arena are 0.
    pub(super) fn stats(&self) -> Result<Stats> {
        let physical = self.physical()?;
        let physical_peak = self.gpu.driver.pool_attribute(self.gpu.device, self.pool, PoolAttribute::ReservedHigh)?;
        let stats = self.ledger.lock().stats();
        let (driver_calls, driver_ns) =
            self.gpu.driver.ledger().map_or((0, 0), |ledger| (ledger.calls, ledger.nanoseconds));
        let limit = if self.limit() == u64::MAX { 0 } else { self.limit() };
        let free = physical.saturating_sub(stats.live);
        Ok(Stats { physical, physical_peak, limit, free, driver_calls, driver_ns, ..stats })
    }

    /// By handle; handle 2 sums over the default streams of all threads.
    pub(super) fn stream_stats(&self, stream: StreamHandle) -> StreamStats {
        self.ledger.lock().stream_stats(stream.canonical())
    }

    pub(super) fn reset_live_peak(&self) {
        self.ledger.lock().reset_live_peak();
    }

    pub(super) fn reset_physical_peak(&self) -> Result<()> {
        Ok(self.gpu.driver.pool_set_attribute(self.gpu.device, self.pool, PoolAttribute::ReservedHigh, 0)?)
    }

    /// The live blocks in address order. The driver does not list its free memory.
    pub(super) fn blocks(&self) -> Vec<SnapshotBlock> {
        let ledger = self.ledger.lock();
        let seen = ledger.blocks().map(|(address, block)| SnapshotBlock {
            address,
            bytes: block.bytes,
            requested: block.requested,
            state: BlockState::Live,
            tag: block.tag,
            stream: Some(block.stream.handle),
            private: None,
        });
        seen.collect()
    }

    /// A few lines for the user.
    pub(super) fn report(&self) -> Result<String> {
        let (stats, info) = (self.stats()?, self.gpu.driver.memory_info(self.gpu.device)?);
        let place = Place::Device(self.gpu.device);
        let beside = format!("free on {place} {} of {}", Human(info.free), Human(info.total));
        let streams = self.ledger.lock().live_by_stream();
        let lines = text::describe(&stats, None, &beside, streams);
        Ok(format!("{lines}  in the driver's stream-ordered pool: no virtual memory management\n"))
    }

    pub(super) fn out_of_memory(&self, bytes: u64, total: u64, shortage: &Shortage) -> Error {
        let report = self.report().unwrap_or_else(|error| format!("  the driver does not say what is held: {error}"));
        text::refusal(Place::Device(self.gpu.device), total, bytes, shortage, &report)
    }

    /// Verifies the ledger, and that its sums agree with the driver's pool.
    pub(super) fn check(&self) -> Result<()> {
        let live = {
            let ledger = self.ledger.lock();
            ledger.check().map_err(Error::invalid)?;
            ledger.stats().live
        };
        let used = self.gpu.driver.pool_attribute(self.gpu.device, self.pool, PoolAttribute::UsedCurrent)?;
        let physical = self.physical()?;
        if live > used || used > physical {
            return Err(Error::invalid(format_args!(
                "{live} bytes live; the driver's pool has {used} in use, and holds {physical}"
            )));
        }
        Ok(())
    }
}
