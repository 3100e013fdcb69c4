//! Each device's features, UUID and peers.

use cudarc::driver::sys::CUuuid;

use super::CudaDriver;
use super::vmm::PLAIN_GRANULARITY;
use crate::driver::{Capabilities, Result};
use crate::units::DeviceId;

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
