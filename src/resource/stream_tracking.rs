//! An adaptor of a memory resource for callers that free on another stream than the one of the allocation, as CuPy
//! does: the free is ordered after the work of both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::memory_resource::{MemoryResource, wait_for_device};
use crate::driver::PoolAttribute;
use crate::error::{Error, Result};
use crate::pool::existing;
use crate::units::{Address, StreamHandle};

/// A live block.
#[derive(Debug)]
struct Live {
    bytes: u64,
    stream: StreamKey,
}

/// Identifies a stream. Without an identity from the driver, a later stream with the same handle is taken for the same
/// one.
#[derive(Debug, PartialEq, Eq)]
struct StreamKey {
    handle: StreamHandle,
    identity: Option<u64>,
}

/// A resource with the stream of each live block, and with a limit.
#[derive(Debug)]
pub struct StreamTracking {
    resource: Arc<dyn MemoryResource>,
    identity: bool,
    /// The most bytes in use, in bytes; 0 for no limit.
    limit: AtomicU64,
    /// Held from the check of the limit until the block is allocated.
    live: Mutex<HashMap<Address, Live>>,
}

/// The living adaptors, one for each resource, so that all users of a resource share its limit.
static KNOWN: Mutex<Vec<Weak<StreamTracking>>> = Mutex::new(Vec::new());

impl StreamTracking {
    /// The adaptor of `resource`. Creates it if there is none.
    ///
    /// # Errors
    /// The driver's.
    pub fn of(resource: &Arc<dyn MemoryResource>) -> Result<Arc<Self>> {
        let mut known = KNOWN.lock();
        known.retain(|ordered| ordered.strong_count() > 0);
        let mut living = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = living.find(|ordered| Arc::ptr_eq(&ordered.resource, resource)) {
            return Ok(found);
        }
        let identity = resource.driver().capabilities(resource.context())?.stream_identity;
        let resource = Arc::clone(resource);
        let made = Arc::new(Self { resource, identity, limit: AtomicU64::new(0), live: Mutex::default() });
        known.push(Arc::downgrade(&made));
        Ok(made)
    }

    fn key(&self, stream: StreamHandle) -> StreamKey {
        let handle = stream.canonical();
        // The driver gives no identity of a stream that is being captured; it lives at least as long as the capture.
        let identity = || self.resource.driver().stream_identity(self.resource.context(), handle).ok();
        // No other stream gets the handle of the legacy default stream.
        StreamKey { handle, identity: if self.identity && !handle.is_legacy() { identity() } else { None } }
    }

    /// Allocates `bytes` bytes on `device` that work queued on `stream` from now on may use. 0 bytes give the null
    /// address. Before it fails for lack of memory, the shared pool gives memory back and calls its pressure callbacks.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], also beyond the limit; [`Error::Invalid`] for another device; the resource's.
    pub fn malloc(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address> {
        let home = self.resource.context();
        if u32::try_from(device) != Ok(home.0) {
            return Err(Error::invalid(format_args!("device is {device}; this pool allocates on device {home}")));
        }
        match self.take(bytes, stream) {
            Err(Error::OutOfMemory(report)) => match existing() {
                Some(pool) if pool.relieve(home, bytes) => self.take(bytes, stream),
                _ => Err(Error::OutOfMemory(report)),
            },
            other => other,
        }
    }

    fn take(&self, bytes: u64, stream: StreamHandle) -> Result<Address> {
        if bytes == 0 {
            return Ok(Address(0));
        }
        let key = self.key(stream);
        let mut live = self.live.lock();
        self.check_limit(bytes)?;
        let at = self.resource.allocate(bytes, stream)?;
        live.insert(at, Live { bytes, stream: key });
        Ok(at)
    }

    fn check_limit(&self, bytes: u64) -> Result<()> {
        let limit = self.limit();
        if limit == 0 {
            return Ok(());
        }
        let used = self.used()?;
        if used.saturating_add(bytes) <= limit {
            return Ok(());
        }
        let device = self.resource.context();
        Err(Error::OutOfMemory(
            format!(
                "{bytes} bytes asked for on device {device}; {used} are in use and the pool's limit is {limit}: free arrays, \
                 or raise the limit"
            )
            .into(),
        ))
    }

    /// Frees a block in the order of `stream`, which is alive. If that is not the stream of the allocation, which may
    /// be destroyed, `stream` first waits for all work that the device has now.
    ///
    /// # Errors
    /// [`Error::BadFree`] for an address that is not a live block of this adaptor; the resource's. The block is then
    /// still live.
    pub fn free(&self, at: Address, stream: StreamHandle) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let Some(block) = self.live.lock().remove(&at) else {
            return Err(Error::BadFree(
                format!("{at} is not a live block of this pool: free it to the pool that allocated it").into(),
            ));
        };
        let done = if block.stream == self.key(stream) {
            self.resource.deallocate(at, block.bytes, stream)
        } else {
            // The stream of the allocation may be destroyed, so the caller's stream waits for the device.
            wait_for_device(self.resource.driver().as_ref(), self.resource.context(), stream)
                .and_then(|()| self.resource.deallocate(at, block.bytes, stream))
        };
        if done.is_err() {
            self.live.lock().insert(at, block);
        }
        done
    }

    /// The requested bytes of the live block at `at`.
    #[must_use]
    pub fn size_of(&self, at: Address) -> Option<u64> {
        self.live.lock().get(&at).map(|block| block.bytes)
    }

    /// Sets the limit in bytes; 0 for no limit. An allocation fails if it would raise the bytes in use of the
    /// resource's pool, by all its users, above it.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The limit in bytes; 0 for none.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes in use of the resource's pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a resource without a pool, the driver's.
    pub fn used(&self) -> Result<u64> {
        self.resource.attribute(PoolAttribute::UsedCurrent)
    }

    /// Bytes that the resource's pool holds.
    ///
    /// # Errors
    /// As [`StreamTracking::used`].
    pub fn held(&self) -> Result<u64> {
        self.resource.attribute(PoolAttribute::ReservedCurrent)
    }
}
