//! A memory resource on CUDA's virtual memory management, after cuda.core's `VirtualMemoryResource`: buffers on a
//! device or on the host that grow in place, and that other processes can map. The driver's calls:
//! <https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html>.
//!
//! `options` checks each option against the device, `region` is one allocation.

mod options;
mod region;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

pub use options::{VirtualLocation, VirtualOptions};

use self::options::Checked;
use self::region::Region;
use super::memory_resource::{Info, Kind, MemoryResource, check_device, device_of_stream};
use super::pointers::Pointers;
use crate::driver::{Access, Driver, ErrorKind, Physical, Place, Share};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// A resource that gives each allocation its own addresses and physical memory. Freeing waits on the host for its
/// stream.
#[derive(Debug)]
pub struct VirtualResource {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    kind: Checked,
    inner: Mutex<Inner>,
    pointers: Pointers,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    /// Functions to call when an exported allocation is changed or freed, by its address.
    exports: HashMap<u64, Vec<OnChange>>,
    /// Live allocations by their address.
    regions: HashMap<u64, Region>,
}

/// Called when an exported allocation is changed or freed.
pub(super) type OnChange = Box<dyn FnOnce() + Send>;

impl Inner {
    fn withdraw(&mut self, at: Address) {
        self.exports.remove(&at.0).into_iter().flatten().for_each(|withdraw| withdraw());
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("closed", &self.closed).field("regions", &self.regions).finish_non_exhaustive()
    }
}

/// A live allocation's physical memory, in address order: handle and bytes.
pub(super) type Pieces = Vec<(Physical, u64)>;

impl VirtualResource {
    /// A resource on `device`.
    ///
    /// # Errors [`Error::BadDevice`], [`Error::Unsupported`] for an option that the device lacks, [`Error::Invalid`].
    pub fn new(driver: Arc<dyn Driver>, device: i32, options: &VirtualOptions) -> Result<Self> {
        let device = check_device(driver.as_ref(), device)?;
        let kind = options.check(driver.as_ref(), device)?;
        Ok(Self { driver, device, kind, inner: Mutex::default(), pointers: Pointers::default() })
    }

    /// Changes the size of a live allocation to `bytes`, rounded up to the granularity. Returns its new address and
    /// size. The contents are kept up to the smaller size.
    ///
    /// Growing does not wait if the addresses behind the allocation are free, which they are up to the size of the
    /// device's memory or twice the first size. Otherwise the memory is mapped at new addresses, and unmapped at the
    /// old ones once the work queued on `stream` is done. Shrinking waits for `stream`, too, and frees physical memory
    /// in whole pieces, as they were added. `options` apply to new memory and must name the same location; `None`: the
    /// resource's own.
    ///
    /// # Errors
    /// [`Error::BadFree`] for an address that is not a live allocation of this resource; the driver's. Nothing changed
    /// then.
    pub fn modify(
        &self,
        at: Address,
        bytes: u64,
        options: Option<&VirtualOptions>,
        stream: StreamHandle,
    ) -> Result<(Address, u64)> {
        let other = options.map(|options| options.check(self.driver.as_ref(), self.device)).transpose()?;
        let kind = other.as_ref().unwrap_or(&self.kind);
        if kind.physical.place != self.kind.physical.place || kind.granularity > self.kind.granularity {
            return Err(Error::invalid(format_args!(
                "the resource's memory lies on {}: the new part cannot lie on {} or come in larger granules",
                self.kind.physical.place, kind.physical.place
            )));
        }
        if bytes == 0 {
            return Err(Error::invalid("new_size is 0: close the buffer instead"));
        }
        let bytes = self.kind.round(bytes)?;
        let mut inner = self.inner.lock();
        let region = inner.regions.get_mut(&at.0).ok_or_else(|| unknown(at))?;
        let mut new = at;
        if bytes < region.bytes {
            self.wait(stream)?;
            region.shrink(bytes)?;
        } else if bytes <= region.mapped() {
            region.bytes = bytes;
        } else if !region.grow_in_place(bytes, kind)? {
            // First, since waiting for a stream that is being captured fails.
            self.wait(stream)?;
            let moved = region.moved(bytes, kind)?;
            region.abandon();
            new = moved.at;
            inner.regions.remove(&at.0);
            inner.regions.insert(new.0, moved);
        }
        inner.withdraw(at);
        Ok((new, bytes))
    }

    /// Waits for a stream, which may be of another device that has access to the memory.
    fn wait(&self, stream: StreamHandle) -> Result<()> {
        Ok(self.driver.stream_synchronize(device_of_stream(self.driver.as_ref(), self.device, stream), stream)?)
    }

