//! Memory between processes of one user.
//!
//! Pools of the driver go by file descriptor and their buffers by 64 bytes. Everything else of this library goes by a
//! descriptor of 256 bytes, through an exchange service that each exporting process runs: physical memory as file
//! descriptors over a UNIX socket. It needs no rights over the other process.

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

/// Names memory of one process for another: plain bytes, which may be stored and sent in any way. Whoever of the same
/// user has them can map the memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayIpcDescriptor {
    /// Not to be looked into.
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

/// The file descriptor and the uuid of a pool made with `ipc_enabled`, for another process: send both, the descriptor
/// by SCM_RIGHTS or as your platform does. It is close-on-exec, and the resource owns and closes it; duplicate it to
/// keep it. `uuid` has room for 16 bytes. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool without IPC and for a mapped one, FOREBAY_STATUS_UNSUPPORTED for a
/// resource that is not a pool of the driver: its buffers are shared one by one.
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
    Error::Unsupported("the resource is not a pool of the driver: share its buffers one by one".into())
}

/// Maps a pool of another process: a resource that owns the mapping, refuses to allocate, and takes that pool's
/// buffers. `kind` is FOREBAY_RESOURCE_KIND_DEVICE or _PINNED, as at the exporter; `device` the memory's, or for pinned
/// memory the one in whose context calls are made, -1 for the current device. `fd` stays the caller's, who may close it
/// after the call. NULL `uuid`: the pool's name is not known; with a name that is registered already, that resource is
/// given and `fd` is not looked at. A named pool is registered. Any thread.
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
                    "kind is {kind}: pools are shared of devices ({}) and of pinned memory ({})",
                    ForebayResourceKind::Device as u32,
                    ForebayResourceKind::Pinned as u32
                ))
                .into());
            }
        };
        if fd < 0 {
            return Err(Error::invalid(format_args!("fd is {fd}, which is no file descriptor")).into());
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

/// Registers a mapped pool under the uuid of the pool, so that its buffers find it. `out` is the resource to use: the
/// one that was registered before under that key, if it is still held by anybody, else this one; a new object, the
/// caller's. The registry keeps nothing alive. Any thread.
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

/// The mapped pool that is registered under a uuid, as a new object that the caller owns. Any thread.
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

/// Starts this process's exchange service: a thread that answers other processes of this user. Exporting starts it too.
/// Again is harmless. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_ipc_serve() -> ForebayStatus {
    guard::status(|| Ok(serve()?))
}

/// Names the buffer for other processes. Keep it open until they have mapped it; what is mapped stays valid whatever
/// becomes of this process. Asking again gives the same descriptor. Memory of pools comes in chunks: who maps a buffer
/// can reach other blocks in the same chunks. Any thread.
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
    // More than a descriptor is refused by its length, not read.
    let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(DESCRIPTOR_BYTES + 1);
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(descriptor.cast::<u8>(), length) };
    Ok(Descriptor::decode(bytes)?)
}

/// The size in bytes of the buffer that a descriptor names. It is what the descriptor says: an import compares it with
/// the memory. Any thread.
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

/// The buffer that another process named; `forebay_buffer_get_info` says by which way it came. Closing it lets go of
/// the memory here and nowhere else. `resource`: for a pool's buffer the mapped pool, or NULL if that is registered;
/// for memory in pieces NULL, or a virtual memory resource whose device and peers get the access that it gives. The
/// descriptor is checked, not trusted. Works in the exporting process too, but for pools and legacy handles. Any
/// thread; waits for the exporter, at most 10 s for each answer.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for memory that was freed and a pool that is not mapped, FOREBAY_STATUS_PEER for an
/// exporter that is gone, FOREBAY_STATUS_NOT_PERMITTED for one of another user.
///
/// # Safety
/// `resource` is NULL or a live resource object; `descriptor` is NULL or points to `bytes` bytes; `stream` names a living
/// stream; `out` is NULL or may be written.
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

/// Names the memory from `ptr`, anywhere in a live block of a Forebay pool, to the block's end for other processes, as
/// `forebay_buffer_get_ipc_descriptor` does. Freeing the block ends it. Any thread.
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

/// Names `bytes` bytes at `ptr` of plain device memory (cuMemAlloc, cudaMalloc) for other processes, by a legacy
/// handle. Any thread.
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
