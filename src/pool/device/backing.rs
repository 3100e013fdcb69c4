//! Where a pool's memory comes from: a device's own, or pinned memory of the host that devices reach.
//!
//! Pinned memory is physical memory of a NUMA node, mapped like a device's, so that the one algorithm serves both.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::driver::{
    Access, Capabilities, Driver, DriverError, ErrorKind, Physical, PhysicalOptions, Place, Result, Share, process,
};
use crate::pool::options::{Location, Options};
use crate::pool::report::snapshot::{Mapping, Observed, Observer};
use crate::units::{Address, DeviceId};

fn unsupported(device: DeviceId, what: &str) -> DriverError {
    let detail =
        format!("a pool of device {device} needs {what}, which this driver lacks; use a resource without a pool there");
    DriverError::new(ErrorKind::Unsupported, "pool", detail)
}

/// The memory behind one device's pool.
#[derive(Debug)]
pub(crate) struct Backing {
    driver: Arc<dyn Driver>,
    /// Whose memory it is, or whose streams use the pinned memory.
    device: DeviceId,
    place: Place,
    /// Smallest size and alignment of a chunk, in bytes.
    pub granularity: u64,
    /// All there is of such memory, in bytes.
    pub total: u64,
    shareable: bool,
    /// Who else may use the memory, and how.
    others: RwLock<Vec<(Place, Access)>>,
    observed: RwLock<Observed>,
}

impl Backing {
    pub fn new(
        driver: &Arc<dyn Driver>,
        device: DeviceId,
        options: &Options,
        capabilities: &Capabilities,
    ) -> Result<Self> {
        let mut backing = Self {
            driver: Arc::clone(driver),
            device,
            place: Place::Device(device),
            granularity: capabilities.granularity,
            total: driver.memory_info(device)?.total,
            shareable: capabilities.posix_fd,
            others: RwLock::default(),
            observed: RwLock::default(),
        };
        let Location::Host { numa_node } = options.location else {
            return if capabilities.vmm { Ok(backing) } else { Err(unsupported(device, "virtual memory management")) };
        };
        if !(capabilities.vmm && capabilities.host_numa) {
            return Err(unsupported(device, "physical memory on a NUMA node (CUDA 12.2)"));
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
        Ok(backing)
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

    pub fn reserve(&self, bytes: u64) -> Result<Address> {
        if self.is_host() {
            return self.driver.reserve_at(self.device, bytes, self.granularity, Address(0));
        }
        self.driver.reserve(self.device, bytes)
    }

    pub fn unreserve(&self, at: Address, bytes: u64) -> Result<()> {
        self.driver.unreserve(self.device, at, bytes)
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

    pub fn map(&self, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.driver.map(self.device, at, bytes, physical)?;
        self.tell(Mapping::Mapped, at, bytes);
        Ok(())
    }

    /// Lets everybody who may use the pool's memory use this.
    pub fn grant(&self, at: Address, bytes: u64) -> Result<()> {
        let others = self.others.read();
        if !self.is_host() {
            self.driver.grant(self.device, at, bytes)?;
        }
        if others.is_empty() {
            return Ok(());
        }
        self.driver.grant_access(self.device, at, bytes, &others)
    }

    pub fn unmap(&self, at: Address, bytes: u64) -> Result<()> {
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
