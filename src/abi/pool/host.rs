//! Page-locking memory that the program has already.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address};
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::flag;
use crate::driver::HostFlags;
use crate::error::Error;

/// Page-locks `bytes` bytes at `ptr` (cuMemHostRegister), so that copies between them and `device` run at full speed
/// and beside other work. `portable` 1: for every device's context. `mapped` 1: kernels may use the memory. It stays
/// the caller's, who calls `forebay_pool_host_unregister` before it is freed. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for 0 bytes, FOREBAY_STATUS_DRIVER where the driver refuses, as it does for
/// memory that is page-locked already.
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
            return Err(Error::invalid(format_args!("bytes is 0: there is nothing to page-lock")).into());
        }
        let device = pool.device(device)?.device();
        Ok(pool.driver().host_register(device, address(ptr), bytes, flags)?)
    })
}

/// Ends what `forebay_pool_host_register` began at `ptr`. The caller waits first for the work that uses the memory. Any
/// thread.
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
