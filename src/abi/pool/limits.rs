//! Limits, trimming, and asking others to give back.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, output};
use crate::abi::core::status::ForebayStatus;

/// Gives free memory back to the driver until the pool holds at most `keep` bytes on `device`. Waits on the host for
/// work that still uses freed memory. `released` (may be NULL) gets the bytes given back. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `released` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_trim(
    pool: *mut ForebayPool,
    device: i32,
    keep: u64,
    released: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let bytes = pool.trim(device, keep)?;
        // SAFETY: as the caller promises.
        if let Ok(out) = unsafe { output(released, "released") } {
            out.write(bytes);
        }
        Ok(())
    })
}

/// Sets the most bytes to hold on `device`; 0 for no limit. What is held above it stays until trimmed. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_set_limit(pool: *mut ForebayPool, device: i32, bytes: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.set_limit(device, bytes)?)
    })
}

/// Sets the limit to a share of the device's memory, above 0 and up to 1. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_set_fraction(
    pool: *mut ForebayPool,
    device: i32,
    fraction: f64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.set_fraction(device, fraction)?)
    })
}

/// The limit of `device` in bytes; 0 for none. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_get_limit(pool: *const ForebayPool, device: i32, out: *mut u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        out.write(pool.limit(device)?);
        Ok(())
    })
}

/// Called before a request of `bytes` fails for want of memory; says whether it gave anything back. No lock is
/// held: it may free into the pool. It is not called again by an allocation that it makes itself.
pub type ForebayPressureFn = Option<unsafe extern "C" fn(user: *mut c_void, device: i32, bytes: u64) -> bool>;

/// Adds a pressure callback; `id` gets a number for `forebay_pool_remove_pressure_callback`. It is called on whichever
/// thread runs out of memory, possibly on several at once; `user` is passed on as it is and must stay valid until it is
/// removed. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `callback` may be called as said; `id` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_add_pressure_callback(
    pool: *mut ForebayPool,
    callback: ForebayPressureFn,
    user: *mut c_void,
    id: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, id) = unsafe { (ForebayPool::get(pool)?, output(id, "id")?) };
        let callback = callback.ok_or(Fault::Null("callback"))?;
        // The caller promised that it may be passed from any thread.
        let user = user.expose_provenance();
        let call = move |device: crate::units::DeviceId, bytes| {
            let user = std::ptr::with_exposed_provenance_mut(user);
            // SAFETY: the caller of forebay_pool_add_pressure_callback promised that it may be called so.
            unsafe { callback(user, device.0 as i32, bytes) }
        };
        id.write(pool.add_pressure_callback(Box::new(call)));
        Ok(())
    })
}

/// Removes a pressure callback. A call of it under way on another thread may still be running when this returns.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for a number that is not one. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_remove_pressure_callback(pool: *mut ForebayPool, id: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.remove_pressure_callback(id)?)
    })
}
