//! The pool of a device without virtual memory management: each malloc and free is a call of the driver's pool.
//!
//! A free is queued on the freeing stream, behind events on the further streams that use the block. If no event can
//! cover a use, because a stream is being captured or its handle may be dead, the block goes into quarantine. It
//! returns to the driver after a wait for the whole device, in a trim or before a request fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::ledger::{Block, Ledger, Stream};
use crate::block::block_granules;
use crate::driver::{
    self, Access, Capabilities, Driver, DriverError, ErrorKind, Place, PoolAttribute, PoolHandle, PoolOptions,
};
use crate::error::{Error, Result};
use crate::policy::next::{RECLAIM, Reclaim};
use crate::pool::bad_free::of_another_framework;
use crate::pool::device::free::FreeAfter;
use crate::pool::device::need::{Failure, Shortage};
use crate::pool::device::peers::needs_access;
use crate::pool::device::pressure::Pressure;
use crate::pool::options::{Options, effective_limit};
use crate::pool::order::fence::Fence;
use crate::pool::order::gpu::{Gpu, capturing};
use crate::pool::streams::registry::refuse_per_thread;
use crate::units::{Address, DeviceId, GRANULE, StreamHandle};

/// The pool of one device.
#[derive(Debug)]
pub struct DriverOrdered {
    pub(super) gpu: Arc<Gpu>,
    pub(super) pool: PoolHandle,
    /// A stream of the pool's own, for frees that belong to no other stream.
    own: StreamHandle,
    /// Bytes of memory that the device has.
    total: u64,
    limit: AtomicU64,
    pressure: Arc<Pressure>,
    /// Never locked during a driver call.
    pub(super) ledger: Mutex<Ledger>,
}

/// A refusal for want of memory may end after a reclaim; any other error is final.
fn failed(bytes: u64, error: DriverError) -> Failure {
    match error.kind {
        ErrorKind::OutOfMemory => Failure::Memory(bytes, Shortage::Device(error)),
        _ => error.into(),
    }
}

/// Calls twice if the first call fails: nothing retries later.
fn twice(what: &str, device: DeviceId, call: impl Fn() -> driver::Result<()>) {
    if let Err(error) = call().or_else(|_| call())
        && error.kind != ErrorKind::Deinitialized
    {
        tracing::warn!(%device, %error, "{what}");
    }
}

