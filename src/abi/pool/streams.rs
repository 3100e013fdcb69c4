//! Streams, and work on them for callers without CUDA's own headers.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::resource::memory_resource::device_of_stream;
use crate::units::Address;

/// Promises that `stream` lives until `forebay_stream_unregister`. Freeing on a stream that is neither registered nor a
/// default stream records an event in every second free in a row, since its handle may be dead afterwards, and asks the
/// driver who it is in every call; registered, it does neither. Stream 2, the calling thread's default stream, cannot
/// be registered. A registered stream must not be captured without `forebay_pool_private_begin`: a request that its
/// stream cache serves asks nobody, so that would not be noticed. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stream_register(
    pool: *mut ForebayPool,
    device: i32,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.stream_register(device, handle(stream))?)
    })
}

/// Ends the promise. The stream must be alive in this call and may be destroyed after it; no other thread may be
/// using it with the pool meanwhile.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if it was not registered. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stream_unregister(
    pool: *mut ForebayPool,
    device: i32,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.stream_unregister(device, handle(stream))?)
    })
}

/// Makes a stream on `device` that does not synchronise with the legacy default stream, and registers it. The caller
/// owns it and ends it with `forebay_stream_destroy`. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stream_create(
    pool: *mut ForebayPool,
    device: i32,
    out: *mut *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        let home = pool.device(device)?.device();
        let stream = pool.driver().stream_create(home)?;
        if let Err(error) = pool.stream_register(device, stream) {
            pool.driver().stream_destroy(home, stream)?;
            return Err(error.into());
        }
        out.write(pointer(Address(stream.0)));
        Ok(())
    })
}

/// Destroys a stream made by `forebay_stream_create`, and unregisters it unless it was unregistered before. Its queued
/// work still runs, and blocks freed on it stay safe. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` came from `forebay_stream_create` and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stream_destroy(
    pool: *mut ForebayPool,
    device: i32,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.stream_destroy(device, handle(stream))?)
    })
}

/// Waits on the host until the work queued on `stream` is done: a stream of any device, or the default one of `device`.
/// Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stream_synchronize(
    pool: *mut ForebayPool,
    device: i32,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let (driver, stream) = (pool.driver(), handle(stream));
        let device = device_of_stream(driver.as_ref(), pool.device(device)?.device(), stream);
        Ok(driver.stream_synchronize(device, stream)?)
    })
}

/// Queues a copy of `bytes` bytes on `stream`; either side may be memory of the device or of the program. Returns
/// before the copy is done, except where the driver cannot do it asynchronously (memory that is not pinned). Any
/// thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream; both ranges stay valid until the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_copy(
    pool: *mut ForebayPool,
    device: i32,
    to: *mut c_void,
    from: *const c_void,
    bytes: u64,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let home = pool.device(device)?.device();
        if bytes == 0 {
            return Ok(());
        }
        if to.is_null() || from.is_null() {
            return Err(Fault::Null(if to.is_null() { "to" } else { "from" }));
        }
        Ok(pool.driver().copy(home, address(to), address(from), bytes, handle(stream))?)
    })
}

/// Queues setting `bytes` bytes to `value` on `stream`. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream; the range stays valid until it is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_fill(
    pool: *mut ForebayPool,
    device: i32,
    to: *mut c_void,
    value: u8,
    bytes: u64,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let home = pool.device(device)?.device();
        if bytes == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(Fault::Null("to"));
        }
        Ok(pool.driver().fill(home, address(to), value, bytes, handle(stream))?)
    })
}
