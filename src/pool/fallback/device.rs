//! One device's pool of either kind, and the operations of both.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::driver_ordered::DriverOrdered;
use crate::driver::{Access, Driver, Place};
use crate::error::{Error, Result};
use crate::pool::device::device_pool::DevicePool;
use crate::pool::device::pressure::Pressure;
use crate::pool::device::trim::trim;
use crate::pool::options::{Location, Options};
use crate::pool::report::snapshot::{self, SnapshotBlock};
use crate::pool::report::stats::{self, Stats, StreamStats};
use crate::pool::report::text;
use crate::units::{Address, DeviceId, GRANULE, StreamHandle};

/// What only an arena has, and the alternative.
pub(crate) const PRIVATE_POOLS: &str =
    "private pools for captured graphs: allocate what a graph uses before its capture";
pub(crate) const EXPORTS: &str = "blocks for other processes: share buffers of forebay_device_resource_create with \
                                  ipc_enabled, where the driver can";

/// One device's pool.
#[derive(Debug)]
pub enum Device {
    /// The arena, on virtual memory management.
    Arena(Arc<DevicePool>),
    /// The driver's stream-ordered pool, where there is none.
    DriverOrdered(Box<DriverOrdered>),
}

impl Device {
    /// Opens the pool of a device. Takes no memory yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the driver has neither virtual memory management nor pools; the driver's errors.
    pub(crate) fn open(
        driver: &Arc<dyn Driver>,
        device: DeviceId,
        options: &Options,
        pressure: &Arc<Pressure>,
    ) -> Result<Self> {
        let capabilities = driver.capabilities(device)?;
        if options.location == Location::Device && !capabilities.vmm {
            if !capabilities.driver_pools {
                let lacks = "neither virtual memory management nor stream-ordered pools of the driver (CUDA 11.2)";
                let instead = "use forebay_managed_resource_create there";
                return Err(Error::Unsupported(
                    format!("device {device} has {lacks}, and a pool needs one of them: {instead}").into(),
                ));
            }
            let place = (device, capabilities);
            return Ok(Self::DriverOrdered(Box::new(DriverOrdered::new(driver, place, options, pressure)?)));
        }
        let arena = DevicePool::new(Arc::clone(driver), device, options, Arc::clone(pressure))?;
        Ok(Self::Arena(Arc::new(arena)))
    }

    /// Gives all memory back, that of live blocks included.
    pub(crate) fn close(&self) {
        match self {
            Self::Arena(pool) => pool.close(),
            Self::DriverOrdered(pool) => pool.close(),
        }
    }

    /// The arena, if this is one.
    pub(crate) fn as_arena(&self) -> Option<&Arc<DevicePool>> {
        match self {
            Self::Arena(pool) => Some(pool),
            Self::DriverOrdered(_) => None,
        }
    }

    /// The arena, or an error that says that the driver's pool has no `what`.
    pub(crate) fn arena(&self, what: &str) -> Result<&Arc<DevicePool>> {
        self.as_arena().ok_or_else(|| {
            let lacks = "has no virtual memory management, and its pool, the driver's stream-ordered one,";
            Error::Unsupported(format!("device {} {lacks} has no {what}", self.device()).into())
        })
    }

    /// The driver-ordered pool, if this is one.
    pub(crate) fn driver_ordered(&self) -> Option<&DriverOrdered> {
        match self {
            Self::Arena(_) => None,
            Self::DriverOrdered(pool) => Some(pool),
        }
    }

