//! Another process's physical memory, mapped here.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::descriptor::{Descriptor, Path};
use super::location::Location;
use super::pieces::{Form, Handle, Pieces, wrong};
use crate::driver::process::{is_forked, watch_fork};
use crate::driver::{Access, Driver, Physical, PhysicalOptions, Place, Share};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId};

/// A buffer of another process, mapped in this one. The memory lives as long as either has it; what is in it is shared,
/// and whoever uses it orders that use himself. Unmapped by [`Imported::close`] or when dropped.
pub struct Imported {
    mapping: Mutex<Mapping>,
    address: Address,
    bytes: u64,
    path: Path,
    location: Location,
}

impl Imported {
    /// Maps a buffer: all of it or, after an error, nothing. `device` names the context of the calls; `access` says who
    /// may do what. `pieces` is [`fetch`](super::fetch())'s answer for this descriptor.
    ///
    /// # Errors
    /// [`Error::Peer`] for pieces that cannot be mapped as they are described, and what [`fetch`](super::fetch()) can
    /// say while pieces come in; [`Error::NotFound`] for a device that this process does not see;
    /// [`Error::Forked`] in a child of `fork`; the driver's.
    pub fn map(
        driver: &Arc<dyn Driver>,
        device: DeviceId,
        descriptor: &Descriptor,
        pieces: Pieces,
        access: &[(Place, Access)],
    ) -> Result<Self> {
        if is_forked() {
            return Err(Error::Forked);
        }
        watch_fork();
        let (offset, bytes, span) = (pieces.offset(), pieces.bytes(), pieces.span());
        let granularity = granularity(driver.as_ref(), device, descriptor, pieces.form())?;
        let whole = |what: &str, bytes: u64| match bytes.is_multiple_of(granularity) {
            true => Ok(()),
            false => Err(wrong(format!("{what} of {bytes} bytes, not a multiple of {granularity}"))),
        };
        whole("pieces", span)?;
        let mut mapping = Mapping::reserve(driver, device, span)?;
        for piece in pieces {
            let piece = piece?;
            whole("a piece", piece.bytes)?;
            let physical = match &piece.handle {
                Handle::Fd(fd) => driver.import_fd(device, fd.as_fd())?,
                Handle::Fabric(blob) => driver.import_fabric(device, blob)?,
            };
            mapping.add(physical, piece.bytes)?;
        }
        driver.grant_access(device, mapping.start, span, access)?;
        Ok(Self {
            address: mapping.start.plus(offset),
            bytes,
            path: descriptor.path(),
            location: descriptor.location(),
            mapping: Mutex::new(mapping),
        })
    }

    /// Where the buffer begins in this process. Nothing is there any more once it is closed.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes of the buffer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it came here.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Where it lies.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Unmaps the buffer. Twice is harmless. pre: no queued work uses it. Any thread.
    ///
    /// # Errors
    /// The driver's; what is still mapped or reserved then stays so, and another call tries again.
    /// [`Error::Forked`] in a child of `fork`.
    pub fn close(&self) -> Result<()> {
        if is_forked() {
            return Err(Error::Forked);
        }
        self.mapping.lock().end()
    }
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, path, location, .. } = self;
        write!(f, "Imported({bytes} bytes at {address}, {path:?}, {location:?})")
    }
}

/// What pieces of this buffer must be multiples of.
fn granularity(driver: &dyn Driver, device: DeviceId, descriptor: &Descriptor, form: Form) -> Result<u64> {
    let place = descriptor.location().place(driver)?;
    let share = match form {
        Form::Fd => Share::Fd,
        Form::Fabric => Share::Fabric,
    };
    match place {
        // CUDA has no physical memory on the host without a node, so its sizes are those of the node it lay on.
        Place::Host | Place::HostNumaCurrent => Ok(driver.capabilities(device)?.granularity),
        _ => Ok(driver.granularity(device, &PhysicalOptions { place, share, rdma: false }, false)?),
    }
}

/// A reservation, mapped from its start.
struct Mapping {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    start: Address,
    /// Bytes reserved; 0 once given back.
    span: u64,
    /// Bytes mapped.
    mapped: u64,
}

impl Mapping {
    fn reserve(driver: &Arc<dyn Driver>, device: DeviceId, span: u64) -> Result<Self> {
        let start = driver.reserve_at(device, span, 0, Address(0))?;
        Ok(Self { driver: Arc::clone(driver), device, start, span, mapped: 0 })
    }

    /// Maps `physical` behind what is mapped. The mapping holds the memory then, and the handle is given back.
    fn add(&mut self, physical: Physical, bytes: u64) -> Result<()> {
        let mapped = self.driver.map(self.device, self.start.plus(self.mapped), bytes, physical);
        if mapped.is_ok() {
            self.mapped += bytes;
        }
        let release = || self.driver.release(self.device, physical);
        let released = release().or_else(|_| release());
        Ok(mapped.and(released)?)
    }

    fn end(&mut self) -> Result<()> {
        if self.mapped > 0 {
            self.driver.unmap(self.device, self.start, self.mapped)?;
            self.mapped = 0;
        }
        if self.span > 0 {
            // The memory is gone: a failure here would leave a buffer that is open and cannot be used.
            let unreserve = || self.driver.unreserve(self.device, self.start, self.span);
            unreserve().or_else(|_| unreserve())?;
            self.span = 0;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a child of fork the driver is not to be called, and the mapping is the parent's.
        if is_forked() {
            return;
        }
        if let Err(error) = self.end().or_else(|_| self.end()) {
            tracing::warn!(%error, at = %self.start, bytes = self.span, "imported memory stays mapped");
        }
    }
}
