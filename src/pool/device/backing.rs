//! The memory behind a pool and the addresses it is mapped at: memory of a device, or pinned memory of the host.
//!
//! Pinned memory is physical memory of a NUMA node that is mapped like a device's, so one algorithm serves both.

use std::sync::Arc;

use parking_lot::RwLock;

use super::observer::{Mapping, Observed, Observer};
use crate::driver::{Access, Capabilities, Driver, Physical, PhysicalOptions, Place, Result, Share, process};
use crate::error::Error;
use crate::pool::options::{Location, Options};
use crate::units::{Address, DeviceId};

/// The memory behind one device's pool.
#[derive(Debug)]
pub(crate) struct Backing {
    driver: Arc<dyn Driver>,
    /// The device that has the memory, or whose streams use the pinned memory.
    device: DeviceId,
    place: Place,
    /// Start and length of the reservation.
    base: Address,
    span: u64,
    /// Smallest size and alignment of a chunk, in bytes.
    pub granularity: u64,
    /// All memory of this kind, in bytes.
    pub total: u64,
    shareable: bool,
    /// Which other places may use the memory, and how.
    others: RwLock<Vec<(Place, Access)>>,
    observed: RwLock<Observed>,
}

/// The arena's addresses per byte of memory: moved chunks leave holes behind, and addresses cost nothing.
const ADDRESSES_PER_BYTE: u64 = 16;

impl Backing {
    /// Reserves the addresses. Takes no memory yet. pre: for device memory, the device has virtual memory management.
    pub fn new(
        driver: &Arc<dyn Driver>,
        device: DeviceId,
        options: &Options,
        capabilities: &Capabilities,
    ) -> crate::error::Result<Self> {
        let mut backing = Self {
            driver: Arc::clone(driver),
            device,
            place: Place::Device(device),
            base: Address(0),
            span: 0,
            granularity: capabilities.granularity,
            total: driver.memory_info(device)?.total,
            shareable: capabilities.posix_fd,
            others: RwLock::default(),
            observed: RwLock::default(),
        };
        let Location::Host { numa_node } = options.location else { return Ok(backing.reserved()?) };
        if !(capabilities.vmm && capabilities.host_numa) {
            return Err(Error::Unsupported(
                format!(
                    "a pinned pool for device {device} needs physical memory on a NUMA node (CUDA 12.2), which this \
                     driver lacks: use forebay_host_resource_create, page-locked memory without a pool"
                )
                .into(),
            ));
        }
        backing.total = process::host_memory()?;
        backing.place = match numa_node.or(capabilities.numa_node) {
            Some(node) => Place::HostNuma(node),
            None => Place::HostNumaCurrent,
        };
        backing.granularity = driver.granularity(device, &backing.physical_options(), false)?;
        let all_devices = (0..driver.device_count()).map(|other| Place::Device(DeviceId(other)));
        let access = all_devices.chain([backing.place]).map(|place| (place, Access::ReadWrite));
        *backing.others.write() = access.collect();
        Ok(backing.reserved()?)
    }

    /// Whether this is memory of the host.
    pub fn is_host(&self) -> bool {
        self.place.is_host()
    }

    /// Where the memory lies.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether the memory can be exported to other processes as file descriptors.
    pub fn is_shareable(&self) -> bool {
        self.shareable
    }

    fn physical_options(&self) -> PhysicalOptions {
        let share = if self.shareable { Share::Fd } else { Share::None };
        PhysicalOptions { place: self.place, share, rdma: false }
    }

    // ---- virtual memory ------------------------------------------------------------------------------

    fn reserved(mut self) -> Result<Self> {
        self.span = (self.total * ADDRESSES_PER_BYTE).next_multiple_of(self.granularity);
        self.base = if self.is_host() {
            self.driver.reserve_at(self.device, self.span, self.granularity, Address(0))?
        } else {
            self.driver.reserve(self.device, self.span)?
        };
        Ok(self)
    }

    pub fn unreserve(&self) -> Result<()> {
        self.driver.unreserve(self.device, self.base, self.span)
    }

    /// Start and length of the reservation.
    pub fn addresses(&self) -> (Address, u64) {
        (self.base, self.span)
    }

    pub fn page_address(&self, page: u64) -> Address {
        self.base.plus(page * self.granularity)
    }

    pub fn page_bytes(&self, pages: u64) -> u64 {
        pages * self.granularity
    }

    pub fn create(&self, bytes: u64) -> Result<Physical> {
        if self.is_host() {
            return self.driver.create_with(self.device, bytes, &self.physical_options());
        }
        self.driver.create(self.device, bytes)
    }

    pub fn release(&self, physical: Physical) -> Result<()> {
        self.driver.release(self.device, physical)
    }

    /// Maps physical memory at a page. It may be used once it is [granted](Self::grant).
    pub fn map(&self, page: u64, pages: u64, physical: Physical) -> Result<()> {
        let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
        self.driver.map(self.device, at, bytes, physical)?;
        self.notify(Mapping::Mapped, at, bytes);
        Ok(())
    }

    /// Grants access to these pages to every place that may use the pool's memory.
    pub fn grant(&self, page: u64, pages: u64) -> Result<()> {
        let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
        let others = self.others.read();
        if !self.is_host() {
            self.driver.grant(self.device, at, bytes)?;
        }
        if others.is_empty() {
            return Ok(());
        }
        self.driver.grant_access(self.device, at, bytes, &others)
    }

    /// Sets what one other place may do with mapped pages.
    pub fn grant_to(&self, page: u64, pages: u64, other: (Place, Access)) -> Result<()> {
        self.driver.grant_access(self.device, self.page_address(page), self.page_bytes(pages), &[other])
    }

    pub fn unmap(&self, page: u64, pages: u64) -> Result<()> {
        let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
        self.driver.unmap(self.device, at, bytes)?;
        self.notify(Mapping::Unmapped, at, bytes);
        Ok(())
    }

    // ---- the observer --------------------------------------------------------------------------------

    pub fn observe(&self, observer: Option<Observer>) {
        // Dropping the old observer runs its owner's code, so no lock is held.
        let old = std::mem::replace(&mut *self.observed.write(), Observed(observer));
        drop(old);
    }

    fn notify(&self, what: Mapping, at: Address, bytes: u64) {
        if let Some(observer) = &self.observed.read().0 {
            observer(what, at, bytes);
        }
    }

    // ---- access of other places ----------------------------------------------------------------------

    /// What another device may do with the memory.
    pub fn access_of(&self, peer: DeviceId) -> Access {
        if self.place == Place::Device(peer) {
            return Access::ReadWrite;
        }
        let others = self.others.read();
        others.iter().find(|(place, _)| *place == Place::Device(peer)).map_or(Access::None, |&(_, access)| access)
    }

    /// Sets what another device may do with memory that is mapped from now on. Returns its access before.
    pub fn set_access_of(&self, peer: DeviceId, access: Access) -> Access {
        let before = self.access_of(peer);
        let mut others = self.others.write();
        others.retain(|(place, _)| *place != Place::Device(peer));
        if access != Access::None {
            others.push((Place::Device(peer), access));
        }
        before
    }
}
