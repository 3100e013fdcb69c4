//! Addresses for everything but virtual memory: allocations lie in windows that were reserved for nothing else.
//!
//! What is freed becomes a hole in its window, so work that still uses it is seen to touch a hole and does not crash
//! the process. An address comes back only after its whole window was gone through once.

use super::fault::Call;
use super::system;
use crate::driver::Result;

/// Addresses of a window. They cost nothing.
const WINDOW: u64 = 1 << 40;

/// All windows; most drivers never need a second one.
#[derive(Default)]
pub(super) struct Zone {
    /// Start and bytes of each.
    windows: Vec<(u64, u64)>,
    /// Where the search goes on.
    cursor: u64,
}

impl Zone {
    /// Whether any address of `at..end` is ours.
    pub(super) fn touches(&self, at: u64, end: u64) -> bool {
        self.windows.iter().any(|&(start, bytes)| at < start + bytes && end > start)
    }

    /// Addresses that nobody has. `taken` says where the last block ends that begins before an address. pre: `bytes` is a
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
            // What cannot be unmapped at the end is the kernel's to clear with the process.
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

/// Puts nothing where a block was.
///
/// # Safety
/// The range must be a block of the zone that nobody wants any more.
pub(super) unsafe fn clear(call: Call, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { system::anonymous_at(call, at, bytes, libc::PROT_NONE) }
}
