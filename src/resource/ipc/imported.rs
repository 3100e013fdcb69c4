//! Physical memory of another process, mapped here.

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

/// A buffer of another process, mapped in this one. The memory lives as long as either process has it. The contents are
/// shared, and the programs order their work on it. Unmapped by [`Imported::close`] or when dropped.
pub struct Imported {
    mapping: Mutex<Mapping>,
    address: Address,
    bytes: u64,
    path: Path,
    location: Location,
}

impl Imported {
    /// Maps a buffer: all of it or, after an error, nothing. Calls are made in the context of `device`; `access` is the
    /// access of each location. `pieces` is the result of [`fetch`](super::fetch()) for this descriptor.
    ///
    /// # Errors
    /// [`Error::Peer`] for pieces that cannot be mapped as described, and the errors of [`fetch`](super::fetch()) while
    /// pieces arrive; [`Error::NotFound`] for a device that this process does not see; [`Error::Forked`] in a child of
    /// `fork`; the driver's.
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

    /// The buffer's address in this process. Unmapped once the buffer is closed.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes of the buffer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The path by which it came here.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// The location of its memory.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Unmaps the buffer. A second call does nothing. pre: no queued work uses it. Any thread.
    ///
    /// # Errors
    /// The driver's; memory that is still mapped or reserved stays so, and the call can be repeated. [`Error::Forked`]
    /// in a child of `fork`.
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

/// The granularity: sizes of pieces must be multiples of it.
fn granularity(driver: &dyn Driver, device: DeviceId, descriptor: &Descriptor, form: Form) -> Result<u64> {
    let place = descriptor.location().place(driver)?;
    let share = match form {
        Form::Fd => Share::Fd,
        Form::Fabric => Share::Fabric,
    };
    match place {
        // CUDA has no physical host memory without a NUMA node, so the sizes are those of the exporter's node.
        Place::Host | Place::HostNumaCurrent => Ok(driver.capabilities(device)?.granularity),
        _ => Ok(driver.granularity(device, &PhysicalOptions { place, share, rdma: false }, false)?),
    }
}

/// A reservation, mapped from its start.
struct Mapping {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    start: Address,
    /// Bytes reserved; 0 once unreserved.
    span: u64,
    /// Bytes mapped.
    mapped: u64,
}

impl Mapping {
    fn reserve(driver: &Arc<dyn Driver>, device: DeviceId, span: u64) -> Result<Self> {
        let start = driver.reserve_at(device, span, 0, Address(0))?;
        Ok(Self { driver: Arc::clone(driver), device, start, span, mapped: 0 })
    }

    /// Maps `physical` behind the mapped part and releases the handle; the mapping keeps the memory alive.
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
            // The memory is unmapped already: a failure here would leave an open buffer that cannot be used.
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
