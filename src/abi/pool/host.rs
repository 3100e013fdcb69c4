//! Page-locking of memory that the program allocated.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address};
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::flag;
use crate::driver::HostFlags;
use crate::error::Error;

/// Page-locks `bytes` bytes of host memory at `ptr` (cuMemHostRegister), so that copies between them and `device` run
/// at full speed and overlap other work. `portable` 1: page-locked for the contexts of all devices
/// (CU_MEMHOSTREGISTER_PORTABLE). `mapped` 1: kernels can use the memory (CU_MEMHOSTREGISTER_DEVICEMAP). The caller
/// keeps the memory, and calls `forebay_pool_host_unregister` before freeing it. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for 0 bytes, FOREBAY_STATUS_DRIVER if the driver refuses, for example
/// because the memory is already page-locked.
///
/// # Safety
/// `pool` is NULL or a live pool object; the range is memory of the program and stays so until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_host_register(
    pool: *const ForebayPool,
    device: i32,
    ptr: *mut c_void,
    bytes: u64,
    portable: u32,
    mapped: u32,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let flags =
            HostFlags { portable: flag("portable", portable)?, mapped: flag("mapped", mapped)?, write_combined: false };
        if ptr.is_null() {
            return Err(Fault::Null("ptr"));
        }
        if bytes == 0 {
            return Err(Error::invalid(format_args!("bytes is 0; it takes 1 or more")).into());
        }
        let device = pool.device(device)?.device();
        Ok(pool.driver().host_register(device, address(ptr), bytes, flags)?)
    })
}

/// Unlocks the memory that `forebay_pool_host_register` page-locked at `ptr` (cuMemHostUnregister). Work that uses the
/// memory must have finished. Any thread.
///
/// Returns FOREBAY_STATUS_DRIVER if no page-locked memory begins at `ptr`.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_host_unregister(
    pool: *const ForebayPool,
    device: i32,
    ptr: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        if ptr.is_null() {
            return Err(Fault::Null("ptr"));
        }
        let device = pool.device(device)?.device();
        Ok(pool.driver().host_unregister(device, address(ptr))?)
    })
}
