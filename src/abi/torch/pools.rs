//! Calls on private pools for Forebay's allocator class for PyTorch, beyond PyTorch's own hooks. All concern the shared
//! pool; a private pool has the pair of ids that PyTorch gave it.

use std::ffi::{c_int, c_void};

use super::allocator::pool_id;
use crate::abi::core::guard;
use crate::abi::core::handle::{address, output, stream as handle};
use crate::abi::core::log::shared;
use crate::abi::core::status::ForebayStatus;
use crate::abi::pool::memory::ForebayFramework;

/// Adds one reference to a private pool, and creates it if it does not exist; `forebay_torch_release_pool` drops one.
/// Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
///
/// # Safety
/// Memory-safe for any arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_hold_pool(device: c_int, id_first: u64, id_second: u64) -> ForebayStatus {
    guard::status(|| Ok(shared()?.private_hold(device, pool_id(id_first, id_second))?))
}

/// Gives the number of references to a private pool; 0 for an unknown one. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
///
/// # Safety
/// `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_pool_use_count(
    device: c_int,
    id_first: u64,
    id_second: u64,
    out: *mut u32,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        out.write(shared()?.private_holds(device, pool_id(id_first, id_second))?);
        Ok(())
    })
}

/// Gives the ids of the private pool of the live block that starts at `ptr`; zeros if it has none. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
///
/// # Safety
/// The outputs are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_pool_of(
    ptr: *const c_void,
    id_first: *mut u64,
    id_second: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (first, second) = unsafe { (output(id_first, "id_first")?, output(id_second, "id_second")?) };
        let id = shared()?.private_of(address(ptr))?.unwrap_or_default();
        first.write((id >> 64) as u64);
        second.write(id as u64);
        Ok(())
    })
}

/// Allocates `bytes` bytes at the address `ptr` again, which a private pool allocated on `stream` before and has free
/// now: puts the private pool back into an earlier state. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown pool, FOREBAY_STATUS_BUSY if that memory is not free,
/// FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
///
/// # Safety
/// `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_restore(
    id_first: u64,
    id_second: u64,
    ptr: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        let id = pool_id(id_first, id_second);
        let tag = ForebayFramework::Torch as u8;
        Ok(shared()?.private_restore(id, address(ptr), bytes, handle(stream), tag)?)
    })
}