    /// The pool's device.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        match self {
            Self::Arena(pool) => pool.device(),
            Self::DriverOrdered(pool) => pool.device(),
        }
    }

    /// Where the pool's memory lies.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Self::Arena(pool) => pool.place(),
            Self::DriverOrdered(pool) => Place::Device(pool.device()),
        }
    }

    /// Whether the memory can be exported to other processes as file descriptors.
    #[must_use]
    pub fn is_shareable(&self) -> bool {
        match self {
            Self::Arena(pool) => pool.is_shareable(),
            Self::DriverOrdered(_) => false,
        }
    }

    // ---- blocks --------------------------------------------------------------------------------------

    /// Whether a block at this address would belong to this device.
    pub(crate) fn contains(&self, at: Address) -> bool {
        match self {
            Self::Arena(pool) => pool.layout.granule(at).is_some(),
            Self::DriverOrdered(pool) => pool.ledger.lock().around(at).is_some(),
        }
    }

    /// Whether this device may ever have had a block there.
    pub(crate) fn spans(&self, at: Address) -> bool {
        match self {
            Self::Arena(pool) => pool.layout.granule(at).is_some(),
            Self::DriverOrdered(pool) => pool.ledger.lock().spans(at),
        }
    }

    /// The live block that contains an address: its start and length in bytes.
    pub(crate) fn block_around(&self, at: Address) -> Result<(Address, u64)> {
        match self {
            Self::Arena(pool) => pool.block_around(at),
            Self::DriverOrdered(pool) => {
                let ledger = pool.ledger.lock();
                ledger.around(at).ok_or_else(|| ledger.bad_free(at))
            }
        }
    }

    /// The length in bytes of the live block that starts at `at`.
    pub(crate) fn block_size(&self, at: Address) -> Result<u64> {
        match self {
            Self::Arena(pool) => pool.find_live(at).map(|(_, header)| header.granules() * GRANULE),
            Self::DriverOrdered(pool) => pool.ledger.lock().find(at).map(|block| block.bytes),
        }
    }

    // ---- streams -------------------------------------------------------------------------------------

    pub(crate) fn register(&self, stream: StreamHandle) -> Result<()> {
        match self {
            Self::Arena(pool) => pool.register(stream),
            Self::DriverOrdered(pool) => pool.register(stream),
        }
    }

    pub(crate) fn unregister(&self, stream: StreamHandle) -> Result<()> {
        match self {
            Self::Arena(pool) => pool.unregister(stream),
            Self::DriverOrdered(pool) => pool.unregister(stream),
        }
    }

    // ---- trim ----------------------------------------------------------------------------------------

    pub(crate) fn trim(&self, keep: u64) -> Result<u64> {
        match self {
            Self::Arena(pool) => trim(pool, keep),
            Self::DriverOrdered(pool) => pool.trim(keep),
        }
    }

    /// Sets the limit to the smaller of the two; 0 means none.
    pub(crate) fn set_limit(&self, bytes: u64, fraction: f64) {
        match self {
            Self::Arena(pool) => pool.set_limit(bytes, fraction),
            Self::DriverOrdered(pool) => pool.set_limit(bytes, fraction),
        }
    }

    /// The most bytes that the pool may hold; `u64::MAX` for no limit.
    pub(crate) fn limit(&self) -> u64 {
        match self {
            Self::Arena(pool) => pool.limit.load(Ordering::Relaxed),
            Self::DriverOrdered(pool) => pool.limit(),
        }
    }

    // ---- access of peers -----------------------------------------------------------------------------

    /// What `peer` may do with the pool's memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        match self {
            Self::Arena(pool) => Ok(pool.peer_access(peer)),
            Self::DriverOrdered(pool) => pool.peer_access(peer),
        }
    }

    /// Sets what `peer` may do with the pool's memory, live blocks included. No queued work of `peer` may use memory
    /// that it loses access to.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the pool's own device, [`Error::Unsupported`] where the devices cannot reach each
    /// other. The access is then as before.
    pub fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        match self {
            Self::Arena(pool) => pool.set_peer_access(peer, access),
            Self::DriverOrdered(pool) => pool.set_peer_access(peer, access),
        }
    }

    // ---- statistics and report -----------------------------------------------------------------------

    pub(crate) fn stats(&self) -> Result<Stats> {
        match self {
            Self::Arena(pool) => Ok(stats::stats(pool)),
            Self::DriverOrdered(pool) => pool.stats(),
        }
    }

    pub(crate) fn stream_stats(&self, stream: StreamHandle) -> Result<StreamStats> {
        match self {
            Self::Arena(pool) => Ok(stats::stream_stats(&*pool.stream(stream)?)),
            Self::DriverOrdered(pool) => Ok(pool.stream_stats(stream)),
        }
    }

    pub(crate) fn reset_live_peak(&self) {
        match self {
            Self::Arena(pool) => pool.reset_live_peak(),
            Self::DriverOrdered(pool) => pool.reset_live_peak(),
        }
    }

    pub(crate) fn reset_physical_peak(&self) -> Result<()> {
        match self {
            Self::Arena(pool) => {
                pool.reset_physical_peak();
                Ok(())
            }
            Self::DriverOrdered(pool) => pool.reset_physical_peak(),
        }
    }

    pub(crate) fn blocks(&self) -> Vec<SnapshotBlock> {
        match self {
            Self::Arena(pool) => snapshot::blocks(pool),
            Self::DriverOrdered(pool) => pool.blocks(),
        }
    }

    pub(crate) fn report(&self) -> Result<String> {
        match self {
            Self::Arena(pool) => Ok(text::report(pool)),
            Self::DriverOrdered(pool) => pool.report(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Arena(pool) => stats::check(pool).map_err(Error::invalid),
            Self::DriverOrdered(pool) => pool.check(),
        }
    }
}
