//! Addresses of all allocations but virtual memory, in windows reserved for them.
//!
//! A freed allocation leaves a hole in its window, so work that still uses it is detected and does not crash the
//! process. An address is reused only after the whole window was used once.

use super::fault::Call;
use super::system;
use crate::driver::Result;

/// Addresses of a window. They cost nothing.
const WINDOW: u64 = 1 << 40;

/// All windows; most drivers never need a second one.
#[derive(Default)]
pub(super) struct Zone {
    /// Start and bytes of each window.
    windows: Vec<(u64, u64)>,
    /// The address at which the next search begins.
    cursor: u64,
}

impl Zone {
    /// Whether any address of `at..end` lies in a window.
    pub(super) fn touches(&self, at: u64, end: u64) -> bool {
        self.windows.iter().any(|&(start, bytes)| at < start + bytes && end > start)
    }

    /// Finds free addresses. `taken` gives the end of the last block that begins before an address. pre: `bytes` is a
    /// multiple of the page.
    pub(super) fn find(&mut self, call: Call, bytes: u64, taken: impl Fn(u64) -> Option<u64>) -> Result<u64> {
        let onward = self.windows.iter().filter(|&&(start, length)| (start..start + length).contains(&self.cursor));
        let onward = onward.map(|&(start, length)| (self.cursor, start + length));
        let again = self.windows.iter().map(|&(start, length)| (start, start + length));
        let found = onward.chain(again).find_map(|(from, end)| gap(from, end, bytes, &taken));
        let at = match found {
            Some(at) => at,
            None => {
                let length = bytes.max(WINDOW);
                let start = system::anonymous(call, length, libc::PROT_NONE)?;
                self.windows.push((start, length));
                start
            }
        };
        self.cursor = at + bytes;
        Ok(at)
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        for &(at, bytes) in &self.windows {
            // The kernel unmaps the rest at the end of the process.
            let _ = system::unmap(Call::Free, at, bytes);
        }
    }
}

/// The first gap of `bytes` in `from..end`.
fn gap(from: u64, end: u64, bytes: u64, taken: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut at = from;
    while bytes <= end - at {
        match taken(at + bytes) {
            Some(over) if over > at => at = over,
            _ => return Some(at),
        }
    }
    None
}

/// Replaces a block by a hole.
///
/// # Safety
/// The range must be a block of the zone that is no longer used.
pub(super) unsafe fn clear(call: Call, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { system::anonymous_at(call, at, bytes, libc::PROT_NONE) }
}
