//! Sharing memory between processes of one user.
//!
//! A driver pool is shared as a file descriptor, and each of its buffers by 64 bytes. All other memory is named by a
//! descriptor of 256 bytes. Each exporting process runs an exchange service, a thread that sends physical memory as
//! file descriptors over a UNIX socket. Neither process needs rights over the other.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use uuid::Uuid;

use super::create::driver;
use super::options::named;
use crate::abi::core::enums::ForebayResourceKind;
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayBuffer, ForebayPool, ForebayResource, address, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;
use crate::resource::buffer::{Buffer, export_foreign, export_pointer};
use crate::resource::driver_pool::{self, DriverPool};
use crate::resource::ipc::{DESCRIPTOR_BYTES, Descriptor, serve};
use crate::resource::memory_resource::Kind;

/// Names memory of this process for another process: plain bytes, which may be stored and sent in any way. Every
/// process of the same user that has the bytes can map the memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayIpcDescriptor {
    /// Opaque.
    pub bytes: [u8; 256],
}

const _: () = assert!(size_of::<ForebayIpcDescriptor>() == DESCRIPTOR_BYTES);

/// # Safety
/// `uuid` is NULL or points to 16 readable bytes.
unsafe fn uuid(uuid: *const u8) -> Result<Uuid, Fault> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { uuid.cast::<[u8; 16]>().as_ref() }.ok_or(Fault::Null("uuid"))?;
    Ok(Uuid::from_bytes(*bytes))
}

// ---- pools -------------------------------------------------------------------------------------------

/// Gives the file descriptor and the uuid of a pool created with `ipc_enabled`. Send both to another process, the file
/// descriptor by SCM_RIGHTS. The resource owns the file descriptor, which is close-on-exec, and closes it; duplicate it
/// to keep it. `uuid` points to 16 bytes. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool without IPC and for a mapped pool, FOREBAY_STATUS_UNSUPPORTED for a
/// resource that is not a driver pool: share its buffers one by one (`forebay_buffer_get_ipc_descriptor`).
///
/// # Safety
/// `resource` is NULL or a live resource object; the outputs are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_get_allocation_handle(
    resource: *mut ForebayResource,
    fd: *mut i32,
    uuid: *mut u8,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        // SAFETY: as the caller promises.
        let (fd, uuid) = unsafe { (output(fd, "fd")?, output(uuid.cast::<[u8; 16]>(), "uuid")?) };
        let pool = resource.downcast_ref::<DriverPool>().ok_or_else(not_a_pool)?;
        pool.allocation_handle(|descriptor, name| {
            fd.write(descriptor.as_raw_fd());
            uuid.write(name.into_bytes());
        })?;
        Ok(())
    })
}

fn not_a_pool() -> Error {
    Error::Unsupported("the resource is not a driver pool: share its buffers one by one".into())
}

/// Maps a pool of another process: gives a resource that owns the mapping, imports that pool's buffers, and cannot
/// allocate.
///
/// `kind` is FOREBAY_RESOURCE_KIND_DEVICE or FOREBAY_RESOURCE_KIND_PINNED, the same as in the exporting process.
/// `device` is the device of the memory; for pinned memory it is the device in whose context calls are made, -1 for the
/// current device. The caller keeps `fd` and may close it after the call. `uuid` registers the mapped pool, so that
/// `forebay_buffer_from_ipc_descriptor` finds it; if a pool is registered under this uuid already, `out` receives that
/// resource and `fd` is not used. NULL `uuid`: not registered. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
///
/// # Safety
/// `uuid` is NULL or points to 16 bytes; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_from_allocation_handle(
    kind: u32,
    device: i32,
    fd: i32,
    uuid: *const u8,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        let kind = match kind {
            kind if kind == ForebayResourceKind::Device as u32 => Kind::Device,
            kind if kind == ForebayResourceKind::Pinned as u32 => Kind::Pinned,
            kind => {
                return Err(Error::invalid(format_args!(
                    "kind is {kind}; it takes {} (device) or {} (pinned memory)",
                    ForebayResourceKind::Device as u32,
                    ForebayResourceKind::Pinned as u32
                ))
                .into());
            }
        };
        if fd < 0 {
            return Err(Error::invalid(format_args!("fd is {fd}; it takes an open file descriptor, 0 or more")).into());
        }
        // SAFETY: as the caller promises.
        let name = if uuid.is_null() { None } else { Some(unsafe { self::uuid(uuid)? }) };
        // SAFETY: borrowed for the call; a number that is no open descriptor is refused by the system.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let device = if kind == Kind::Pinned { named(device) } else { Some(device) };
        let pool = driver_pool::from_allocation_handle(driver()?, kind, device, fd, name)?;
        out.write(ForebayResource::into_raw(pool));
        Ok(())
    })
}

/// Registers a mapped pool under its uuid, so that `forebay_buffer_from_ipc_descriptor` finds it. `out` receives the
/// resource to use, as a new object that the caller owns: the resource that is already registered under this uuid if it
/// is still alive, otherwise `resource`. The registry keeps no resource alive. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool of this process.
///
/// # Safety
/// `resource` is NULL or a live resource object; `uuid` is NULL or points to 16 bytes; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_register(
    resource: *mut ForebayResource,
    uuid: *const u8,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        // SAFETY: as the caller promises.
        let name = unsafe { self::uuid(uuid)? };
        let pool = resource.clone().downcast::<DriverPool>().ok_or_else(not_a_pool)?;
        out.write(ForebayResource::into_raw(driver_pool::register(&pool, name)?));
        Ok(())
    })
}

