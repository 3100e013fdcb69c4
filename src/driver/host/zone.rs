//! Addresses for everything but virtual memory: allocations lie in windows that were reserved for nothing else.
//!
//! What is freed becomes a hole in its window, so work that still uses it is seen to touch a hole and does not crash
//! the process. An address comes back only after its whole window was gone through once.

use std::collections::BTreeMap;

use super::blocks::Block;
use super::fault::Call;
use super::memory;
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

    /// Addresses that no block has. pre: `bytes` is a multiple of the page.
    pub(super) fn find(&mut self, call: Call, bytes: u64, blocks: &BTreeMap<u64, Block>) -> Result<u64> {
        let onward = self.windows.iter().filter(|&&(start, length)| (start..start + length).contains(&self.cursor));
        let onward = onward.map(|&(start, length)| (self.cursor, start + length));
        let again = self.windows.iter().map(|&(start, length)| (start, start + length));
        let found = onward.chain(again).find_map(|(from, end)| gap(from, end, bytes, blocks));
        let at = match found {
            Some(at) => at,
            None => {
                let length = bytes.max(WINDOW);
                let start = memory::anonymous(call, length, libc::PROT_NONE)?;
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
            let _ = memory::unmap(Call::Free, at, bytes);
        }
    }
}

/// The first gap of `bytes` in `from..end`.
fn gap(from: u64, end: u64, bytes: u64, blocks: &BTreeMap<u64, Block>) -> Option<u64> {
    let mut at = from;
    while bytes <= end - at {
        match blocks.range(..at + bytes).next_back() {
            Some((&start, block)) if start + block.bytes > at => at = start + block.bytes,
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
    unsafe { memory::anonymous_at(call, at, bytes, libc::PROT_NONE) }
}
