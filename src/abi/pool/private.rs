//! Private pools: memory for captured graphs.

use std::ffi::c_void;

use crate::abi::core::guard;
use crate::abi::core::handle::{ForebayPool, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::pool::own_private_id;

/// From now on, allocations on `stream` come from private pool `id` of `device`, until `forebay_pool_private_end`: call
/// it just before `stream` is captured. What is handed out in between is reused within that private pool alone, so a
/// graph that was captured can be replayed at any time, until `forebay_pool_private_release`. The first begin of an id
/// makes its private pool; each begin takes one hold on it. Ids are the caller's; those of PyTorch's graphs have their
/// own space. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_private_begin(
    pool: *mut ForebayPool,
    device: i32,
    id: u64,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let captured = handle(stream).canonical();
        Ok(pool.private_begin(device, own_private_id(id), Box::new(move |stream| stream == captured))?)
    })
}

/// Ends the newest `forebay_pool_private_begin` of this id: call it when the capture has ended.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if none is under way, FOREBAY_STATUS_UNSUPPORTED as the begin does. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_private_end(pool: *mut ForebayPool, device: i32, id: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.private_end(device, own_private_id(id))?)
    })
}

/// Lets go of one hold: call it when the graph was destroyed. With the last hold the private pool's free memory goes
/// back to everybody, after a wait for the device; its blocks that are still live follow when they are freed.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown id, FOREBAY_STATUS_UNSUPPORTED as the begin does. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_private_release(pool: *mut ForebayPool, device: i32, id: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.private_release(device, own_private_id(id))?)
    })
}

/// Gives back the memory that graphs captured through CuPy hold on `device`, once the device is done with it: CuPy does
/// not say when a graph is destroyed, so what it allocates during a capture stays with that capture until this is
/// called. Blocks that are still live follow when they are freed. Those graphs must not be launched again, and no such
/// capture may be under way. `captures`, if not NULL, gets how many captures that were. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `captures` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_release_captures(
    pool: *mut ForebayPool,
    device: i32,
    captures: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let released = pool.release_captures(device)?;
        if !captures.is_null() {
            // SAFETY: not NULL, and writable as the caller promises.
            unsafe { captures.write(released) };
        }
        Ok(())
    })
}
