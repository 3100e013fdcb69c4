//! Exporting memory to other processes and importing theirs.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::Result;
use super::virtual_memory::Physical;
use crate::units::{Address, DeviceId};

/// 64 bytes that only the driver interprets: a fabric handle, a legacy handle, or a pointer of a shared pool.
pub type Blob = [u8; 64];

/// Exporting and importing physical memory and allocations of `cuMemAlloc`.
///
/// Imported physical memory is mapped and released like created memory, whole, with the size of its creation. It lives
/// as long as any process has a handle or a mapping of it.
pub trait Sharing {
    /// A file descriptor of physical memory that was created with [`Share::Fd`](super::Share::Fd); close-on-exec. It
    /// keeps the memory alive while it is open.
    fn export_fd(&self, device: DeviceId, physical: Physical) -> Result<OwnedFd>;

    /// Imports physical memory by a file descriptor, which the caller keeps. Another kind of descriptor is an error.
    fn import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<Physical>;

    /// A fabric handle of physical memory that was created with [`Share::Fabric`](super::Share::Fabric).
    fn export_fabric(&self, device: DeviceId, physical: Physical) -> Result<Blob>;

    /// Imports physical memory by a fabric handle.
    fn import_fabric(&self, device: DeviceId, blob: &Blob) -> Result<Physical>;

    /// The legacy handle of an allocation (`cuIpcGetMemHandle`). pre: `at` is its start.
    fn ipc_export(&self, device: DeviceId, at: Address) -> Result<Blob>;

    /// Opens an allocation of another process (`cuIpcOpenMemHandle`). errors: in the process that exported it.
    fn ipc_open(&self, device: DeviceId, blob: &Blob) -> Result<Address>;

    /// Closes an opened allocation (`cuIpcCloseMemHandle`).
    fn ipc_close(&self, device: DeviceId, at: Address) -> Result<()>;
}