impl DriverOrdered {
    /// Makes the driver's pool. Takes no memory yet.
    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        (device, capabilities): (DeviceId, Capabilities),
        options: &Options,
        pressure: &Arc<Pressure>,
    ) -> Result<Self> {
        let total = driver.memory_info(device)?.total;
        let wanted = PoolOptions { place: Some(Place::Device(device)), managed: false, share: false, max_size: 0 };
        let pool = driver.pool_create(device, &wanted)?;
        let own = driver.stream_create(device).inspect_err(|_| {
            twice("the driver's pool could not be destroyed", device, || driver.pool_destroy(device, pool))
        })?;
        let made = Self {
            gpu: Gpu::new(Arc::clone(driver), device, capabilities),
            pool,
            own,
            total,
            limit: AtomicU64::new(effective_limit(total, options.limit, options.fraction)),
            pressure: Arc::clone(pressure),
            ledger: Mutex::default(),
        };
        made.set_up(options).inspect_err(|_| made.close())?;
        Ok(made)
    }

    fn set_up(&self, options: &Options) -> driver::Result<()> {
        let set = |attribute, value| self.gpu.driver.pool_set_attribute(self.gpu.device, self.pool, attribute, value);
        // Without `give_back_ms` idle memory stays until a trim. With it, the driver releases idle memory in the only
        // way that it has: at each synchronisation.
        set(PoolAttribute::ReleaseThreshold, if options.give_back_ms == 0 { u64::MAX } else { 0 })?;
        set(PoolAttribute::ReuseAllowInternalDependencies, u64::from(!options.grow_first))
    }

    /// Gives all memory back, that of live blocks included.
    pub(super) fn close(&self) {
        let again = |what: &str, call: &dyn Fn() -> driver::Result<()>| twice(what, self.gpu.device, call);
        again("closing a pool: waiting for the device failed", &|| self.gpu.driver.synchronize(self.gpu.device));
        let left = self.ledger.lock().clear();
        for at in left {
            again("closing a pool: a block could not be freed", &|| {
                self.gpu.driver.pool_free(self.gpu.device, at, self.own)
            });
        }
        again("closing a pool: waiting for its frees failed", &|| {
            self.gpu.driver.stream_synchronize(self.gpu.device, self.own)
        });
        again("closing a pool: the driver's pool could not be destroyed", &|| {
            self.gpu.driver.pool_destroy(self.gpu.device, self.pool)
        });
        again("closing a pool: its stream could not be destroyed", &|| {
            self.gpu.driver.stream_destroy(self.gpu.device, self.own)
        });
        self.gpu.end();
    }

    // ---- malloc --------------------------------------------------------------------------------------

    /// Allocates a block of at least `bytes` on `stream`, charged to framework `tag`. pre: `bytes` > 0.
    pub(crate) fn malloc(&self, bytes: u64, stream: StreamHandle, tag: u8) -> Result<Address> {
        let stream = Stream::named(stream);
        if self.is_captured(stream.handle)? {
            // The driver would make the memory a part of the graph.
            return Err(Error::Capturing(
                format!(
                    "stream {} is being captured, and device {} has no private pools for graphs, since it lacks \
                     virtual memory management: allocate what the graph uses before its capture",
                    stream.handle, self.gpu.device
                )
                .into(),
            ));
        }
        let block = Block { bytes: block_granules(bytes) * GRANULE, requested: bytes, tag, stream, users: Vec::new() };
        if block.bytes > self.total {
            return Err(self.refuse(block.bytes, &Shortage::Total));
        }
        let mut ways = RECLAIM.iter();
        loop {
            let shortage = match self.try_malloc(&block) {
                Ok(at) => return Ok(at),
                Err(Failure::Other(error)) => return Err(error),
                Err(Failure::Memory(_, shortage)) => shortage,
            };
            if !ways.any(|&how| self.reclaim(how, block.bytes)) {
                return Err(self.refuse(block.bytes, &shortage));
            }
        }
    }

    /// Allocates memory that no queued work uses, so the host may touch it at once.
    pub(crate) fn malloc_ready(&self, bytes: u64, stream: StreamHandle, tag: u8) -> Result<Address> {
        let at = self.malloc(bytes, stream, tag)?;
        if let Err(error) = self.gpu.driver.stream_synchronize(self.gpu.device, stream) {
            let mut ledger = self.ledger.lock();
            ledger.remove(at)?;
            ledger.quarantine.push(at);
            return Err(error.into());
        }
        Ok(at)
    }

    /// Gets memory back. Returns whether another try is worth it.
    fn reclaim(&self, how: Reclaim, bytes: u64) -> bool {
        match how {
            Reclaim::Pending => self.wait(),
            // Covered by the wait, which is for the whole device.
            Reclaim::Quarantine => false,
            Reclaim::DriverPools => self.gpu.driver.trim_driver_pools(self.gpu.device).is_ok(),
            Reclaim::OtherPools => self.pressure.trim_others(self.gpu.device),
            Reclaim::Callbacks => self.pressure.call(self.gpu.device, bytes),
        }
    }

    /// One attempt. The bytes count before the driver call, so that concurrent requests keep to the limit, too.
    fn try_malloc(&self, block: &Block) -> std::result::Result<Address, Failure> {
        let limit = self.limit.load(Ordering::Relaxed);
        {
            let mut ledger = self.ledger.lock();
            let over = (ledger.committed() + block.bytes).saturating_sub(limit);
            if over > 0 {
                return Err(Failure::Memory(block.bytes, Shortage::Limit(over)));
            }
            ledger.in_progress += block.bytes;
        }
        let taken = self.take(block, limit);
        let mut ledger = self.ledger.lock();
        ledger.in_progress -= block.bytes;
        if let Ok(at) = taken {
            ledger.insert(at, block.clone());
        }
        taken
    }

    fn take(&self, block: &Block, limit: u64) -> std::result::Result<Address, Failure> {
        let stream = block.stream.handle;
        let taken = self.gpu.driver.pool_allocate(self.gpu.device, self.pool, block.bytes, stream);
        let at = taken.map_err(|error| failed(block.bytes, error))?;
        // How much memory the driver takes for a request is known only afterwards.
        let failure = match self.shrink_to(limit) {
            Ok(0) => return Ok(at),
            Ok(over) => Failure::Memory(block.bytes, Shortage::Limit(over)),
            Err(error) => failed(block.bytes, error),
        };
        if self.gpu.driver.pool_free(self.gpu.device, at, stream).is_err() {
            self.ledger.lock().quarantine.push(at);
        }
        Err(failure)
    }

    /// Gives idle memory back if the pool holds more than `limit`. Returns the bytes that it still holds above.
    fn shrink_to(&self, limit: u64) -> driver::Result<u64> {
        if limit == u64::MAX || self.physical()? <= limit {
            return Ok(0);
        }
        self.gpu.driver.pool_trim(self.gpu.device, self.pool, limit)?;
        Ok(self.physical()?.saturating_sub(limit))
    }

    fn refuse(&self, bytes: u64, shortage: &Shortage) -> Error {
        // Gives back what the last attempt took, unless the driver still uses it.
        if let Err(error) = self.shrink_to(self.limit.load(Ordering::Relaxed)) {
            tracing::debug!(device = %self.gpu.device, %error, "more than the limit is held until the next trim");
        }
        self.ledger.lock().refused();
        self.out_of_memory(bytes, self.total, shortage)
    }

    // ---- free ----------------------------------------------------------------------------------------

    /// Frees the block that starts at `at` in the order of `stream` and after the work that `after` names. After the
    /// work of all streams it is freed on the pool's own stream.
    pub(crate) fn free(&self, at: Address, stream: StreamHandle, after: FreeAfter) -> Result<()> {
        let stream = Stream::named(if after == FreeAfter::AllStreams { self.own } else { stream });
        let captured = self.is_captured(stream.handle)?;
        let block = self.ledger.lock().remove(at)?;
        let freed = match captured {
            // The free would become a part of the graph.
            true => Err(capturing("free", format!("stream {} is being captured", stream.handle))),
            false => self
                .wait_for_uses(stream, &block, after)
                .and_then(|()| self.gpu.driver.pool_free(self.gpu.device, at, stream.handle)),
        };
        if let Err(error) = freed {
            tracing::debug!(device = %self.gpu.device, %error, "a free could not be queued; its block is quarantined");
            self.ledger.lock().quarantine.push(at);
        }
        Ok(())
    }

    /// Makes `stream` wait for the other streams that may still use the block.
    fn wait_for_uses(&self, stream: Stream, block: &Block, after: FreeAfter) -> driver::Result<()> {
        let everything = match after {
            FreeAfter::Stream => false,
            // The stream of the allocation may be dead.
            FreeAfter::BothStreams => block.stream != stream,
            FreeAfter::AllStreams => true,
        };
        if everything || !block.users.iter().all(|user| user.is_named_here()) {
            return Fence::after_everything(&self.gpu)?.make_stream_wait(stream.handle);
        }
        // The freeing stream's own work comes first anyway.
        for user in block.users.iter().filter(|&&user| user != stream) {
            Fence::after_uncaptured(&self.gpu, user.handle)?.make_stream_wait(stream.handle)?;
        }
        Ok(())
    }

    /// Records that the block is also used on `stream`, which must live until the block is freed.
    pub(crate) fn record_use(&self, at: Address, stream: StreamHandle) -> Result<()> {
        self.ledger.lock().record_use(at, Stream::named(stream))
    }

    /// Frees a block of framework `tag` as [`Pool::free_while`](crate::pool::Pool::free_while) does.
    pub(crate) fn free_while(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<Block> {
        let block = self.block_of(at, tag)?;
        match current.map(|current| (current, self.is_captured(current))) {
            Some((current, Ok(false))) => self.record_use(at, current)?,
            Some((_, Err(error))) => {
                let device = self.device();
                tracing::debug!(%device, %error, "the use on the current stream was not recorded for a free");
            }
            _ => {}
        }
        // For handle 2, the stream may be another thread's.
        self.free(at, block.stream.handle, FreeAfter::BothStreams)?;
        Ok(block)
    }

    /// The block of framework `tag` that starts at `at`.
    pub(crate) fn block_of(&self, at: Address, tag: u8) -> Result<Block> {
        let ledger = self.ledger.lock();
        let block = ledger.find(at)?;
        if block.tag == tag { Ok(block.clone()) } else { Err(of_another_framework(at)) }
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.gpu.device
    }

    // ---- streams -------------------------------------------------------------------------------------

    fn is_captured(&self, stream: StreamHandle) -> driver::Result<bool> {
        match self.gpu.may_be_captured(stream) {
            // The process is ending: no later work can be disturbed.
            Err(error) if error.kind == ErrorKind::Deinitialized => Ok(false),
            answer => answer,
        }
    }

    /// Registers a stream. Its frees become no cheaper here.
    pub(super) fn register(&self, stream: StreamHandle) -> Result<()> {
        refuse_per_thread(stream)?;
        let stream = stream.canonical();
        // The query fails if it is no stream of this device.
        self.is_captured(stream)?;
        if !stream.is_legacy() {
            self.ledger.lock().registered.insert(stream);
        }
        Ok(())
    }

    pub(super) fn unregister(&self, stream: StreamHandle) -> Result<()> {
        let stream = stream.canonical();
        if self.is_captured(stream)? {
            return Err(Error::Capturing(format!("stream {stream} is being captured: end the capture first").into()));
        }
        if self.ledger.lock().registered.remove(&stream) {
            return Ok(());
        }
        Err(Error::NotFound(format!("stream {stream} of device {} is not registered", self.gpu.device).into()))
    }

    // ---- trim ----------------------------------------------------------------------------------------

    /// Waits for the whole device and returns the blocks to the driver that only this proves unused. Returns whether it
    /// could wait.
    fn wait(&self) -> bool {
        // The wait covers only what was there before it.
        let mut covered = std::mem::take(&mut self.ledger.lock().quarantine);
        let waited = self.gpu.driver.synchronize(self.gpu.device).and_then(|()| {
            if covered.is_empty() {
                return Ok(());
            }
            covered.retain(|&at| self.gpu.driver.pool_free(self.gpu.device, at, self.own).is_err());
            self.gpu.driver.stream_synchronize(self.gpu.device, self.own)
        });
        self.ledger.lock().quarantine.extend(covered);
        if let Err(error) = &waited {
            tracing::debug!(device = %self.gpu.device, %error, "waiting for the device failed");
        }
        waited.is_ok()
    }

    /// Gives idle memory back until at most `keep` bytes are held. Returns the bytes given back.
    pub(super) fn trim(&self, keep: u64) -> Result<u64> {
        let held = self.physical()?;
        self.wait();
        self.gpu.driver.pool_trim(self.gpu.device, self.pool, keep)?;
        Ok(held.saturating_sub(self.physical()?))
    }

    /// The most bytes that the pool may hold; `u64::MAX` for no limit.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, bytes: u64, fraction: f64) {
        self.limit.store(effective_limit(self.total, bytes, fraction), Ordering::Relaxed);
    }

    /// Bytes of the device's memory that the pool holds.
    pub(super) fn physical(&self) -> driver::Result<u64> {
        self.gpu.driver.pool_attribute(self.gpu.device, self.pool, PoolAttribute::ReservedCurrent)
    }

    // ---- access of peers -----------------------------------------------------------------------------

    pub(super) fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        Ok(self.gpu.driver.pool_access(self.gpu.device, self.pool, Place::Device(peer))?)
    }

    pub(super) fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        if needs_access(self.gpu.driver.as_ref(), self.gpu.device, peer, access)? {
            self.gpu.driver.pool_set_access(self.gpu.device, self.pool, Place::Device(peer), access)?;
        }
        Ok(())
    }
}
