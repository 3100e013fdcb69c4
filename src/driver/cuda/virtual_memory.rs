//! Virtual memory with all options: see [`VirtualMemory`]. The calls that pools need are in `vmm.rs`.

use std::ffi::c_uint;

use cudarc::driver::sys::{
    CUmemAllocationGranularity_flags_enum as Granularity, CUmemAllocationHandleType as HandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType_enum,
};

use super::CudaDriver;
use super::device::Device;
use super::error::{INVALID_VALUE, NOT_PERMITTED, SUCCESS, invalid, lacking};
use super::vmm::range;
use crate::driver::{Access, DriverError, ErrorKind, Physical, PhysicalOptions, Place, Result, Share, VirtualMemory};
use crate::units::{Address, DeviceId};

impl VirtualMemory for CudaDriver {
    fn granularity(&self, device: DeviceId, options: &PhysicalOptions, recommended: bool) -> Result<u64> {
        self.granularity_of(device, options, recommended)
    }

    fn reserve_at(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address> {
        const CALL: &str = "cuMemAddressReserve";
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(invalid(CALL, format!("alignment {alignment} is neither 0 nor a power of two")));
        }
        self.check_size(device, CALL, bytes)?;
        let granularity = self.read_capabilities(device)?.granularity;
        self.reserve_range(device, bytes, alignment.max(granularity), hint)
    }

    fn create_with(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical> {
        let granularity = self.granularity_of(device, options, false)?;
        if bytes == 0 || !bytes.is_multiple_of(granularity) {
            let detail = format!("{bytes} bytes are not a multiple of {granularity}");
            return Err(invalid("cuMemCreate", detail));
        }
        self.create_as(device, bytes, options)
    }

    /// libcuda accepts a host place only for host memory; the number of the NUMA node makes no difference.
    fn grant_access(&self, device: DeviceId, at: Address, bytes: u64, access: &[(Place, Access)]) -> Result<()> {
        const CALL: &str = "cuMemSetAccess";
        let (_, vmm) = self.vmm(device, CALL)?;
        let descriptors =
            access.iter().map(|&(place, access)| self.descriptor(CALL, place, access)).collect::<Result<Vec<_>>>()?;
        if descriptors.is_empty() {
            return Ok(());
        }
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: reads the given number of descriptors; libcuda checks that the range is whole mappings.
        let code = unsafe { (vmm.cuMemSetAccess)(at.0, bytes as usize, descriptors.as_ptr(), descriptors.len()) };
        self.api.check(CALL, code, || {
            let named: Vec<String> = access.iter().map(|(place, access)| format!("{access:?} for {place}")).collect();
            format!("{}: {}", range(at, bytes), named.join(", "))
        })
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        self.read_peer_access(device, peer)
    }
}

impl CudaDriver {
    /// The options of pools' memory: shareable and reachable by network cards if possible. Neither costs anything, and
    /// neither can be added later.
    pub(super) fn usual(known: &Device, device: DeviceId) -> PhysicalOptions {
        let share = if known.traits.posix_fd { Share::Fd } else { Share::None };
        PhysicalOptions { place: Place::Device(device), share, rdma: known.traits.rdma }
    }

    pub(super) fn granularity_of(&self, device: DeviceId, options: &PhysicalOptions, recommended: bool) -> Result<u64> {
        const CALL: &str = "cuMemGetAllocationGranularity";
        let (_, vmm) = self.vmm(device, CALL)?;
        let properties = self.properties(CALL, device, options)?;
        let which = match recommended {
            true => Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            false => Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        };
        let mut bytes = 0;
        let mut ask = || {
            // SAFETY: reads the properties, writes an integer.
            unsafe { (vmm.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, which as c_uint) }
        };
        // First without a context, since a query should not create one.
        let mut code = ask();
        if code != SUCCESS {
            let _scope = self.enter_relaxed(device)?;
            code = ask();
        }
        self.api.check(CALL, code, || options.place.to_string()).map_err(|error| explain(error, options))?;
        if !bytes.is_power_of_two() {
            let detail = format!("a granularity of {bytes} bytes for {}, no power of two", options.place);
            return Err(DriverError::new(ErrorKind::Failed, CALL, detail));
        }
        Ok(bytes as u64)
    }

    /// pre: `bytes` is a multiple of the granularity.
    pub(super) fn create_as(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical> {
        const CALL: &str = "cuMemCreate";
        let (_, vmm) = self.vmm(device, CALL)?;
        let properties = self.properties(CALL, device, options)?;
        let _scope = self.enter_relaxed(device)?;
        let mut handle = 0;
        // SAFETY: reads the properties, writes a handle.
        let code = unsafe { (vmm.cuMemCreate)(&raw mut handle, bytes as usize, &raw const properties, 0) };
        self.api
            .check(CALL, code, || format!("asked for {bytes} bytes on {}", options.place))
            .map_err(|error| explain(error, options))?;
        Ok(Physical(handle))
    }

    /// The properties for libcuda, or an error that names the missing feature.
    fn properties(
        &self,
        call: &'static str,
        device: DeviceId,
        options: &PhysicalOptions,
    ) -> Result<CUmemAllocationProp> {
        let owner = match options.place {
            Place::Device(owner) => owner,
            _ => device,
        };
        let traits = self.device(owner)?.traits;
        if options.place.is_host() && !traits.host_numa {
            return Err(lacking(call, format!("with device {owner} no physical memory of the host can be created")));
        }
        let handle = match options.share {
            Share::None => HandleType::CU_MEM_HANDLE_TYPE_NONE,
            Share::Fd if traits.posix_fd => HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            Share::Fd => {
                return Err(lacking(call, format!("memory of device {owner} cannot be shared as a file descriptor")));
            }
            Share::Fabric => {
                self.need_fabric(call, owner)?;
                HandleType::CU_MEM_HANDLE_TYPE_FABRIC
            }
        };
        if options.place == Place::Host && options.share != Share::None {
            return Err(lacking(call, "host memory is shared only from a named NUMA node"));
        }
        if options.rdma && !traits.rdma {
            return Err(lacking(call, format!("network cards cannot reach virtual memory of device {owner}")));
        }
        Ok(CUmemAllocationProp {
            type_: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: handle,
            location: self.location(call, options.place)?,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(options.rdma),
                usage: 0,
                reserved: [0; 4],
            },
        })
    }

    /// Refuses devices without fabric handles. A missing IMEX channel is noticed only when a handle is created.
    pub(super) fn need_fabric(&self, call: &'static str, device: DeviceId) -> Result<()> {
        if self.device(device)?.traits.fabric {
            return Ok(());
        }
        Err(lacking(call, format!("device {device} has no fabric handles")))
    }
}

/// Adds the meaning of two codes to their errors.
fn explain(error: DriverError, options: &PhysicalOptions) -> DriverError {
    if options.share == Share::Fabric {
        return explain_fabric(error);
    }
    if options.place == Place::Host && error.code == INVALID_VALUE {
        let detail = format!("{}; this driver may create host memory on a named NUMA node only", error.detail);
        return DriverError { kind: ErrorKind::Unsupported, detail, ..error };
    }
    error
}

/// libcuda returns `NOT_PERMITTED` if the system permits this user no fabric handles.
pub(super) fn explain_fabric(error: DriverError) -> DriverError {
    if error.code != NOT_PERMITTED {
        return error;
    }
    let detail = format!(
        "{}; a fabric handle needs an IMEX channel that this user can open, in /dev/nvidia-caps-imex-channels",
        error.detail
    );
    DriverError { kind: ErrorKind::Unsupported, detail, ..error }
}
