//! Streams, copies and fills, for callers without CUDA's headers.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::resource::memory_resource::device_of_stream;
use crate::units::Address;

/// Registers `stream`: the caller promises that it lives until `forebay_stream_unregister`, which makes calls on it
/// faster. On a stream that is neither registered nor a default stream, each call queries the driver for the stream's
/// identity, and every second of consecutive frees records an event, since the handle may be destroyed afterwards.
/// Stream 2, the calling thread's default stream, cannot be registered. Do not capture a registered stream without
/// `forebay_pool_private_begin`: its stream cache serves requests without a query of the driver, so the pool would not
/// notice the capture. Any thread.
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

/// Ends the registration. The stream must be alive in this call, and may be destroyed after it. No other thread may use
/// the stream with the pool during the call.
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

/// Creates a stream on `device` that does not synchronize with the legacy default stream (CU_STREAM_NON_BLOCKING), and
/// registers it. The caller owns it and destroys it with `forebay_stream_destroy`. Any thread.
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

/// Unregisters and destroys a stream from `forebay_stream_create`. Its queued work still runs, and memory freed on it
/// is reused only after that work. Any thread, but no other thread may use the stream during the call.
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

/// Waits on the host until the work queued on `stream` is done. `stream` may be of any device; a default stream is that
/// of `device`. Any thread.
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

/// Queues a copy of `bytes` bytes from `from` to `to` on `stream` (cuMemcpyAsync). Both may be device or host memory.
/// Returns before the copy is done, except for host memory that is not pinned. 0 bytes do nothing. Any thread.
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

/// Queues a fill of `bytes` bytes at `to` with `value` on `stream` (cuMemsetD8Async). 0 bytes do nothing. Any thread.
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
