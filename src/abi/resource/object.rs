//! Using memory resources.

use std::ffi::c_void;

use super::options::ForebayVirtualResourceOptions;
use crate::abi::core::enums::{ForebayAccess, ForebayAttribute, ForebayLocation, ForebayResourceKind};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayBuffer, ForebayResource, address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::{Versioned, answer, options as read};
use crate::driver::{Access, Place, PoolAttribute};
use crate::error::Error;
use crate::resource::buffer::Buffer;
use crate::resource::memory_resource::{Info, Kind};
use crate::units::DeviceId;

/// Version of the layout of `forebay_resource_info` and of `forebay_buffer_info`.
pub const FOREBAY_INFO_VERSION: u32 = 1;

/// Properties of a resource, from `forebay_resource_get_info`. The caller sets `size` and `version` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayResourceInfo {
    /// sizeof(forebay_resource_info).
    pub size: u32,
    /// FOREBAY_INFO_VERSION.
    pub version: u32,
    /// A FOREBAY_RESOURCE_KIND_*.
    pub kind: u32,
    /// The device of the memory; -1 for host memory.
    pub device_id: i32,
    /// The NUMA node of pinned memory; -1: chosen by the system, or not host memory.
    pub numa_id: i32,
    /// 1: closing the resource ends its pool. 0: closing has no effect on the pool.
    pub is_handle_owned: u32,
    /// 1: kernels can use the memory.
    pub is_device_accessible: u32,
    /// 1: the host can use the memory.
    pub is_host_accessible: u32,
    /// 1: it is managed memory.
    pub is_managed: u32,
    /// 1: the memory can be shared with other processes.
    pub is_ipc_enabled: u32,
    /// 1: a pool of another process, mapped here; it cannot allocate.
    pub is_mapped: u32,
    /// 1: the resource is closed.
    pub is_closed: u32,
    /// 1: `uuid` is valid.
    pub has_uuid: u32,
    /// A FOREBAY_LOCATION_*: the preferred location of managed memory.
    pub preferred_location_type: u32,
    /// The device or NUMA node of the preferred location; -1: none.
    pub preferred_location: i32,
    /// Zero.
    pub reserved0: u32,
    /// The uuid that names a shared pool in all processes.
    pub uuid: [u8; 16],
    /// The CUmemoryPool; 0 for none.
    pub handle: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

// SAFETY: the struct is `repr(C)` and begins with `size` and `version`.
unsafe impl Versioned for ForebayResourceInfo {
    const VERSION: u32 = FOREBAY_INFO_VERSION;
    const NAME_AND_ADVICE: (&'static str, &'static str) =
        ("forebay_resource_info", "set its size and version before the call");

    fn is_clean(&self) -> bool {
        self.reserved0 == 0 && self.reserved == [0; 4]
    }
}

impl From<Info> for ForebayResourceInfo {
    fn from(info: Info) -> Self {
        let kind = match info.kind {
            Kind::Device => ForebayResourceKind::Device,
            Kind::Pinned => ForebayResourceKind::Pinned,
            Kind::Managed => ForebayResourceKind::Managed,
            Kind::Virtual => ForebayResourceKind::Virtual,
            Kind::Host => ForebayResourceKind::Host,
            Kind::Pool => ForebayResourceKind::Pool,
        };
        let (preferred, id) = match info.preferred {
            None => (ForebayLocation::None, None),
            Some(Place::Device(device)) => (ForebayLocation::Device, Some(device.0)),
            Some(Place::Host) => (ForebayLocation::Host, None),
            Some(Place::HostNuma(node)) => (ForebayLocation::HostNuma, Some(node)),
            Some(Place::HostNumaCurrent) => (ForebayLocation::HostNumaCurrent, None),
        };
        let number = |id: Option<u32>| id.map_or(-1, |id| id as i32);
        Self {
            size: size_of::<Self>() as u32,
            version: FOREBAY_INFO_VERSION,
            kind: kind as u32,
            device_id: number(info.device_id.map(|device| device.0)),
            numa_id: number(info.numa_id),
            is_handle_owned: info.is_handle_owned.into(),
            is_device_accessible: info.is_device_accessible.into(),
            is_host_accessible: info.is_host_accessible.into(),
            is_managed: info.is_managed.into(),
            is_ipc_enabled: info.is_ipc_enabled.into(),
            is_mapped: info.is_mapped.into(),
            is_closed: info.is_closed.into(),
            has_uuid: info.uuid.is_some().into(),
            preferred_location_type: preferred as u32,
            preferred_location: number(id),
            reserved0: 0,
            uuid: info.uuid.unwrap_or_default().into_bytes(),
            handle: info.handle,
            reserved: [0; 4],
        }
    }
}

