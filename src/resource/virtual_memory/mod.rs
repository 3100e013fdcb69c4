//! Memory made of CUDA's virtual memory calls (document 004 and `cuda.core.VirtualMemoryResource`): buffers that grow
//! in place, on a device or on the host, and that other processes can map.
//!
//! `options` holds every option against the device, `region` is one allocation.

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

/// Every allocation has addresses and physical memory of its own. Giving one back waits for its stream.
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
    /// What to do when an exported allocation is changed or given back, by its address.
    exports: HashMap<u64, Vec<OnChange>>,
    /// Live allocations by their address.
    regions: HashMap<u64, Region>,
}

/// Tells that what was exported is no longer as it was.
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
    /// errors: [`Error::BadDevice`], [`Error::Unsupported`] for an option that the device lacks, [`Error::Invalid`].
    pub fn new(driver: Arc<dyn Driver>, device: i32, options: &VirtualOptions) -> Result<Self> {
        let device = check_device(driver.as_ref(), device)?;
        let kind = options.check(driver.as_ref(), device)?;
        Ok(Self { driver, device, kind, inner: Mutex::default(), pointers: Pointers::default() })
    }

    /// Changes the size of a live allocation to `bytes`, rounded up to the granularity. Returns where it lies now and
    /// its size. Contents are kept, as far as it reaches.
    ///
    /// Growing needs no wait where the addresses behind it are free, which they are up to the device's memory or twice
    /// the first size. Else the memory is mapped at a new place, and the old one is unmapped once `stream` has done
    /// what it was given. Shrinking waits for `stream` too; physical memory goes back in whole pieces, as it was grown.
    /// New memory is made by `options`, which must name the same location; `None`: by the resource's own.
    ///
    /// # Errors
    /// [`Error::BadFree`] for what is not a live allocation of this resource; the driver's. Nothing was changed then.
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
            return Err(Error::invalid("0 bytes asked for: close the buffer instead"));
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
            // Before anything is made: what is being captured cannot be waited for.
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

    /// Waits for a stream, of whichever device that has the memory too.
    fn wait(&self, stream: StreamHandle) -> Result<()> {
        Ok(self.driver.stream_synchronize(device_of_stream(self.driver.as_ref(), self.device, stream), stream)?)
    }

    /// How its memory can be exported.
    #[must_use]
    pub fn share(&self) -> Share {
        self.kind.physical.share
    }

    /// Where its memory lies.
    #[must_use]
    pub fn place(&self) -> Place {
        self.kind.physical.place
    }

    /// Who may use its memory.
    pub(super) fn access(&self) -> &[(Place, Access)] {
        &self.kind.access
    }

    /// Notes that a live allocation was exported: `on_change` runs when it is changed or given back.
    pub(super) fn exported(&self, at: Address, on_change: OnChange) -> Result<()> {
        let mut inner = self.inner.lock();
        if !inner.regions.contains_key(&at.0) {
            return Err(unknown(at));
        }
        inner.exports.entry(at.0).or_default().push(on_change);
        Ok(())
    }

    /// What `look` makes of a live allocation's physical memory and its size. It is not changed meanwhile.
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
        // Pointers that were never given back: whatever still uses them has to be done first.
        let synchronize = || self.driver.synchronize(self.device);
        // At the end of the process the driver may be gone, and there is nothing to wait for.
        if let Err(error) = synchronize().or_else(|_| synchronize())
            && error.kind != ErrorKind::Deinitialized
        {
            tracing::warn!(device = %self.device, %error, "ending virtual memory without having waited for the device");
        }
        for region in regions.values() {
            if let Err(error) = region.end().or_else(|_| region.end()) {
                tracing::warn!(device = %self.device, %error, "virtual memory stays behind");
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
            return Err(Error::Closed("the resource was closed: nothing can be allocated from it".into()));
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
        // Without the lock: others need not wait for this stream.
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
        Err(Error::Unsupported("who may use virtual memory is said in the resource's options (peers)".into()))
    }
}