    /// The handle type of its memory.
    #[must_use]
    pub fn share(&self) -> Share {
        self.kind.physical.share
    }

    /// The location of its memory.
    #[must_use]
    pub fn place(&self) -> Place {
        self.kind.physical.place
    }

    /// The access of each location to its memory.
    pub(super) fn access(&self) -> &[(Place, Access)] {
        &self.kind.access
    }

    /// Records that a live allocation was exported: `on_change` runs when it is changed or freed.
    pub(super) fn exported(&self, at: Address, on_change: OnChange) -> Result<()> {
        let mut inner = self.inner.lock();
        if !inner.regions.contains_key(&at.0) {
            return Err(unknown(at));
        }
        inner.exports.entry(at.0).or_default().push(on_change);
        Ok(())
    }

    /// Calls `look` with a live allocation's physical memory and its size, which do not change during the call.
    pub(super) fn pieces<T>(&self, at: Address, look: impl FnOnce(&Pieces, u64) -> T) -> Result<T> {
        let inner = self.inner.lock();
        let region = inner.regions.get(&at.0).ok_or_else(|| unknown(at))?;
        let pieces = region.pieces.iter().map(|piece| (piece.physical, piece.bytes)).collect();
        Ok(look(&pieces, region.bytes))
    }
}

impl Drop for VirtualResource {
    fn drop(&mut self) {
        let regions = std::mem::take(&mut self.inner.get_mut().regions);
        if regions.is_empty() || crate::driver::process::is_forked() {
            return;
        }
        // Pointers that were never freed: work that uses them must be done first.
        let synchronize = || self.driver.synchronize(self.device);
        // At the end of the process the driver may have shut down, and no work is left.
        if let Err(error) = synchronize().or_else(|_| synchronize())
            && error.kind != ErrorKind::Deinitialized
        {
            tracing::warn!(device = %self.device, %error, "virtual memory is freed without a wait for the device, which failed");
        }
        for region in regions.values() {
            if let Err(error) = region.end().or_else(|_| region.end()) {
                tracing::warn!(device = %self.device, %error, "virtual memory could not be freed and leaks");
            }
        }
    }
}

fn unknown(at: Address) -> Error {
    Error::BadFree(format!("{at} is not the start of a live allocation of this virtual memory resource").into())
}

impl MemoryResource for VirtualResource {
    fn info(&self) -> Info {
        let place = self.kind.physical.place;
        let may = |who: Place| self.kind.access.iter().any(|&(place, _)| place == who);
        Info {
            device_id: (!place.is_host()).then_some(self.device),
            numa_id: if let Place::HostNuma(node) = place { Some(node) } else { None },
            is_device_accessible: may(Place::Device(self.device)),
            is_host_accessible: place.is_host() && may(place),
            is_ipc_enabled: self.kind.physical.share != Share::None,
            is_closed: self.inner.lock().closed,
            ..Info::new(Kind::Virtual)
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn pointers(&self) -> &Pointers {
        &self.pointers
    }

    fn context(&self) -> DeviceId {
        self.device
    }

    fn allocate(&self, bytes: u64, _stream: StreamHandle) -> Result<Address> {
        let bytes = self.kind.round(bytes)?;
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Error::Closed("the resource is closed: it no longer allocates".into()));
        }
        if bytes == 0 {
            return Ok(Address(0));
        }
        let region = Region::new(&self.driver, self.device, bytes, &self.kind)?;
        let at = region.at;
        inner.regions.insert(at.0, region);
        Ok(at)
    }

    fn usable(&self, bytes: u64) -> u64 {
        self.kind.round(bytes).unwrap_or(bytes)
    }

    fn deallocate(&self, at: Address, _bytes: u64, stream: StreamHandle) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        if !self.inner.lock().regions.contains_key(&at.0) {
            return Err(unknown(at));
        }
        // Without the lock, so that other threads do not wait for this stream.
        self.wait(stream)?;
        let mut inner = self.inner.lock();
        let region = inner.regions.get(&at.0).ok_or_else(|| unknown(at))?;
        region.end()?;
        inner.regions.remove(&at.0);
        inner.withdraw(at);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.inner.lock().closed = true;
        Ok(())
    }

    fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        let peer = check_device(self.driver.as_ref(), peer.0 as i32)?;
        let found = self.kind.access.iter().find(|&&(place, _)| place == Place::Device(peer));
        Ok(found.map_or(Access::None, |&(_, access)| access))
    }

    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        if self.peer_access(peer)? == access {
            return Ok(());
        }
        Err(Error::Unsupported(
            "access to virtual memory is fixed by the resource's options (peers, self_access, peer_access)".into(),
        ))
    }
}
