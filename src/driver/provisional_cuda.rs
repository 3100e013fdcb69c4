//! provisional
use super::cuda::CudaDriver;
use super::*;
use crate::units::*;
use std::os::fd::{BorrowedFd, OwnedFd};
impl super::VirtualMemory for CudaDriver {
    fn granularity(&self, _device: DeviceId, _options: &PhysicalOptions, _recommended: bool) -> Result<u64> {
        todo!()
    }
    fn reserve_at(&self, _device: DeviceId, _bytes: u64, _alignment: u64, _hint: Address) -> Result<Address> {
        todo!()
    }
    fn create_with(&self, _device: DeviceId, _bytes: u64, _options: &PhysicalOptions) -> Result<Physical> {
        todo!()
    }
    fn grant_access(&self, _device: DeviceId, _at: Address, _bytes: u64, _access: &[(Place, Access)]) -> Result<()> {
        todo!()
    }
    fn can_access_peer(&self, _device: DeviceId, _peer: DeviceId) -> Result<bool> {
        todo!()
    }
}
impl super::Pools for CudaDriver {
    fn pool_default(&self, _device: DeviceId, _place: Option<Place>, _managed: bool) -> Result<PoolHandle> {
        todo!()
    }
    fn pool_current(&self, _device: DeviceId, _place: Option<Place>, _managed: bool) -> Result<PoolHandle> {
        todo!()
    }
    fn pool_create(&self, _device: DeviceId, _options: &PoolOptions) -> Result<PoolHandle> {
        todo!()
    }
    fn pool_destroy(&self, _device: DeviceId, _pool: PoolHandle) -> Result<()> {
        todo!()
    }
    fn pool_attribute(&self, _device: DeviceId, _pool: PoolHandle, _attribute: PoolAttribute) -> Result<u64> {
        todo!()
    }
    fn pool_set_attribute(
        &self,
        _device: DeviceId,
        _pool: PoolHandle,
        _attribute: PoolAttribute,
        _value: u64,
    ) -> Result<()> {
        todo!()
    }
    fn pool_access(&self, _device: DeviceId, _pool: PoolHandle, _place: Place) -> Result<Access> {
        todo!()
    }
    fn pool_set_access(&self, _device: DeviceId, _pool: PoolHandle, _place: Place, _access: Access) -> Result<()> {
        todo!()
    }
    fn pool_trim(&self, _device: DeviceId, _pool: PoolHandle, _keep: u64) -> Result<()> {
        todo!()
    }
    fn pool_allocate(
        &self,
        _device: DeviceId,
        _pool: PoolHandle,
        _bytes: u64,
        _stream: StreamHandle,
    ) -> Result<Address> {
        todo!()
    }
    fn pool_free(&self, _device: DeviceId, _at: Address, _stream: StreamHandle) -> Result<()> {
        todo!()
    }
    fn pool_export_fd(&self, _device: DeviceId, _pool: PoolHandle) -> Result<OwnedFd> {
        todo!()
    }
    fn pool_import_fd(&self, _device: DeviceId, _fd: BorrowedFd<'_>) -> Result<PoolHandle> {
        todo!()
    }
    fn pool_export_pointer(&self, _device: DeviceId, _at: Address) -> Result<Blob> {
        todo!()
    }
    fn pool_import_pointer(&self, _device: DeviceId, _pool: PoolHandle, _blob: &Blob) -> Result<Address> {
        todo!()
    }
}
impl super::HostMemory for CudaDriver {
    fn host_allocate(&self, _device: DeviceId, _bytes: u64, _flags: HostFlags) -> Result<Address> {
        todo!()
    }
    fn host_free(&self, _device: DeviceId, _at: Address) -> Result<()> {
        todo!()
    }
    fn host_register(&self, _device: DeviceId, _at: Address, _bytes: u64, _flags: HostFlags) -> Result<()> {
        todo!()
    }
    fn host_unregister(&self, _device: DeviceId, _at: Address) -> Result<()> {
        todo!()
    }
    fn host_device_address(&self, _device: DeviceId, _at: Address) -> Result<Address> {
        todo!()
    }
    fn managed_allocate(&self, _device: DeviceId, _bytes: u64) -> Result<Address> {
        todo!()
    }
    fn pointer(&self, _device: DeviceId, _at: Address) -> Result<PointerInfo> {
        todo!()
    }
}
impl super::Sharing for CudaDriver {
    fn export_fd(&self, _device: DeviceId, _physical: Physical) -> Result<OwnedFd> {
        todo!()
    }
    fn import_fd(&self, _device: DeviceId, _fd: BorrowedFd<'_>) -> Result<Physical> {
        todo!()
    }
    fn export_fabric(&self, _device: DeviceId, _physical: Physical) -> Result<Blob> {
        todo!()
    }
    fn import_fabric(&self, _device: DeviceId, _blob: &Blob) -> Result<Physical> {
        todo!()
    }
    fn ipc_export(&self, _device: DeviceId, _at: Address) -> Result<Blob> {
        todo!()
    }
    fn ipc_open(&self, _device: DeviceId, _blob: &Blob) -> Result<Address> {
        todo!()
    }
    fn ipc_close(&self, _device: DeviceId, _at: Address) -> Result<()> {
        todo!()
    }
}
