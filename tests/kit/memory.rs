//! What a block holds, and how long it is.

use forebay::units::Address;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// The length of the block for a request: worked out here, not asked of the library.
pub fn block_bytes(bytes: u64) -> u64 {
    let steps = 64 << 10 < bytes && bytes <= 1 << 20;
    bytes.next_multiple_of(if steps { bytes.next_power_of_two() / 128 } else { 512 })
}

/// A word every `step` bytes of a block, and its last one, each with its offset.
fn words(at: Address, bytes: u64, step: u64) -> impl Iterator<Item = (u64, *mut u64)> {
    let offsets = (0..bytes / 8 * 8).step_by(step as usize).chain([bytes / 8 * 8 - 8]);
    offsets.map(move |offset| (offset, at.plus(offset).0 as *mut u64))
}

/// Marks a block of the host driver, on which nobody else works: a word every `step` bytes says whose it is, and where it lies.
pub fn mark(at: Address, bytes: u64, step: u64, owner: u64) {
    for (offset, word) in words(at, bytes, step) {
        // SAFETY: inside the block, which the tests pass while it is theirs.
        unsafe { word.write_volatile(owner ^ offset) };
    }
}

/// How many of these words are not what they were.
pub fn wrong_marks(at: Address, bytes: u64, step: u64, owner: u64) -> u64 {
    // SAFETY: as in `mark`.
    words(at, bytes, step).filter(|&(offset, word)| unsafe { word.read_volatile() } != owner ^ offset).count() as u64
}