fn attribute(number: u32) -> Result<PoolAttribute, Fault> {
    Ok(match ForebayAttribute::read(number)? {
        ForebayAttribute::ReuseFollowEventDependencies => PoolAttribute::ReuseFollowEventDependencies,
        ForebayAttribute::ReuseAllowOpportunistic => PoolAttribute::ReuseAllowOpportunistic,
        ForebayAttribute::ReuseAllowInternalDependencies => PoolAttribute::ReuseAllowInternalDependencies,
        ForebayAttribute::ReleaseThreshold => PoolAttribute::ReleaseThreshold,
        ForebayAttribute::ReservedMemCurrent => PoolAttribute::ReservedCurrent,
        ForebayAttribute::ReservedMemHigh => PoolAttribute::ReservedHigh,
        ForebayAttribute::UsedMemCurrent => PoolAttribute::UsedCurrent,
        ForebayAttribute::UsedMemHigh => PoolAttribute::UsedHigh,
    })
}

fn peer(ordinal: i32) -> Result<DeviceId, Fault> {
    let device = u32::try_from(ordinal).map(DeviceId);
    device.map_err(|_| Error::invalid(format_args!("peer_device is {ordinal}: devices are counted from 0")).into())
}

/// Frees the object. The resource lives as long as other objects or open buffers refer to it; a pool that it owns ends
/// with it. NULL does nothing. Any thread, but no other call may use the object.
///
/// # Safety
/// `resource` is NULL or came from this library, is not used after this call, and no other call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_destroy(resource: *mut ForebayResource) {
    let _ = guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { ForebayResource::drop_raw(resource) };
        Ok(())
    });
}

/// Closes the resource: allocations from it return FOREBAY_STATUS_CLOSED from now on, and a pool that it owns is
/// destroyed with its last block. Open buffers can still be used and closed. A pool that the resource does not own is
/// not affected. A second call does nothing. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_close(resource: *mut ForebayResource) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { ForebayResource::get(resource)? }.close()?)
    })
}

/// Allocates `bytes` bytes as a buffer that work queued on `stream` from now on may use. NULL is the legacy default
/// stream. The size of the buffer may be larger: some resources round sizes up. 0 bytes give a buffer at NULL. The
/// caller owns the buffer and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY; FOREBAY_STATUS_CLOSED for a closed resource; FOREBAY_STATUS_NOT_PERMITTED for
/// a mapped pool.
///
/// # Safety
/// `resource` is NULL or a live resource object; `stream` names a living stream; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_allocate(
    resource: *mut ForebayResource,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        out.write(ForebayBuffer::into_raw(Buffer::allocate(resource, bytes, handle(stream))?));
        Ok(())
    })
}

/// `forebay_resource_allocate` without waiting, under the rules of `forebay_pool_try_malloc`. Only a resource on a
/// Forebay pool can; every other one returns 0. Any thread.
///
/// Returns 1 and writes `out`; or returns 0 and changes nothing: then call `forebay_resource_allocate`.
///
/// # Safety
/// As `forebay_resource_allocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_try_allocate(
    resource: *mut ForebayResource,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut ForebayBuffer,
) -> u32 {
    let done = guard::result(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        let buffer = Buffer::try_allocate(resource, bytes, handle(stream));
        Ok(buffer.map(|buffer| out.write(ForebayBuffer::into_raw(buffer))).is_some())
    });
    done.unwrap_or(false).into()
}

/// `forebay_resource_allocate` that gives a pointer instead of a buffer. The caller owns the memory and frees it with
/// `forebay_resource_deallocate`. 0 bytes give NULL. Any thread.
///
/// # Safety
/// As `forebay_resource_allocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_allocate_pointer(
    resource: *mut ForebayResource,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        out.write(pointer(resource.allocate_pointer(bytes, handle(stream))?));
        Ok(())
    })
}

/// Frees memory from `forebay_resource_allocate_pointer` of the same resource in the order of `stream`, also after the
/// resource was closed. `bytes` is ignored. NULL `ptr` does nothing. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, for any other pointer: one that was freed before, or the
/// memory of a buffer, also of a buffer that `forebay_buffer_from_handle` made from the pointer.
///
/// # Safety
/// `resource` is NULL or a live resource object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_deallocate(
    resource: *mut ForebayResource,
    ptr: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        Ok(resource.deallocate_pointer(address(ptr), bytes, Some(handle(stream)))?)
    })
}

