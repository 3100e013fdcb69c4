//! Memory of the host that devices reach, managed memory, and what is known of a pointer.

use super::error::Result;
use crate::units::{Address, DeviceId};

/// How page-locked host memory is set up (`CU_MEMHOSTALLOC_*`, `CU_MEMHOSTREGISTER_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostFlags {
    /// Every context sees it as pinned, not only the one that made it.
    pub portable: bool,
    /// Devices can reach it; see [`HostMemory::host_device_address`].
    pub mapped: bool,
    /// Write-combined: faster over the bus, slow for the host to read. Not for registering.
    pub write_combined: bool,
}

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerKind {
    /// Memory of a device.
    Device,
    /// Page-locked memory of the host.
    Host,
    /// Managed memory.
    Managed,
    /// Nothing that the driver knows: ordinary memory of the program, or none.
    Unknown,
}

/// What the driver knows of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerInfo {
    /// What it points to.
    pub kind: PointerKind,
    /// The device that the memory belongs to, where it belongs to one.
    pub device: Option<DeviceId>,
    /// Start and bytes of the allocation around it, where the driver says; in virtual memory, of the reservation.
    pub range: Option<(Address, u64)>,
    /// Whether [`Sharing::ipc_export`](super::Sharing::ipc_export) takes it.
    pub legacy_ipc: bool,
}

/// Host memory that devices reach, and managed memory. Without streams: a block may be given back only when no queued
/// work uses it.
pub trait HostMemory {
    /// Page-locked memory (`cuMemHostAlloc`). pre: `bytes` > 0.
    fn host_allocate(&self, device: DeviceId, bytes: u64, flags: HostFlags) -> Result<Address>;

    /// Gives it back. CUDA waits for the whole device.
    fn host_free(&self, device: DeviceId, at: Address) -> Result<()>;

    /// Page-locks memory of the program (`cuMemHostRegister`). The memory stays the caller's.
    fn host_register(&self, device: DeviceId, at: Address, bytes: u64, flags: HostFlags) -> Result<()>;

    /// Ends that.
    fn host_unregister(&self, device: DeviceId, at: Address) -> Result<()>;

    /// Where `device` sees mapped host memory.
    fn host_device_address(&self, device: DeviceId, at: Address) -> Result<Address>;

    /// Managed memory (`cuMemAllocManaged`, attached globally), given back with [`Driver::free`](super::Driver::free).
    fn managed_allocate(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// What a pointer points to. An address that the driver does not know is no error.
    fn pointer(&self, device: DeviceId, at: Address) -> Result<PointerInfo>;
}
