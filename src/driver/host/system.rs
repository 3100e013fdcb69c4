//! System calls on addresses: mapping, reserving and unmapping.

use std::ptr;

use super::fault::Call;
use crate::driver::Result;
use crate::units::Address;

/// The size of a page of the operating system.
pub(super) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// New anonymous memory that the kernel backs only where it is touched.
pub(super) fn anonymous(call: Call, bytes: u64, protection: i32) -> Result<u64> {
    // SAFETY: the kernel chooses unused addresses.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, protection, ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(call.failed(&format!("mmap of {bytes} bytes")));
    }
    Ok(at as u64)
}

/// [`anonymous`] at a given address, if that is free.
pub(super) fn anonymous_if_free(at: u64, bytes: u64, protection: i32) -> Option<u64> {
    let flags = ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel refuses addresses in use.
    let got = unsafe { libc::mmap(at as *mut libc::c_void, bytes as usize, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got as u64 != at {
        // A kernel that does not know the flag treats the address as a hint.
        let _ = unmap(Call::ReserveAt, got as u64, bytes);
        return None;
    }
    Some(at)
}

/// Maps anonymous memory at `at`, in place of any mapping there.
///
/// # Safety
/// The addresses must be the driver's, with no mapping there that is still in use.
pub(super) unsafe fn anonymous_at(call: Call, at: u64, bytes: u64, protection: i32) -> Result<()> {
    let place = at as *mut libc::c_void;
    // SAFETY: the caller's.
    let got = unsafe { libc::mmap(place, bytes as usize, protection, ANONYMOUS | libc::MAP_FIXED, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(call.failed(&format!("mmap of fresh memory over {}+{bytes}", Address(at))));
    }
    Ok(())
}

/// Returns addresses to the operating system.
pub(super) fn unmap(call: Call, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the callers pass ranges that this driver got from mmap and has in its tables.
    if unsafe { libc::munmap(at as *mut libc::c_void, bytes as usize) } != 0 {
        return Err(call.failed(&format!("munmap of {at:#x}+{bytes}")));
    }
    Ok(())
}
