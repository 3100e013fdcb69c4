//! Where a pool's memory comes from, and the addresses it is mapped at: a device's own, or pinned memory of the host that devices
//! reach.
//!
//! Pinned memory is physical memory of a NUMA node, mapped like a device's, so that the one algorithm serves both.

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
    /// Whose memory it is, or whose streams use the pinned memory.
    device: DeviceId,
    place: Place,
    /// Start and length of the reservation.
    base: Address,
    span: u64,
    /// Smallest size and alignment of a chunk, in bytes.
    pub granularity: u64,
    /// All there is of such memory, in bytes.
    pub total: u64,
    shareable: bool,
    /// Who else may use the memory, and how.
    others: RwLock<Vec<(Place, Access)>>,
    observed: RwLock<Observed>,
}

/// The arena is so many times as long as the device's memory: moved chunks leave holes behind, and
/// addresses cost nothing.
const ADDRESSES_PER_BYTE: u64 = 16;

impl Backing {
    /// Reserves the addresses; no memory is taken yet. pre: for memory of a device, it has virtual memory management.
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
        let everybody = (0..driver.device_count()).map(|other| Place::Device(DeviceId(other)));
        let access = everybody.chain([backing.place]).map(|place| (place, Access::ReadWrite));
        *backing.others.write() = access.collect();
        Ok(backing.reserved()?)
    }

    /// Whether it is memory of the host.
    pub fn is_host(&self) -> bool {
        self.place.is_host()
    }

    /// Where the memory lies.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether memory can be given to other processes as a file descriptor.
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

    /// Maps physical memory at a page. Nobody may use it before it is [granted](Self::grant).
    pub fn map(&self, page: u64, pages: u64, physical: Physical) -> Result<()> {
        let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
        self.driver.map(self.device, at, bytes, physical)?;
        self.tell(Mapping::Mapped, at, bytes);
        Ok(())
    }

    /// Lets everybody who may use the pool's memory use these pages.
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

    /// Says what one other may do with pages that are mapped.
    pub fn grant_to(&self, page: u64, pages: u64, other: (Place, Access)) -> Result<()> {
        self.driver.grant_access(self.device, self.page_address(page), self.page_bytes(pages), &[other])
    }

    pub fn unmap(&self, page: u64, pages: u64) -> Result<()> {
        let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
        self.driver.unmap(self.device, at, bytes)?;
        self.tell(Mapping::Unmapped, at, bytes);
        Ok(())
    }

    // ---- who is told ---------------------------------------------------------------------------------

    pub fn observe(&self, observer: Option<Observer>) {
        // The old one belongs to somebody else; dropping it may call him.
        let old = std::mem::replace(&mut *self.observed.write(), Observed(observer));
        drop(old);
    }

    fn tell(&self, what: Mapping, at: Address, bytes: u64) {
        if let Some(observer) = &self.observed.read().0 {
            observer(what, at, bytes);
        }
    }

    // ---- who else may use it -------------------------------------------------------------------------

    /// What another device may do with the memory.
    pub fn access_of(&self, peer: DeviceId) -> Access {
        if self.place == Place::Device(peer) {
            return Access::ReadWrite;
        }
        let others = self.others.read();
        others.iter().find(|(place, _)| *place == Place::Device(peer)).map_or(Access::None, |&(_, access)| access)
    }

    /// Notes what another device may do with what is mapped from now on. Returns what it might do before.
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
