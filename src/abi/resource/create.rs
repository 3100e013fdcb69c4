//! Creating memory resources. They use the shared pool's driver, which `forebay_pool_configure_shared` selects.

use std::sync::Arc;

use super::options::{
    ForebayDeviceResourceOptions, ForebayHostResourceOptions, ForebayManagedResourceOptions,
    ForebayPinnedResourceOptions, ForebayVirtualResourceOptions, named,
};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, ForebayResource, output};
use crate::abi::core::log::shared;
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::options as read;
use crate::abi::pool::memory::ForebayFramework;
use crate::driver::{Driver, HostFlags};
use crate::resource::driver_pool::{self, DeviceOptions, ManagedOptions, PinnedOptions};
use crate::resource::host::{HostKind, HostResource};
use crate::resource::memory_resource::device_or_current;
use crate::resource::pool_resource::PoolResource;
use crate::resource::virtual_memory::{VirtualOptions, VirtualResource};

pub(crate) fn driver() -> Result<Arc<dyn Driver>, Fault> {
    Ok(Arc::clone(shared()?.driver()))
}

/// Creates a resource on a stream-ordered pool of the driver on `device`, as cuda.core's DeviceMemoryResource is. NULL
/// options: the device's current pool, which is the default pool unless the program set another; the resource does not
/// own that pool, and closing the resource has no effect on it. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED if the device has no stream-ordered pools, or if `ipc_enabled` is 1 and it cannot
/// share them.
///
/// # Safety
/// `options` is NULL or filled by `forebay_device_resource_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_device_resource_create(
    device: i32,
    options: *const ForebayDeviceResourceOptions,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (out, options) = unsafe { (output(out, "out")?, read(options)?) };
        let options = options.map_or(Ok(DeviceOptions::default()), ForebayDeviceResourceOptions::translate)?;
        out.write(ForebayResource::into_raw(driver_pool::device(driver()?, device, options)?));
        Ok(())
    })
}

/// Creates a resource on a stream-ordered pool of pinned host memory, for streams of every device, as cuda.core's
/// PinnedMemoryResource is. NULL options: the current or default pool, not owned, for the current device. If the driver
/// has no host pools, the resource uses Forebay's own pinned pool. A pool with IPC and no `numa_id` lies on the NUMA
/// node nearest to `device`. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Memory of a driver pool is ready in stream order: synchronize the stream before the host uses it. Memory of
/// Forebay's own pool is ready at once.
///
/// # Safety
/// `options` is NULL or filled by `forebay_pinned_resource_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pinned_resource_create(
    options: *const ForebayPinnedResourceOptions,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (out, options) = unsafe { (output(out, "out")?, read(options)?) };
        let options = options.map_or(Ok(PinnedOptions::default()), ForebayPinnedResourceOptions::translate)?;
        out.write(ForebayResource::into_raw(driver_pool::pinned(driver()?, options)?));
        Ok(())
    })
}

/// Creates a resource on a pool of managed memory, as cuda.core's ManagedMemoryResource is. NULL options: the current
/// or default pool, not owned. If the driver has no managed pools (before CUDA 13), each allocation is a call of
/// cuMemAllocManaged. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// # Safety
/// `options` is NULL or filled by `forebay_managed_resource_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_managed_resource_create(
    options: *const ForebayManagedResourceOptions,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (out, options) = unsafe { (output(out, "out")?, read(options)?) };
        let driver = driver()?;
        let nearest =
            |device: Option<i32>| Ok(driver.capabilities(device_or_current(driver.as_ref(), device)?)?.numa_node);
        let options = options.map_or(Ok(ManagedOptions::default()), |options| options.translate(nearest))?;
        out.write(ForebayResource::into_raw(driver_pool::managed(driver, options)?));
        Ok(())
    })
}

/// Creates a resource of virtual memory, as cuda.core's VirtualMemoryResource is: each buffer has its own range of
/// addresses and can grow (`forebay_resource_modify_allocation`). NULL options: the defaults of
/// `forebay_virtual_resource_options_init`. Sizes are rounded up to the granularity (2 MiB on current GPUs). The caller
/// owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for an option that the device lacks, and on a device without virtual memory
/// management; the message names what is missing.
///
/// # Safety
/// `options` is NULL or filled by `forebay_virtual_resource_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_virtual_resource_create(
    device: i32,
    options: *const ForebayVirtualResourceOptions,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (out, options) = unsafe { (output(out, "out")?, read(options)?) };
        let options = match options {
            None => VirtualOptions::default(),
            // SAFETY: as the caller promises.
            Some(options) => unsafe { options.translate()? },
        };
        out.write(ForebayResource::into_raw(Arc::new(VirtualResource::new(driver()?, device, &options)?)));
        Ok(())
    })
}

/// Creates a resource of page-locked host memory (cuMemHostAlloc), not stream-ordered: memory is ready at once, and
/// freeing it waits on the host for all work of the device. NULL options: portable and mapped, for the current device.
/// The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// # Safety
/// `options` is NULL or filled by `forebay_host_resource_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_host_resource_create(
    options: *const ForebayHostResourceOptions,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (out, options) = unsafe { (output(out, "out")?, read(options)?) };
        let (device, flags) = match options {
            None => (None, HostFlags { portable: true, mapped: true, write_combined: false }),
            Some(options) => (named(options.device), options.translate()?),
        };
        out.write(ForebayResource::into_raw(Arc::new(HostResource::new(driver()?, device, HostKind::Host(flags))?)));
        Ok(())
    })
}

/// Creates a resource on the part of a Forebay pool that belongs to `device`. The resource keeps the pool alive. Memory
/// of a pinned pool is ready for the host at once. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_resource_create(
    pool: *mut ForebayPool,
    device: i32,
    out: *mut *mut ForebayResource,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::share(pool)?, output(out, "out")?) };
        let resource = PoolResource::new(pool, device, ForebayFramework::C as u8)?;
        out.write(ForebayResource::into_raw(Arc::new(resource)));
        Ok(())
    })
}
