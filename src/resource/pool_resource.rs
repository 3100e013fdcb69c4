//! A Forebay pool as a memory resource: the shared pool, another pool, or a pinned pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory_resource::{Info, Kind, MemoryResource, Reach, check_device, device_of_stream};
use super::pointers::Pointers;
use crate::driver::{Access, Driver, Place, PoolAttribute};
use crate::error::{Error, Result};
use crate::pool::{Location, Options, Pool};
use crate::units::{Address, DeviceId, StreamHandle};

/// One device's part of a [`Pool`]. Buffers of a pinned pool are ready for the host at once: no queued work uses their
/// memory.
#[derive(Debug)]
pub struct PoolResource {
    pool: Arc<Pool>,
    device: DeviceId,
    /// [`Kind::Pool`], or [`Kind::Pinned`] in place of a driver pool.
    kind: Kind,
    owned: bool,
    ipc: bool,
    reach: Reach,
    closed: AtomicBool,
    /// The framework that statistics count its allocations for.
    tag: u8,
    pointers: Pointers,
}

impl PoolResource {
    /// A resource on `pool`, which it does not own. pre: `tag` is a framework's.
    ///
    /// # Errors
    /// [`Error::BadDevice`], the driver's.
    pub fn new(pool: Arc<Pool>, device: i32, tag: u8) -> Result<Self> {
        let device = pool.device(device)?.device();
        let host = pool.is_host();
        let reach = Reach { device: (!host).then_some(device), by_device: true, by_host: host, managed: false };
        let (closed, pointers) = (AtomicBool::new(false), Pointers::default());
        Ok(Self { pool, device, kind: Kind::Pool, owned: false, ipc: true, reach, closed, tag, pointers })
    }

    /// A new pinned pool, in place of a driver pool.
    ///
    /// # Errors
    /// [`Error::BadDevice`], [`Error::Unsupported`] for a NUMA node that cannot be chosen.
    pub(super) fn pinned(
        driver: &Arc<dyn Driver>,
        device: i32,
        numa_node: Option<u32>,
        max_size: u64,
        ipc: bool,
    ) -> Result<Self> {
        check_device(driver.as_ref(), device)?;
        let options = Options { location: Location::Host { numa_node }, limit: max_size, ..Options::default() };
        let pool = Pool::with_driver(Arc::clone(driver), options)?;
        Ok(Self { kind: Kind::Pinned, owned: true, ipc, ..Self::new(pool, device, 0)? })
    }

    /// The resource without ownership: closing it has no effect on the pool.
    pub(super) fn not_owned(self) -> Self {
        Self { owned: false, ..self }
    }

    /// Its pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn ordinal(&self) -> i32 {
        self.device.0 as i32
    }

    /// The device of `stream`, if that is not the pool's device: pinned memory serves all devices, but a pool orders by
    /// streams of its own device only.
    fn foreign(&self, stream: StreamHandle) -> Option<DeviceId> {
        let device = device_of_stream(self.driver().as_ref(), self.device, stream);
        Some(device).filter(|&device| device != self.device)
    }
}

impl MemoryResource for PoolResource {
    fn info(&self) -> Info {
        let home = self.pool.device(self.ordinal());
        let place = home.as_ref().map_or(Place::Device(self.device), |home| home.place());
        Info {
            device_id: self.reach.device,
            numa_id: if let Place::HostNuma(node) = place { Some(node) } else { None },
            is_handle_owned: self.owned,
            is_host_accessible: self.reach.by_host,
            is_ipc_enabled: self.ipc && home.is_ok_and(|home| home.is_shareable()),
            is_closed: self.closed.load(Ordering::Acquire),
            ..Info::new(self.kind)
        }
    }

    fn reach(&self) -> Reach {
        self.reach
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.pool.driver()
    }

    fn pointers(&self) -> &Pointers {
        &self.pointers
    }

    fn context(&self) -> DeviceId {
        self.device
    }

    #[inline]
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<Address> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed("the resource is closed: it no longer allocates".into()));
        }
        if self.pool.is_host() {
            // The block is ready at once on any stream; the stream is only its owner afterwards.
            let stream = if self.foreign(stream).is_some() { StreamHandle::LEGACY } else { stream };
            return self.pool.malloc_ready(bytes, self.ordinal(), stream, self.tag);
        }
        self.pool.malloc(bytes, self.ordinal(), stream, self.tag)
    }

    #[inline]
    fn deallocate(&self, at: Address, _bytes: u64, stream: StreamHandle) -> Result<()> {
        if self.pool.is_host()
            && let Some(device) = self.foreign(stream)
        {
            self.driver().stream_synchronize(device, stream)?;
            return self.pool.free(at, StreamHandle::LEGACY);
        }
        self.pool.free(at, stream)
    }

    #[inline]
    fn try_allocate(&self, bytes: u64, stream: StreamHandle) -> Option<Address> {
        // Host memory must not be in use by queued work; the fast path does not prove that.
        let is_possible = !self.closed.load(Ordering::Relaxed) && !self.pool.is_host();
        is_possible.then(|| self.pool.try_malloc(bytes, self.ordinal(), stream, self.tag)).flatten()
    }

    #[inline]
    fn try_deallocate(&self, at: Address, stream: StreamHandle) -> bool {
        self.pool.try_free(at, stream)
    }

    fn deallocate_after_all(&self, at: Address, _bytes: u64) -> Result<()> {
        self.pool.free_after_all(at)
    }

    fn close(&self) -> Result<()> {
        // The pool itself ends with its last reference; live blocks can be freed until then.
        self.closed.store(self.owned, Ordering::Release);
        Ok(())
    }

    fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        let stats = self.pool.stats(self.ordinal())?;
        Ok(match attribute {
            // The pool does not track which events the program's streams wait for.
            PoolAttribute::ReuseFollowEventDependencies => 0,
            PoolAttribute::ReuseAllowOpportunistic => 1,
            PoolAttribute::ReuseAllowInternalDependencies => u64::from(!self.pool.options().grow_first),
            // Memory goes back to the system by trim only.
            PoolAttribute::ReleaseThreshold => u64::MAX,
            PoolAttribute::ReservedCurrent => stats.physical,
            PoolAttribute::ReservedHigh => stats.physical_peak,
            PoolAttribute::UsedCurrent => stats.live,
            PoolAttribute::UsedHigh => stats.live_peak,
        })
    }

    fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let home = self.pool.device(self.ordinal())?;
        match attribute {
            PoolAttribute::ReservedHigh if value == 0 => home.reset_physical_peak()?,
            PoolAttribute::UsedHigh if value == 0 => home.reset_live_peak(),
            PoolAttribute::ReservedHigh | PoolAttribute::UsedHigh => {
                return Err(Error::invalid(format_args!("{attribute:?} cannot be set to {value}: it takes 0 only")));
            }
            PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => {
                return Err(Error::invalid(format_args!("{attribute:?} cannot be set: it is read-only")));
            }
            _ => {
                return Err(Error::Unsupported(
                    format!(
                        "{attribute:?} of a Forebay pool cannot be changed: see forebay_pool_trim and the pool's options"
                    )
                    .into(),
                ));
            }
        }
        Ok(())
    }

    fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        let peer = check_device(self.driver().as_ref(), peer.0 as i32)?;
        self.pool.device(self.ordinal())?.peer_access(peer)
    }

    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        let peer = check_device(self.driver().as_ref(), peer.0 as i32)?;
        self.pool.device(self.ordinal())?.set_peer_access(peer, access)
    }

    fn trim(&self, keep: u64) -> Result<()> {
        self.pool.trim(self.ordinal(), keep).map(drop)
    }
}
