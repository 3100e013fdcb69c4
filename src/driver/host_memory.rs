//! Page-locked host memory, managed memory, and properties of pointers.

use super::error::Result;
use crate::units::{Address, DeviceId};

/// Flags of page-locked host memory (`CU_MEMHOSTALLOC_*`, `CU_MEMHOSTREGISTER_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostFlags {
    /// Page-locked for every context, not only for the one that made the call.
    pub portable: bool,
    /// Devices can use it, at [`HostMemory::host_device_address`].
    pub mapped: bool,
    /// Write-combined: faster transfers, but slow reads by the host. Not for `host_register`.
    pub write_combined: bool,
}

/// The kind of memory that a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerKind {
    /// Device memory.
    Device,
    /// Page-locked host memory.
    Host,
    /// Managed memory.
    Managed,
    /// Memory that the driver does not know: ordinary memory of the program, or none.
    Unknown,
}

/// The driver's properties of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerInfo {
    /// The kind of memory.
    pub kind: PointerKind,
    /// The device of the memory, if it has one.
    pub device: Option<DeviceId>,
    /// Start and bytes of the allocation around it, if the driver reports them; in virtual memory, of the reservation.
    pub range: Option<(Address, u64)>,
    /// Whether [`Sharing::ipc_export`](super::Sharing::ipc_export) accepts it.
    pub legacy_ipc: bool,
}

/// Page-locked host memory and managed memory. Not stream-ordered: a block may be freed only when no queued work uses
/// it.
pub trait HostMemory {
    /// Page-locked memory (`cuMemHostAlloc`). pre: `bytes` > 0.
    fn host_allocate(&self, device: DeviceId, bytes: u64, flags: HostFlags) -> Result<Address>;

    /// Frees page-locked memory (`cuMemFreeHost`). CUDA waits for the whole device.
    fn host_free(&self, device: DeviceId, at: Address) -> Result<()>;

    /// Page-locks memory of the program (`cuMemHostRegister`), which the caller keeps.
    fn host_register(&self, device: DeviceId, at: Address, bytes: u64, flags: HostFlags) -> Result<()>;

    /// Unlocks registered memory (`cuMemHostUnregister`).
    fn host_unregister(&self, device: DeviceId, at: Address) -> Result<()>;

    /// The address of mapped host memory on `device`.
    fn host_device_address(&self, device: DeviceId, at: Address) -> Result<Address>;

    /// Managed memory (`cuMemAllocManaged`, attached globally), freed with [`Driver::free`](super::Driver::free).
    fn managed_allocate(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// The properties of a pointer. An unknown address is not an error: its kind is [`PointerKind::Unknown`].
    fn pointer(&self, device: DeviceId, at: Address) -> Result<PointerInfo>;
}
