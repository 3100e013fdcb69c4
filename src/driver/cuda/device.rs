//! What each device is and can do: attributes, capabilities, its name, its peers.

use std::ffi::c_int;

use cudarc::driver::sys::{CUdevice_attribute_enum as Attribute, CUmemAllocationHandleType, CUuuid};

use super::CudaDriver;
use super::api::Api;
use super::context::Device;
use super::error::SUCCESS;
use super::vmm::PLAIN_GRANULARITY;
use crate::driver::{Capabilities, Result};
use crate::units::DeviceId;

/// A device's attributes, as libcuda reports them without a context. One that libcuda is too old to know counts as not
/// there, also where the driver could already do it: host memory by NUMA node is older than its attributes.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    pub(super) vmm: bool,
    pub(super) posix_fd: bool,
    pub(super) fabric: bool,
    pub(super) rdma: bool,
    pub(super) host_numa: bool,
    pub(super) numa_node: Option<u32>,
    pub(super) pools: bool,
    pub(super) pool_fd: bool,
    /// Pools of host memory wherever the system puts it. Without this one can be created that cannot be used.
    pub(super) host_pools: bool,
    /// Pools of a NUMA node of the host; the same holds.
    pub(super) host_numa_pools: bool,
    pub(super) managed: bool,
    pub(super) concurrent_managed: bool,
    pub(super) legacy_ipc: bool,
}

pub(super) fn find_device(api: &Api, ordinal: c_int) -> Result<Device> {
    let mut handle = 0;
    // SAFETY: writes a device; the ordinal is below the count.
    let code = unsafe { (api.base.cuDeviceGet)(&raw mut handle, ordinal) };
    api.check("cuDeviceGet", code, || format!("device {ordinal}"))?;
    let read = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: writes an integer. An attribute that this libcuda does not know fails, and is not there.
        let code = unsafe { (api.base.cuDeviceGetAttribute)(&raw mut value, attribute as c_int, handle) };
        (code == SUCCESS).then_some(value)
    };
    let has = |attribute| read(attribute).is_some_and(|value| value != 0);
    let pool_handles = read(Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES).unwrap_or(0);
    let fd = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as c_int;
    let traits = Traits {
        vmm: has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        posix_fd: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        fabric: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
        rdma: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        host_numa: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        // Negative where the system has no NUMA nodes.
        numa_node: read(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).and_then(|node| u32::try_from(node).ok()),
        pools: has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
        pool_fd: pool_handles & fd != 0,
        host_pools: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED),
        host_numa_pools: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED),
        managed: has(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
        concurrent_managed: has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
        legacy_ipc: has(Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
    };
    Ok(Device::new(handle, traits))
}

impl CudaDriver {
    /// Read on first use and kept: see [`Capabilities`]. Makes no context.
    pub(super) fn read_capabilities(&self, device: DeviceId) -> Result<Capabilities> {
        let known = self.device(device)?;
        if let Some(&capabilities) = known.capabilities.get() {
            return Ok(capabilities);
        }
        let traits = known.traits;
        let vmm = traits.vmm && self.api.vmm.is_some();
        let pools = traits.pools && self.api.pools.is_some();
        // Managed pools are refused as long as one device of the system cannot page concurrently.
        let concurrent = self.devices.iter().all(|each| each.traits.concurrent_managed);
        let capabilities = Capabilities {
            vmm,
            granularity: if vmm { self.device_granularity(device)? } else { PLAIN_GRANULARITY },
            stream_identity: self.api.stream_id.is_some(),
            device_events: self.api.context_events.is_some(),
            driver_pools: pools,
            version: self.api.version,
            posix_fd: vmm && traits.posix_fd,
            fabric: vmm && traits.fabric,
            rdma: vmm && traits.rdma,
            host_numa: vmm && traits.host_numa,
            numa_node: traits.numa_node,
            pool_fd: pools && traits.pool_fd,
            host_pools: pools && (traits.host_pools || traits.host_numa_pools),
            managed_pools: pools && self.api.place_pools.is_some() && concurrent,
            managed: traits.managed,
            legacy_ipc: traits.legacy_ipc && self.api.ipc.is_some(),
        };
        Ok(*known.capabilities.get_or_init(|| capabilities))
    }

    pub(super) fn read_uuid(&self, device: DeviceId) -> Result<[u8; 16]> {
        let handle = self.device(device)?.handle;
        let mut uuid = CUuuid { bytes: [0; 16] };
        let code = match &self.api.part_uuid {
            // SAFETY: writes 16 bytes.
            Some(group) => unsafe { (group.cuDeviceGetUuid_v2)(&raw mut uuid, handle) },
            // SAFETY: as above.
            None => unsafe { (self.api.base.cuDeviceGetUuid)(&raw mut uuid, handle) },
        };
        self.api.check("cuDeviceGetUuid", code, || format!("device {device}"))?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    pub(super) fn read_peer_access(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        let (reached, reaching) = (self.device(device)?.handle, self.device(peer)?.handle);
        if device == peer {
            return Ok(true);
        }
        let mut answer = 0;
        // SAFETY: writes an integer.
        let code = unsafe { (self.api.base.cuDeviceCanAccessPeer)(&raw mut answer, reaching, reached) };
        self.api.check("cuDeviceCanAccessPeer", code, || format!("device {peer} to memory of device {device}"))?;
        Ok(answer != 0)
    }
}
