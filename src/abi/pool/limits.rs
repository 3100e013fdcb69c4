//! Limits, trimming and pressure callbacks.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, output};
use crate::abi::core::status::ForebayStatus;

/// Gives free memory back to the driver until the pool holds at most `keep` bytes on `device`, or nothing more can go.
/// Waits on the host for work that still uses freed memory. `released` (may be NULL) receives the number of bytes that
/// went back. Any thread.
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

/// Sets the most physical memory that the pool may hold on `device`, in bytes; 0 for no limit. Memory above a new limit
/// stays held until `forebay_pool_trim`. Any thread.
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

/// Sets the limit of `device` to a share of its memory, above 0 and up to 1. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another fraction.
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

/// Gives the limit of `device` in bytes; 0 for none. Any thread.
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

/// Called before a request for `bytes` bytes on `device` fails for lack of memory. Returns whether it freed memory. The
/// library holds no lock during the call, so the callback may free into the pool. An allocation inside the callback
/// does not call it again.
pub type ForebayPressureFn = Option<unsafe extern "C" fn(user: *mut c_void, device: i32, bytes: u64) -> bool>;

/// Adds a pressure callback; `id` receives its number for `forebay_pool_remove_pressure_callback`. It runs on the
/// thread whose request found no memory, possibly on several threads at once. The caller owns `user`, which is passed
/// to the callback and must stay valid until the callback is removed. Any thread.
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
        // An integer, so that the closure is Send: the caller promised that any thread may pass it.
        let user = user.expose_provenance();
        let call = move |device: crate::units::DeviceId, bytes| {
            let user = std::ptr::with_exposed_provenance_mut(user);
            // SAFETY: the caller of forebay_pool_add_pressure_callback promised that any thread may call it.
            unsafe { callback(user, device.0 as i32, bytes) }
        };
        id.write(pool.add_pressure_callback(Box::new(call)));
        Ok(())
    })
}

/// Removes a pressure callback. A call of it on another thread may still be running when this returns; its user data
/// must stay valid until that call ends.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown number. Any thread.
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
