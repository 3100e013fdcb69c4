//! Memory that leaves the process, and memory of another process.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::Result;
use super::virtual_memory::Physical;
use crate::units::{Address, DeviceId};

/// 64 bytes that the driver makes and reads: a fabric handle, a legacy handle, a pointer of a shared pool.
pub type Blob = [u8; 64];

/// Exporting and importing physical memory and plain allocations.
///
/// Imported physical memory is mapped like created memory, whole, by the size it was created with, and released the
/// same way; it lives as long as anybody, in any process, holds or maps it.
pub trait Sharing {
    /// A descriptor of physical memory that was created with [`Share::Fd`](super::Share::Fd); close-on-exec.
    /// Holds the memory as long as it is open.
    fn export_fd(&self, device: DeviceId, physical: Physical) -> Result<OwnedFd>;

    /// The memory behind a descriptor. The descriptor stays the caller's. What is no such descriptor is an error.
    fn import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<Physical>;

    /// A fabric handle of physical memory that was created with [`Share::Fabric`](super::Share::Fabric).
    fn export_fabric(&self, device: DeviceId, physical: Physical) -> Result<Blob>;

    /// The memory behind a fabric handle.
    fn import_fabric(&self, device: DeviceId, blob: &Blob) -> Result<Physical>;

    /// Names a plain allocation for another process (`cuIpcGetMemHandle`). pre: `at` is its start.
    fn ipc_export(&self, device: DeviceId, at: Address) -> Result<Blob>;

    /// Opens another process's plain allocation. errors: in the process that exported it.
    fn ipc_open(&self, device: DeviceId, blob: &Blob) -> Result<Address>;

    /// Closes it.
    fn ipc_close(&self, device: DeviceId, at: Address) -> Result<()>;
}