/// `forebay_resource_deallocate` in the order of the stream of the allocation, which must be alive. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object; the stream of the allocation is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_deallocate_pointer(
    resource: *mut ForebayResource,
    ptr: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        Ok(resource.deallocate_pointer(address(ptr), 0, None)?)
    })
}

/// Gives the properties of the resource. Set `size` and `version` of `out` before the call. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object; `out` is NULL or points to a forebay_resource_info whose `size` and
/// `version` are set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_get_info(
    resource: *const ForebayResource,
    out: *mut ForebayResourceInfo,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        // SAFETY: as the caller promises.
        unsafe { answer(out, || Ok(resource.info().into())) }
    })
}

/// Reads an attribute of the resource's pool: `number` is a FOREBAY_ATTRIBUTE_*. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for a resource without a pool.
///
/// # Safety
/// `resource` is NULL or a live resource object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_get_attribute(
    resource: *const ForebayResource,
    number: u32,
    out: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        out.write(resource.attribute(attribute(number)?)?);
        Ok(())
    })
}

/// Writes an attribute of the resource's pool: the three REUSE_* (0 or 1), RELEASE_THRESHOLD (bytes) and the two *_HIGH
/// (0 only). Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for a read-only attribute and for a value out of range,
/// FOREBAY_STATUS_UNSUPPORTED if the pool does not have the attribute.
///
/// # Safety
/// `resource` is NULL or a live resource object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_set_attribute(
    resource: *mut ForebayResource,
    number: u32,
    value: u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        Ok(resource.set_attribute(attribute(number)?, value)?)
    })
}

/// Gives the access of device `peer_device` to the resource's memory: a FOREBAY_ACCESS_*. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object; `access` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_get_peer_access(
    resource: *const ForebayResource,
    peer_device: i32,
    access: *mut u32,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(access, "access")?) };
        let access = match resource.peer_access(peer(peer_device)?)? {
            Access::None => ForebayAccess::None,
            Access::Read => ForebayAccess::Read,
            Access::ReadWrite => ForebayAccess::ReadWrite,
        };
        out.write(access as u32);
        Ok(())
    })
}

/// Sets the access of device `peer_device` to the resource's memory, live blocks included: a FOREBAY_ACCESS_*. Any
/// thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED if `peer_device` cannot reach the memory, or if the resource's options fix the
/// access.
///
/// # Safety
/// `resource` is NULL or a live resource object. No queued work of `peer` uses what it loses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_set_peer_access(
    resource: *mut ForebayResource,
    peer_device: i32,
    access: u32,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let resource = unsafe { ForebayResource::get(resource)? };
        Ok(resource.set_peer_access(peer(peer_device)?, ForebayAccess::read(access)?.translate())?)
    })
}

/// Gives idle memory back to the system until the resource's pool holds at most `keep` bytes. Does nothing for a
/// resource without a pool. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_trim(resource: *mut ForebayResource, keep: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { ForebayResource::get(resource)? }.trim(keep)?)
    })
}

/// Changes the size of a buffer of virtual memory to `new_size` bytes, rounded up to the granularity. The contents are
/// kept up to the smaller size. A call that fails leaves the buffer unchanged.
///
/// The buffer keeps its address if the addresses behind it are free, which they are up to the size of the device's
/// memory or twice the buffer's first size. Otherwise it moves: the old addresses are unmapped once the work queued on
/// `stream` is done. Shrinking waits for `stream`, too. NULL `config`: the resource's own options. Descriptors of the
/// buffer for other processes become invalid. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for a resource of another kind, FOREBAY_STATUS_INVALID_ARGUMENT for a buffer of
/// another resource, FOREBAY_STATUS_BUSY while a DLPack tensor of the buffer is alive.
///
/// # Safety
/// The objects are NULL or live; `config` is NULL or filled by `forebay_virtual_resource_options_init`; `stream` names
/// a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_resource_modify_allocation(
    resource: *mut ForebayResource,
    buffer: *mut ForebayBuffer,
    new_size: u64,
    config: *const ForebayVirtualResourceOptions,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, buffer) = unsafe { (ForebayResource::get(resource)?, ForebayBuffer::get(buffer)?) };
        // SAFETY: as the caller promises.
        let config = unsafe { read(config)? };
        // SAFETY: as the caller promises.
        let options = config.map(|config| unsafe { config.translate() }).transpose()?;
        Ok(buffer.modify(resource, new_size, options.as_ref(), handle(stream))?)
    })
}
