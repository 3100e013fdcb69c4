//! Exporting and importing memory: see [`Sharing`].

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::{CUipcMem_flags_enum, CUipcMemHandle, CUmemAllocationHandleType as HandleType};

use super::CudaDriver;
use super::api::Ipc;
use super::error::forgive;
use super::virtual_memory::explain_fabric;
use crate::driver::{Blob, DriverError, ErrorKind, Physical, Result, Sharing};
use crate::units::{Address, DeviceId};

/// The handle type of POSIX file descriptors.
pub(super) const FD: c_uint = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
const FABRIC: c_uint = HandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;

/// A file descriptor as the untyped handle that libcuda takes: its number as a pointer.
pub(super) fn as_pointer(fd: BorrowedFd<'_>) -> *mut c_void {
    fd.as_raw_fd() as usize as *mut c_void
}

/// Takes ownership of a file descriptor that libcuda opened, and makes it close-on-exec. A program that another thread
/// starts between the two calls still inherits it; libcuda cannot open it close-on-exec.
pub(super) fn own(call: &'static str, fd: c_int) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(DriverError::new(ErrorKind::Failed, call, format!("success, but descriptor {fd}")));
    }
    // SAFETY: libcuda just opened it, and no other code knows it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an open descriptor, whose flags are read and written.
    let failed = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFD);
        flags < 0 || libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) < 0
    };
    if failed {
        let detail = format!("descriptor {fd} cannot be made close-on-exec: {}", io::Error::last_os_error());
        return Err(DriverError::new(ErrorKind::Failed, call, detail));
    }
    Ok(owned)
}

fn named(physical: Physical) -> String {
    format!("handle {:#x}", physical.0)
}

impl Sharing for CudaDriver {
    fn export_fd(&self, device: DeviceId, physical: Physical) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        self.export(device, physical, (&raw mut fd).cast(), FD)?;
        own("cuMemExportToShareableHandle", fd)
    }

    fn import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<Physical> {
        self.import(device, as_pointer(fd), FD, || format!("descriptor {}", fd.as_raw_fd()))
    }

    fn export_fabric(&self, device: DeviceId, physical: Physical) -> Result<Blob> {
        self.need_fabric("cuMemExportToShareableHandle", device)?;
        let mut blob: Blob = [0; 64];
        self.export(device, physical, (&raw mut blob).cast(), FABRIC).map_err(explain_fabric)?;
        Ok(blob)
    }

    fn import_fabric(&self, device: DeviceId, blob: &Blob) -> Result<Physical> {
        self.need_fabric("cuMemImportFromShareableHandle", device)?;
        let mut blob = *blob;
        self.import(device, (&raw mut blob).cast(), FABRIC, || "a fabric handle".into()).map_err(explain_fabric)
    }

    fn ipc_export(&self, device: DeviceId, at: Address) -> Result<Blob> {
        let group = self.ipc("cuIpcGetMemHandle")?;
        let _scope = self.enter_relaxed(device)?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: writes 64 bytes; libcuda checks the address.
        let code = unsafe { (group.cuIpcGetMemHandle)(&raw mut handle, at.0) };
        self.api.check("cuIpcGetMemHandle", code, || format!("address {at} on device {device}"))?;
        Ok(handle.reserved.map(|byte| byte.to_ne_bytes()[0]))
    }

    fn ipc_open(&self, device: DeviceId, blob: &Blob) -> Result<Address> {
        let group = self.ipc("cuIpcOpenMemHandle")?;
        let handle = CUipcMemHandle { reserved: blob.map(|byte| c_char::from_ne_bytes([byte])) };
        // The only flag, which libcuda requires.
        let flags = CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint;
        let _scope = self.enter_relaxed(device)?;
        let mut at = 0;
        // SAFETY: writes an address; libcuda checks the handle.
        let code = unsafe { (group.cuIpcOpenMemHandle_v2)(&raw mut at, handle, flags) };
        self.api.check("cuIpcOpenMemHandle", code, || format!("on device {device}"))?;
        Ok(Address(at))
    }

    fn ipc_close(&self, device: DeviceId, at: Address) -> Result<()> {
        let group = self.ipc("cuIpcCloseMemHandle")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: libcuda checks that the address was opened.
            let code = unsafe { (group.cuIpcCloseMemHandle)(at.0) };
            self.api.check("cuIpcCloseMemHandle", code, || format!("address {at} on device {device}"))
        }))
    }
}

impl CudaDriver {
    fn ipc(&self, call: &'static str) -> Result<&Ipc> {
        self.api.need(&self.api.ipc, call, 11_000)
    }

    /// pre: `to` points to space for a handle of the type: an integer, or 64 bytes.
    fn export(&self, device: DeviceId, physical: Physical, to: *mut c_void, handle_type: c_uint) -> Result<()> {
        const CALL: &str = "cuMemExportToShareableHandle";
        let (_, vmm) = self.vmm(device, CALL)?;
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: writes a handle of the type; the caller vouches that it holds the memory.
        let code = unsafe { (vmm.cuMemExportToShareableHandle)(to, physical.0, handle_type, 0) };
        self.api.check(CALL, code, || named(physical))
    }

    /// pre: `handle` is a descriptor's number, or points to 64 bytes.
    fn import(
        &self,
        device: DeviceId,
        handle: *mut c_void,
        handle_type: c_uint,
        asked: impl FnOnce() -> String,
    ) -> Result<Physical> {
        const CALL: &str = "cuMemImportFromShareableHandle";
        let (_, vmm) = self.vmm(device, CALL)?;
        let _scope = self.enter_relaxed(device)?;
        let mut physical = 0;
        // SAFETY: reads a handle of the type, which libcuda checks, and writes an integer.
        let code = unsafe { (vmm.cuMemImportFromShareableHandle)(&raw mut physical, handle, handle_type) };
        self.api.check(CALL, code, asked)?;
        Ok(Physical(physical))
    }
}
