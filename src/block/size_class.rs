//! The lengths of blocks. A stream cache has a bin for each of them.
//!
//! A block of up to 64 KiB is as long as its request. Up to 1 MiB there are 64 lengths per doubling, so that a freed
//! block serves the next request of about its length. That wastes less than 1/64 of such a block; in the traces of
//! training such blocks hold at most 1/500 of the memory. Longer blocks are again as long as their request.

use crate::units::GRANULE;

/// Up to this many granules every length has its own bin.
pub(crate) const EXACT: u64 = 128;
/// Lengths per doubling above that.
const STEPS: u64 = 64;
/// The longest length with a bin: 1 MiB.
pub(crate) const BINNED: u64 = 2048;
/// The number of bins.
pub(crate) const BINS: usize = bin(BINNED) + 1;

const _: () = assert!(EXACT == 2 * STEPS, "up to here two lengths are one granule apart, above it two");

/// The distance of two lengths in granules, as a power of two.
#[inline(always)]
const fn step_bits(granules: u64) -> u32 {
    (granules.wrapping_sub(1) | STEPS).ilog2() - STEPS.ilog2()
}

/// The granules of the block for a request of `bytes`.
#[inline(always)]
#[must_use]
pub const fn block_granules(bytes: u64) -> u64 {
    block_length(bytes.div_ceil(GRANULE))
}

/// The same for a request of `granules`.
#[inline(always)]
pub(crate) const fn block_length(granules: u64) -> u64 {
    if granules > BINNED {
        return granules;
    }
    let below = (1 << step_bits(granules)) - 1;
    (granules + below) & !below
}

/// The bin of a length; at least [`BINS`] for 0 and for more than [`BINNED`] granules.
#[inline(always)]
pub(crate) const fn bin(granules: u64) -> usize {
    let bits = step_bits(granules);
    (bits as u64 * STEPS + (granules.wrapping_sub(1) >> bits)) as usize
}

/// The bins of longer requests, by half of their granules: a load is faster than the computation.
const LONGER: [u16; (BINNED / 2) as usize] = {
    let mut bins = [0; (BINNED / 2) as usize];
    let mut place = 0;
    while place < bins.len() {
        bins[place] = bin(2 * place as u64 + 1) as u16;
        place += 1;
    }
    bins
};

/// As [`bin`]. pre: 0 or more than [`EXACT`] granules.
#[inline(always)]
pub(crate) fn longer_bin(granules: u64) -> Option<usize> {
    LONGER.get(((granules.wrapping_sub(1)) / 2) as usize).map(|&bin| bin.into())
}

const LENGTHS: [u16; BINS] = {
    let mut lengths = [0; BINS];
    let mut granules = 1;
    while granules <= BINNED {
        lengths[bin(granules)] = granules as u16;
        granules += 1;
    }
    lengths
};

/// The length of the blocks in a bin.
#[inline(always)]
pub(crate) fn length(bin: usize) -> Option<u64> {
    LENGTHS.get(bin).map(|&length| length.into())
}

/// The lengths of the bins, in order.
pub(crate) fn lengths() -> impl Iterator<Item = u64> {
    LENGTHS.iter().map(|&length| length.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_its_bin() {
        for (place, length) in lengths().enumerate() {
            assert_eq!((bin(length), block_length(length)), (place, length));
        }
        assert_eq!(lengths().last(), Some(BINNED));
        assert!([0, BINNED + 1, u64::MAX].into_iter().all(|granules| bin(granules) >= BINS));
    }

    #[test]
    fn a_length_class_adds_less_than_a_64th() {
        for granules in 0..3 * BINNED {
            let length = block_length(granules);
            assert!(length >= granules && (length - granules) * STEPS < granules.max(1), "{granules}: {length}");
            assert!((EXACT < granules && granules <= BINNED) || length == granules);
            assert!(granules == 0 || granules > BINNED || bin(granules) == bin(length));
        }
    }
}
