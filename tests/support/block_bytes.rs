//! What a caller can know of a block before it is there.

/// The length of the block for a request: worked out here, not asked of the library.
pub fn block_bytes(bytes: u64) -> u64 {
    let steps = 64 << 10 < bytes && bytes <= 1 << 20;
    bytes.next_multiple_of(if steps { bytes.next_power_of_two() / 128 } else { 512 })
}
