//! Page-locked and managed memory, and properties of pointers: see [`HostMemory`].

use std::ffi::{c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    self, CUmemAttach_flags_enum, CUmemorytype_enum as MemoryType, CUpointer_attribute_enum as Attribute,
};

use super::CudaDriver;
use super::error::{INVALID_VALUE, forgive, invalid};
use crate::driver::{HostFlags, HostMemory, PointerInfo, PointerKind, Result};
use crate::units::{Address, DeviceId};

// Each flag has the same value for both calls.
const _: () = assert!(sys::CU_MEMHOSTALLOC_PORTABLE == sys::CU_MEMHOSTREGISTER_PORTABLE);
const _: () = assert!(sys::CU_MEMHOSTALLOC_DEVICEMAP == sys::CU_MEMHOSTREGISTER_DEVICEMAP);

fn bits(flags: HostFlags) -> c_uint {
    let bit = |set, bit| if set { bit } else { 0 };
    bit(flags.portable, sys::CU_MEMHOSTALLOC_PORTABLE)
        | bit(flags.mapped, sys::CU_MEMHOSTALLOC_DEVICEMAP)
        | bit(flags.write_combined, sys::CU_MEMHOSTALLOC_WRITECOMBINED)
}

fn raw(at: Address) -> *mut c_void {
    at.0 as *mut c_void
}

impl HostMemory for CudaDriver {
    fn host_allocate(&self, device: DeviceId, bytes: u64, flags: HostFlags) -> Result<Address> {
        let _scope = self.enter_relaxed(device)?;
        let mut at = ptr::null_mut();
        // SAFETY: writes a pointer.
        let code = unsafe { (self.api.base.cuMemHostAlloc)(&raw mut at, bytes as usize, bits(flags)) };
        self.api.check("cuMemHostAlloc", code, || format!("asked for {bytes} bytes, {flags:?}"))?;
        Ok(Address(at as u64))
    }

    fn host_free(&self, device: DeviceId, at: Address) -> Result<()> {
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: libcuda checks that the address is the start of one of its allocations.
            let code = unsafe { (self.api.base.cuMemFreeHost)(raw(at)) };
            self.api.check("cuMemFreeHost", code, || format!("address {at}"))
        }))
    }

    fn host_register(&self, device: DeviceId, at: Address, bytes: u64, flags: HostFlags) -> Result<()> {
        const CALL: &str = "cuMemHostRegister";
        if flags.write_combined {
            return Err(invalid(CALL, "write-combined is for allocating, not for memory that is there already"));
        }
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: pins the range and leaves its bytes; libcuda fails where it is not mapped.
        let code = unsafe { (self.api.base.cuMemHostRegister_v2)(raw(at), bytes as usize, bits(flags)) };
        self.api.check(CALL, code, || format!("{bytes} bytes at {at}, {flags:?}"))
    }

    fn host_unregister(&self, device: DeviceId, at: Address) -> Result<()> {
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: libcuda checks that the address is the start of a registration.
            let code = unsafe { (self.api.base.cuMemHostUnregister)(raw(at)) };
            self.api.check("cuMemHostUnregister", code, || format!("address {at}"))
        }))
    }

    fn host_device_address(&self, device: DeviceId, at: Address) -> Result<Address> {
        let _scope = self.enter_relaxed(device)?;
        let mut seen = 0;
        // SAFETY: writes an address; libcuda checks the other.
        let code = unsafe { (self.api.base.cuMemHostGetDevicePointer_v2)(&raw mut seen, raw(at), 0) };
        self.api.check("cuMemHostGetDevicePointer", code, || format!("address {at} on device {device}"))?;
        Ok(Address(seen))
    }

    fn managed_allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        let _scope = self.enter_relaxed(device)?;
        let everywhere = CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as c_uint;
        let mut at = 0;
        // SAFETY: writes an address.
        let code = unsafe { (self.api.base.cuMemAllocManaged)(&raw mut at, bytes as usize, everywhere) };
        self.api.check("cuMemAllocManaged", code, || format!("asked for {bytes} bytes on device {device}"))?;
        Ok(Address(at))
    }

    /// One call for all attributes, so that they are of one moment. For an unknown address it succeeds with all
    /// attributes null.
    fn pointer(&self, device: DeviceId, at: Address) -> Result<PointerInfo> {
        const ASKED: [Attribute; 6] = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        ];
        // 64 bits for each: some are `int`, some `bool`, some addresses, and libcuda fills the low bytes.
        let mut values = [0u64; ASKED.len()];
        let mut attributes = ASKED.map(|attribute| attribute as c_uint);
        let mut targets = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: reads the list and writes one value to each target; none is longer than 64 bits.
        let code = unsafe {
            (self.api.base.cuPointerGetAttributes)(
                ASKED.len() as c_uint,
                attributes.as_mut_ptr(),
                targets.as_mut_ptr(),
                at.0,
            )
        };
        if code != INVALID_VALUE {
            self.api.check("cuPointerGetAttributes", code, || format!("address {at}"))?;
        }
        let found = read_pointer(values);
        Ok(PointerInfo { legacy_ipc: found.legacy_ipc && self.api.ipc.is_some(), ..found })
    }
}

