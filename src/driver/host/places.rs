//! The physical memory of each place: its file and its capacity.
//!
//! The physical memory of a device is one sparse memfd, that of the host another. Each handle or device allocation is a
//! range that was never used before. When no reference to it is left its pages are freed, so stale data never looks
//! valid.

use std::sync::Arc;

use super::fault::Call;
use super::file::{Content, SharedFile};
use super::options::HostOptions;
use crate::driver::{DriverError, ErrorKind, MemoryInfo, Place, Result};
use crate::units::{DeviceId, Human};

/// The physical memory of a place.
pub(super) struct Backing {
    pub(super) file: Arc<SharedFile>,
    /// The start of the next range. Only grows.
    pub(super) next_offset: u64,
    /// Bytes counted against the capacity.
    used: u64,
}

impl Backing {
    fn new(place: Place) -> Result<Self> {
        let file = Arc::new(SharedFile::create(Call::Create, Content::Physical, place)?);
        Ok(Self { file, next_offset: 0, used: 0 })
    }

    /// The file, and the start of its next range.
    pub(super) fn end(&self) -> (Arc<SharedFile>, u64) {
        (Arc::clone(&self.file), self.next_offset)
    }
}

/// The physical memory of all devices and of the host.
pub(super) struct Places {
    options: HostOptions,
    devices: Vec<Backing>,
    host: Backing,
}

impl Places {
    pub(super) fn new(options: HostOptions) -> Result<Self> {
        let device = |device| Backing::new(Place::Device(DeviceId(device)));
        let devices = (0..options.devices).map(device).collect::<Result<_>>()?;
        Ok(Self { options, devices, host: Backing::new(Place::Host)? })
    }

    /// The memory of a place; all places of the host have one memory. pre: [`Places::check`].
    pub(super) fn backing(&self, place: Place) -> &Backing {
        match place {
            Place::Device(device) => &self.devices[device.0 as usize],
            _ => &self.host,
        }
    }

    pub(super) fn backing_mut(&mut self, place: Place) -> &mut Backing {
        match place {
            Place::Device(device) => &mut self.devices[device.0 as usize],
            _ => &mut self.host,
        }
    }

    /// Checks that the place exists.
    pub(super) fn check(&self, call: Call, place: Place) -> Result<()> {
        let (devices, nodes) = (self.options.devices, self.options.numa_nodes);
        match place {
            Place::Device(device) if device.0 >= devices => Err(call.invalid(format!("device {device} of {devices}"))),
            Place::HostNuma(node) if node >= nodes => Err(call.invalid(format!("NUMA node {node} of {nodes}"))),
            Place::HostNuma(_) | Place::HostNumaCurrent if !self.options.host_numa => {
                Err(call.unsupported("memory on NUMA nodes is switched off in HostOptions"))
            }
            _ => Ok(()),
        }
    }

    fn capacity(&self, place: Place) -> u64 {
        if place.is_host() { self.options.host_capacity } else { self.options.capacity }
    }

    pub(super) fn info(&self, place: Place) -> MemoryInfo {
        let total = self.capacity(place);
        MemoryInfo { free: total.saturating_sub(self.backing(place).used), total }
    }

    /// Bytes counted against the capacities: of all devices, and of the host.
    pub(super) fn used(&self) -> (u64, u64) {
        (self.devices.iter().map(|device| device.used).sum(), self.host.used)
    }

    /// Counts `bytes` against the capacity of a place.
    pub(super) fn take(&mut self, call: Call, place: Place, bytes: u64) -> Result<()> {
        let MemoryInfo { free, total } = self.info(place);
        if bytes > free {
            let (asked, free, total) = (Human(bytes), Human(free), Human(total));
            let detail = format!("asked for {asked} ({bytes} bytes), {place} has {free} free of {total}");
            return Err(DriverError::new(ErrorKind::OutOfMemory, call.name(), detail));
        }
        self.backing_mut(place).used += bytes;
        Ok(())
    }

    pub(super) fn give_back(&mut self, place: Place, bytes: u64) {
        self.backing_mut(place).used -= bytes;
    }
}
