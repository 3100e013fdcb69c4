//! Private pools: memory for captured graphs.

use std::ffi::c_void;

use crate::abi::core::guard;
use crate::abi::core::handle::{ForebayPool, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::pool::own_private_id;

/// Makes allocations on `stream` come from private pool `id` of `device`, until `forebay_pool_private_end`. Call it
/// just before the capture of `stream` begins. Memory allocated in between is reused only within this private pool, so
/// the captured graph can be launched at any time before `forebay_pool_private_release`. The first begin of an id
/// creates its private pool; each begin adds one reference to it. The caller chooses the ids; they never collide with
/// those of PyTorch's graphs. Any thread.
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

/// Ends the newest `forebay_pool_private_begin` of this id. Call it when the capture has ended.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if no begin of this id is open, FOREBAY_STATUS_UNSUPPORTED on a device without
/// virtual memory management. Any thread.
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

/// Drops one reference to a private pool. Call it when the graph is destroyed. After the last one, and once the device
/// has finished its work, the private pool's free memory returns to the pool; blocks that are still live follow when
/// they are freed.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown id, FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory
/// management. Any thread.
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

/// Releases the memory that graphs captured through CuPy hold on `device`, once the device has finished its work. CuPy
/// does not report that a graph is destroyed, so memory allocated during a capture stays with that capture until this
/// call. Blocks that are still live follow when they are freed. The graphs must not be launched again, and no capture
/// through CuPy may be under way. `captures` (may be NULL) receives the number of captures released. Any thread.
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
