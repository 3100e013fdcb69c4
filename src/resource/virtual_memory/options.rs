//! The options of a virtual memory resource, and the features that a device must have for each.

use crate::driver::{Access, Driver, PhysicalOptions, Place, Share};
use crate::error::{Error, Result};
use crate::resource::memory_resource::check_device;
use crate::units::{Address, DeviceId};

/// Options of a [`VirtualResource`](super::VirtualResource). The defaults are those of cuda.core's
/// `VirtualMemoryResourceOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualOptions {
    /// Managed instead of pinned memory; refused, since CUDA does not create it.
    pub managed: bool,
    /// The location of the memory.
    pub location: VirtualLocation,
    /// The handle type for other processes.
    pub share: Share,
    /// Whether sizes are rounded to the recommended granularity, rather than to the smallest.
    pub recommended: bool,
    /// Whether network cards can reach it.
    pub rdma: bool,
    /// The address to reserve if it is free; 0: any address.
    pub hint: u64,
    /// Alignment of the addresses, in bytes; 0: the granularity.
    pub alignment: u64,
    /// Other devices that may use it.
    pub peers: Vec<i32>,
    /// The access of the resource's device and, for host memory, of the host.
    pub self_access: Access,
    /// The access of `peers`.
    pub peer_access: Access,
}

/// The location of virtual memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VirtualLocation {
    /// On the resource's device.
    #[default]
    Device,
    /// On the host; the system chooses the NUMA node.
    Host,
    /// On the NUMA node of the host that is nearest to the device.
    HostNuma,
    /// On the NUMA node that the allocating thread runs on.
    HostNumaCurrent,
}

impl Default for VirtualOptions {
    fn default() -> Self {
        Self {
            managed: false,
            location: VirtualLocation::Device,
            share: Share::Fd,
            recommended: true,
            rdma: false,
            hint: 0,
            alignment: 0,
            peers: Vec::new(),
            self_access: Access::ReadWrite,
            peer_access: Access::ReadWrite,
        }
    }
}

/// The options, checked and in the driver's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub physical: PhysicalOptions,
    /// Sizes are multiples of it.
    pub granularity: u64,
    pub hint: Address,
    pub alignment: u64,
    pub access: Vec<(Place, Access)>,
}

impl VirtualOptions {
    /// Checks each option against the device's capabilities.
    pub(super) fn check(&self, driver: &dyn Driver, device: DeviceId) -> Result<Checked> {
        let capabilities = driver.capabilities(device)?;
        let need = |has: bool, what: &str| {
            if has { Ok(()) } else { Err(Error::Unsupported(format!("device {device} has no {what}").into())) }
        };
        need(capabilities.vmm, "virtual memory management")?;
        need(!self.managed, "virtual memory of the managed kind (allocation_type): CUDA makes only pinned")?;
        match self.share {
            Share::None => {}
            Share::Fd => need(capabilities.posix_fd, "memory that can leave as a file descriptor (handle_type)")?,
            Share::Fabric => need(capabilities.fabric, "memory that can leave as a fabric handle (handle_type)")?,
        }
        need(!self.rdma || capabilities.rdma, "memory that network cards can reach (gpu_direct_rdma)")?;
        let place = match self.location {
            VirtualLocation::Device => Place::Device(device),
            VirtualLocation::Host => Place::Host,
            VirtualLocation::HostNumaCurrent => Place::HostNumaCurrent,
            VirtualLocation::HostNuma => Place::HostNuma(capabilities.numa_node.ok_or_else(|| {
                Error::Unsupported(
                    format!("the driver does not say which NUMA node is nearest to device {device}").into(),
                )
            })?),
        };
        if matches!(place, Place::HostNuma(_) | Place::HostNumaCurrent) {
            need(capabilities.host_numa, "virtual memory on NUMA nodes of the host (location_type)")?;
        }
        let physical = PhysicalOptions { place, share: self.share, rdma: self.rdma };
        let granularity = driver.granularity(device, &physical, self.recommended)?;
        if self.alignment != 0 && (!self.alignment.is_power_of_two() || self.alignment < granularity) {
            return Err(Error::invalid(format_args!(
                "addr_align is {}; it takes a power of two of at least {granularity}, or 0",
                self.alignment
            )));
        }
        if !self.hint.is_multiple_of(granularity) {
            return Err(Error::invalid(format_args!("addr_hint is {:#x}, no multiple of {granularity}", self.hint)));
        }
        let mut access = vec![(Place::Device(device), self.self_access)];
        if place.is_host() {
            access.push((place, self.self_access));
        }
        for &peer in &self.peers {
            let peer = check_device(driver, peer)?;
            if peer == device {
                continue;
            }
            if !place.is_host() && !driver.can_access_peer(device, peer)? {
                return Err(Error::Unsupported(
                    format!("device {peer}, named as a peer, cannot reach memory of device {device}").into(),
                ));
            }
            access.push((Place::Device(peer), self.peer_access));
        }
        // New mappings have no access, so [`Access::None`] needs no call.
        access.retain(|&(_, access)| access != Access::None);
        let alignment = self.alignment.max(granularity);
        Ok(Checked { physical, granularity, hint: Address(self.hint), alignment, access })
    }
}

impl Checked {
    /// A size rounded up to the granularity.
    pub fn round(&self, bytes: u64) -> Result<u64> {
        bytes.checked_next_multiple_of(self.granularity).filter(|&bytes| bytes <= i64::MAX as u64).ok_or_else(|| {
            Error::invalid(format_args!(
                "{bytes} bytes asked for: no size is that large; a negative number reads as one"
            ))
        })
    }
}
