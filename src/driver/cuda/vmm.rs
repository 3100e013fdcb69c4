//! Virtual memory: reservations, physical handles, mappings.

use super::CudaDriver;
use super::api::Vmm;
use super::device::Device;
use super::error::{forgive, invalid, lacking};
use crate::driver::{Access, Physical, Place, Result};
use crate::units::{Address, DeviceId};

/// The granularity that a device without virtual memory reports: that of other devices.
pub(super) const PLAIN_GRANULARITY: u64 = 2 << 20;

impl CudaDriver {
    pub(super) fn vmm(&self, device: DeviceId, call: &'static str) -> Result<(&Device, &Vmm)> {
        let known = self.device(device)?;
        let vmm = self.api.need(&self.api.vmm, call, 10_020)?;
        if !known.traits.vmm {
            return Err(lacking(call, format!("device {device} has no virtual memory management")));
        }
        Ok((known, vmm))
    }

    /// The minimum granularity of the physical memory that [`Self::create_physical`] creates.
    pub(super) fn device_granularity(&self, device: DeviceId) -> Result<u64> {
        self.granularity_of(device, &Self::usual(self.device(device)?, device), false)
    }

    /// Refuses sizes that CUDA would refuse, and sizes that it would round.
    pub(super) fn check_size(&self, device: DeviceId, call: &'static str, bytes: u64) -> Result<()> {
        let granularity = self.read_capabilities(device)?.granularity;
        if bytes == 0 || !bytes.is_multiple_of(granularity) {
            return Err(invalid(call, format!("{bytes} bytes are not a multiple of {granularity}")));
        }
        Ok(())
    }

    pub(super) fn reserve_addresses(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.check_size(device, "cuMemAddressReserve", bytes)?;
        self.reserve_range(device, bytes, self.read_capabilities(device)?.granularity, Address(0))
    }

    /// pre: `bytes` was checked, `alignment` is a power of two; `hint` may be 0.
    pub(super) fn reserve_range(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address> {
        let (_, vmm) = self.vmm(device, "cuMemAddressReserve")?;
        let _scope = self.enter_relaxed(device)?;
        let mut at = 0;
        // SAFETY: writes an address; if the hint is not free, libcuda reserves elsewhere.
        let code = unsafe { (vmm.cuMemAddressReserve)(&raw mut at, bytes as usize, alignment as usize, hint.0, 0) };
        self.api.check("cuMemAddressReserve", code, || {
            format!("asked for {bytes} bytes of addresses, aligned to {alignment}")
        })?;
        Ok(Address(at))
    }

    pub(super) fn free_addresses(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        let (_, vmm) = self.vmm(device, "cuMemAddressFree")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that it reserved the range and that nothing is mapped in it.
            let code = unsafe { (vmm.cuMemAddressFree)(at.0, bytes as usize) };
            self.api.check("cuMemAddressFree", code, || range(at, bytes))
        }))
    }

    pub(super) fn create_physical(&self, device: DeviceId, bytes: u64) -> Result<Physical> {
        let known = self.device(device)?;
        self.check_size(device, "cuMemCreate", bytes)?;
        self.create_as(device, bytes, &Self::usual(known, device))
    }

    pub(super) fn release_physical(&self, device: DeviceId, physical: Physical) -> Result<()> {
        let (_, vmm) = self.vmm(device, "cuMemRelease")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that it holds the handle.
            let code = unsafe { (vmm.cuMemRelease)(physical.0) };
            self.api.check("cuMemRelease", code, || format!("handle {:#x}", physical.0))
        }))
    }

    pub(super) fn map_physical(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        let (_, vmm) = self.vmm(device, "cuMemMap")?;
        self.check_size(device, "cuMemMap", bytes)?;
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches that it reserved the range and holds the handle.
        let code = unsafe { (vmm.cuMemMap)(at.0, bytes as usize, 0, physical.0, 0) };
        self.api.check("cuMemMap", code, || format!("handle {:#x} at {}", physical.0, range(at, bytes)))
    }

    pub(super) fn set_access(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        let (_, vmm) = self.vmm(device, "cuMemSetAccess")?;
        let access = self.descriptor("cuMemSetAccess", Place::Device(device), Access::ReadWrite)?;
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: reads one descriptor; libcuda checks that the range is whole mappings.
        let code = unsafe { (vmm.cuMemSetAccess)(at.0, bytes as usize, &raw const access, 1) };
        self.api.check("cuMemSetAccess", code, || format!("{} for device {device}", range(at, bytes)))
    }

    pub(super) fn unmap_range(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        let (_, vmm) = self.vmm(device, "cuMemUnmap")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that nothing uses the range; libcuda checks that it is whole mappings.
            let code = unsafe { (vmm.cuMemUnmap)(at.0, bytes as usize) };
            self.api.check("cuMemUnmap", code, || range(at, bytes))
        }))
    }
}

pub(super) fn range(at: Address, bytes: u64) -> String {
    format!("{at}+{bytes}")
}
