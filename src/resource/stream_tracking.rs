//! A resource for callers that free wherever they happen to be: memory goes back behind its own stream's work, too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::memory_resource::{MemoryResource, hold_back};
use crate::driver::PoolAttribute;
use crate::error::{Error, Result};
use crate::pool::existing;
use crate::units::{Address, StreamHandle};

/// A block that was given out.
#[derive(Debug)]
struct Live {
    bytes: u64,
    place: Place,
}

/// A stream among all that ever were, as far as the driver tells them apart.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    handle: StreamHandle,
    identity: Option<u64>,
}

/// Memory of a resource with the stream of each block, and with a limit.
#[derive(Debug)]
pub struct StreamTracking {
    resource: Arc<dyn MemoryResource>,
    identity: bool,
    /// Most bytes in use; 0 for no limit.
    limit: AtomicU64,
    /// With a limit, held from the look at what is in use until the block is taken.
    live: Mutex<HashMap<Address, Live>>,
}

/// Those that live. One for each resource: its limit counts whoever uses the resource, and holds for them all.
static KNOWN: Mutex<Vec<Weak<StreamTracking>>> = Mutex::new(Vec::new());

impl StreamTracking {
    /// The one on `resource`, which is made if there is none.
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

    fn place(&self, stream: StreamHandle) -> Place {
        let handle = stream.canonical();
        // A stream that is being captured has none to tell; it lives at least as long as the capture.
        let ask = || self.resource.driver().stream_identity(self.resource.context(), handle).ok();
        // No other stream ever gets the handle of the legacy default stream.
        Place { handle, identity: if self.identity && !handle.is_legacy() { ask() } else { None } }
    }

    /// Allocates `bytes` on `device`, usable by work queued on `stream` from now on. 0 bytes give the null address. Before
    /// it fails for want of memory, others are asked to give back.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], also beyond the limit; [`Error::Invalid`] for another device; the resource's.
    pub fn malloc(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address> {
        let home = self.resource.context();
        if u32::try_from(device) != Ok(home.0) {
            return Err(Error::invalid(format_args!("device is {device}; this pool gives memory of device {home}")));
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
        let place = self.place(stream);
        let mut live = self.live.lock();
        self.check_limit(bytes)?;
        let at = self.resource.allocate(bytes, stream)?;
        live.insert(at, Live { bytes, place });
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
                "{bytes} bytes asked for on device {device}: {used} are in use, and the pool's limit is {limit}: free \
                 arrays, or raise the limit"
            )
            .into(),
        ))
    }

    /// Takes a block back in the order of `stream`, which is alive. Where that is not the stream of the allocation, which may
    /// be gone, `stream` waits for everything that the device has now.
    ///
    /// # Errors
    /// [`Error::BadFree`] for an address that was not given out here; the resource's. The block is then still live.
    pub fn free(&self, at: Address, stream: StreamHandle) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let Some(block) = self.live.lock().remove(&at) else {
            return Err(Error::BadFree(
                format!("{at} is no live block of this pool: free it where it came from").into(),
            ));
        };
        let done = if block.place == self.place(stream) {
            self.resource.deallocate(at, block.bytes, stream)
        } else {
            // Its own stream may be gone, and this one is the caller's: whoever waits for it has the memory.
            hold_back(self.resource.driver().as_ref(), self.resource.context(), stream)
                .and_then(|()| self.resource.deallocate(at, block.bytes, stream))
        };
        if done.is_err() {
            self.live.lock().insert(at, block);
        }
        done
    }

    /// The bytes that were asked for with the live block there.
    #[must_use]
    pub fn size_of(&self, at: Address) -> Option<u64> {
        self.live.lock().get(&at).map(|block| block.bytes)
    }

    /// Sets the most bytes in use, by whomever, with which this allocates; 0 for no limit.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// That limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes in use of the pool behind the resource.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool, the driver's.
    pub fn used(&self) -> Result<u64> {
        self.resource.attribute(PoolAttribute::UsedCurrent)
    }

    /// Bytes that it holds.
    ///
    /// # Errors
    /// As [`StreamTracking::used`].
    pub fn held(&self) -> Result<u64> {
        self.resource.attribute(PoolAttribute::ReservedCurrent)
    }
}