/// The attributes in the order of the request, all 0 for an unknown pointer.
fn read_pointer([memory, managed, ordinal, legacy_ipc, start, bytes]: [u64; 6]) -> PointerInfo {
    const HOST: u32 = MemoryType::CU_MEMORYTYPE_HOST as u32;
    const DEVICE: u32 = MemoryType::CU_MEMORYTYPE_DEVICE as u32;
    let kind = match memory as u32 {
        _ if managed != 0 => PointerKind::Managed,
        DEVICE => PointerKind::Device,
        HOST => PointerKind::Host,
        _ => PointerKind::Unknown,
    };
    // Host memory has the ordinal of the device that page-locked it; memory of no device has a negative one.
    let owned = matches!(kind, PointerKind::Device | PointerKind::Managed);
    let device = u32::try_from(ordinal as u32 as i32).ok().filter(|_| owned).map(DeviceId);
    // For memory of an imported pool libcuda gives the size and no start.
    let range = (kind != PointerKind::Unknown && start != 0 && bytes != 0).then_some((Address(start), bytes));
    PointerInfo { kind, device, range, legacy_ipc: kind == PointerKind::Device && legacy_ipc != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_what_its_attributes_say() {
        let minus_two = 0xffff_fffe;
        for (values, kind, device, range, legacy_ipc) in [
            ([0, 0, minus_two, 0, 0, 0], PointerKind::Unknown, None, None, false),
            ([0; 6], PointerKind::Unknown, None, None, false),
            ([2, 0, 1, 1, 0x1000, 64], PointerKind::Device, Some(DeviceId(1)), Some((Address(0x1000), 64)), true),
            ([2, 0, minus_two, 0, 0, 0], PointerKind::Device, None, None, false),
            ([1, 0, 1, 0, 0x1000, 64], PointerKind::Host, None, Some((Address(0x1000), 64)), false),
            ([2, 1, 0, 0, 0x1000, 64], PointerKind::Managed, Some(DeviceId(0)), Some((Address(0x1000), 64)), false),
            ([1, 1, minus_two, 0, 0, 0], PointerKind::Managed, None, None, false),
        ] {
            assert_eq!(read_pointer(values), PointerInfo { kind, device, range, legacy_ipc }, "{values:?}");
        }
    }

    #[test]
    fn flags_are_the_bits_of_cuda() {
        assert_eq!(bits(HostFlags::default()), 0);
        assert_eq!(bits(HostFlags { portable: true, mapped: false, write_combined: true }), 5);
        assert_eq!(bits(HostFlags { mapped: true, ..HostFlags::default() }), 2);
    }
}