/// Gives the mapped pool that is registered under `uuid`, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if there is none.
///
/// # Safety
/// `uuid` is NULL or points to 16 bytes; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_from_registry(
    uuid: *const u8,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        // SAFETY: as the caller promises.
        let name = unsafe { self::uuid(uuid)? };
        out.write(ForebayResource::into_raw(driver_pool::from_registry(name)?));
        Ok(())
    })
}

// ---- buffers -----------------------------------------------------------------------------------------

/// Starts this process's exchange service, a thread that sends exported memory to other processes of this user. The
/// first export starts it, too. Further calls do nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_ipc_serve() -> ForebayStatus {
    guard::status(|| Ok(serve()?))
}

/// Gives a descriptor that names the buffer for other processes. Keep the buffer open until they have mapped it; mapped
/// memory stays valid also after this process has ended. A second call gives the same descriptor. Memory of pools is
/// shared in whole chunks, so a process that maps a buffer can reach other blocks in the same chunks. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a resource without IPC, FOREBAY_STATUS_UNSUPPORTED for memory that cannot
/// be shared, such as a Forebay pool's on a device without virtual memory management.
///
/// # Safety
/// `buffer` is NULL or a live buffer object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_get_ipc_descriptor(
    buffer: *mut ForebayBuffer,
    out: *mut ForebayIpcDescriptor,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (buffer, out) = unsafe { (ForebayBuffer::get(buffer)?, output(out, "out")?) };
        out.write(ForebayIpcDescriptor { bytes: buffer.ipc_descriptor()?.encode() });
        Ok(())
    })
}

/// # Safety
/// `descriptor` is NULL or points to `bytes` bytes.
unsafe fn decode(descriptor: *const ForebayIpcDescriptor, bytes: u64) -> Result<Descriptor, Fault> {
    if descriptor.is_null() {
        return Err(Fault::Null("descriptor"));
    }
    // `Descriptor::decode` refuses another length; one byte more is enough for that.
    let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(DESCRIPTOR_BYTES + 1);
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(descriptor.cast::<u8>(), length) };
    Ok(Descriptor::decode(bytes)?)
}

/// Gives the size in bytes of the buffer that a descriptor names. The size is read from the descriptor and not
/// verified; an import compares it with the memory. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for bytes that are no descriptor.
///
/// # Safety
/// `descriptor` is NULL or points to `bytes` bytes; `size` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_ipc_descriptor_size(
    descriptor: *const ForebayIpcDescriptor,
    bytes: u64,
    size: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let size = unsafe { output(size, "size")? };
        // SAFETY: as the caller promises.
        size.write(unsafe { decode(descriptor, bytes)? }.bytes());
        Ok(())
    })
}

/// Maps the memory that a descriptor of another process names, as a buffer; `forebay_buffer_get_info` gives the path
/// that it took. Closing the buffer unmaps it in this process only.
///
/// `resource`: for a buffer of a driver pool, the mapped pool, or NULL if that is registered. For other memory NULL, or
/// a virtual memory resource, whose device and peers then get the access in its options. The descriptor is checked, not
/// trusted. In the exporting process itself, buffers of driver pools and legacy handles cannot be imported. The call
/// waits for the exporting process, at most 10 s for each answer. The caller owns the buffer and frees it with
/// `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for memory that was freed and for a pool that is not mapped, FOREBAY_STATUS_PEER if
/// the exporting process has ended, FOREBAY_STATUS_NOT_PERMITTED if it belongs to another user,
/// FOREBAY_STATUS_INVALID_ARGUMENT for bytes that are no descriptor.
///
/// # Safety
/// `resource` is NULL or a live resource object; `descriptor` is NULL or points to `bytes` bytes; `stream` names a
/// living stream; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_buffer_from_ipc_descriptor(
    resource: *mut ForebayResource,
    descriptor: *const ForebayIpcDescriptor,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        // SAFETY: as the caller promises.
        let descriptor = unsafe { decode(descriptor, bytes)? };
        // SAFETY: as the caller promises.
        let resource = if resource.is_null() { None } else { Some(unsafe { ForebayResource::get(resource)? }) };
        let buffer = Buffer::from_ipc_descriptor(&driver()?, resource, &descriptor, handle(stream))?;
        out.write(ForebayBuffer::into_raw(buffer));
        Ok(())
    })
}

/// Gives a descriptor, as `forebay_buffer_get_ipc_descriptor` does, for the memory of a Forebay pool from `ptr`, which
/// may point anywhere into a live block, to the end of that block. Freeing the block makes the descriptor invalid. Any
/// thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for a pointer that is not in a live block, FOREBAY_STATUS_UNSUPPORTED on a device
/// without virtual memory management.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_ipc_export(
    pool: *mut ForebayPool,
    ptr: *const c_void,
    out: *mut ForebayIpcDescriptor,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::share(pool)?, output(out, "out")?) };
        out.write(ForebayIpcDescriptor { bytes: export_pointer(&pool, address(ptr))?.encode() });
        Ok(())
    })
}

/// Gives a descriptor for `bytes` bytes at `ptr` of memory from cuMemAlloc or cudaMalloc, as a legacy handle
/// (cuIpcGetMemHandle). Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for memory without such a handle.
///
/// # Safety
/// `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_ipc_export_foreign(
    ptr: *const c_void,
    bytes: u64,
    out: *mut ForebayIpcDescriptor,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        out.write(ForebayIpcDescriptor { bytes: export_foreign(&driver()?, address(ptr), bytes)?.encode() });
        Ok(())
    })
}
