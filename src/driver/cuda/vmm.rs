//! Virtual memory: reservations, physical handles, mappings.

use std::ffi::c_uint;

use cudarc::driver::sys::{
    CUmemAccess_flags_enum, CUmemAccessDesc, CUmemAllocationGranularity_flags_enum, CUmemAllocationHandleType_enum,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType_enum, CUmemLocation,
    CUmemLocationType_enum,
};

use super::CudaDriver;
use super::api::Vmm;
use super::context::Device;
use super::error::forgive;
use crate::driver::{DriverError, ErrorKind, Physical, Result};
use crate::units::{Address, DeviceId};

/// What a device without virtual memory reports, so that plain segments have a size to be multiples of.
pub(super) const PLAIN_GRANULARITY: u64 = 2 << 20;

/// How physical memory of a device is created: shareable and reachable by network cards where it can be.
/// Neither costs anything, and neither can be added later.
fn properties(device: &Device) -> CUmemAllocationProp {
    let posix_fd = CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let none = CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE;
    CUmemAllocationProp {
        type_: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: if device.traits.posix_fd { posix_fd } else { none },
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(device.traits.rdma),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(device: &Device) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: device.handle }
}

impl CudaDriver {
    fn vmm(&self, device: DeviceId, call: &'static str) -> Result<(&Device, &Vmm)> {
        let known = self.device(device)?;
        let vmm = self.api.need(&self.api.vmm, call, 10_020)?;
        if !known.traits.vmm {
            let detail = format!("device {device} has no virtual memory management");
            return Err(DriverError::new(ErrorKind::Unsupported, call, detail));
        }
        Ok((known, vmm))
    }

    /// The smallest granule of physical memory.
    pub(super) fn granularity(&self, device: DeviceId) -> Result<u64> {
        let (known, vmm) = self.vmm(device, "cuMemGetAllocationGranularity")?;
        let properties = properties(known);
        let minimum = CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM as c_uint;
        let mut bytes = 0;
        let mut ask = || {
            // SAFETY: reads the properties, writes an integer.
            unsafe { (vmm.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, minimum) }
        };
        // Without a context first: asking about a GPU should not cost one.
        let mut code = ask();
        if code != super::error::SUCCESS {
            let _scope = self.enter_relaxed(device)?;
            code = ask();
        }
        self.api.check("cuMemGetAllocationGranularity", code, || format!("device {device}"))?;
        Ok(bytes as u64)
    }

    /// Refuses sizes that CUDA would refuse too, and some that it would round.
    fn check_size(&self, device: DeviceId, call: &'static str, bytes: u64) -> Result<()> {
        let granularity = self.read_capabilities(device)?.granularity;
        if bytes == 0 || !bytes.is_multiple_of(granularity) {
            let detail = format!("{bytes} bytes are not a multiple of {granularity}");
            return Err(DriverError::new(ErrorKind::Invalid, call, detail));
        }
        Ok(())
    }

    pub(super) fn reserve_addresses(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        let (_, vmm) = self.vmm(device, "cuMemAddressReserve")?;
        self.check_size(device, "cuMemAddressReserve", bytes)?;
        let alignment = self.read_capabilities(device)?.granularity;
        let _scope = self.enter_relaxed(device)?;
        let mut at = 0;
        // SAFETY: writes an address; no address is asked for.
        let code = unsafe { (vmm.cuMemAddressReserve)(&raw mut at, bytes as usize, alignment as usize, 0, 0) };
        self.api.check("cuMemAddressReserve", code, || format!("asked for {bytes} bytes of addresses"))?;
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
        let (known, vmm) = self.vmm(device, "cuMemCreate")?;
        self.check_size(device, "cuMemCreate", bytes)?;
        let properties = properties(known);
        let _scope = self.enter_relaxed(device)?;
        let mut handle = 0;
        // SAFETY: reads the properties, writes a handle.
        let code = unsafe { (vmm.cuMemCreate)(&raw mut handle, bytes as usize, &raw const properties, 0) };
        self.api.check("cuMemCreate", code, || format!("asked for {bytes} bytes on device {device}"))?;
        Ok(Physical(handle))
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
        let (known, vmm) = self.vmm(device, "cuMemSetAccess")?;
        let access = CUmemAccessDesc {
            location: location(known),
            flags: CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
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

fn range(at: Address, bytes: u64) -> String {
    format!("{at}+{bytes}")
}
