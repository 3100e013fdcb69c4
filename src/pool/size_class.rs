//! Which bin of a front cache a length belongs to.
//!
//! Up to 64 KiB every length has a bin of its own; above, up to 1 MiB, each doubling is cut into 16 bins,
//! and a bin holds blocks of several lengths. Only a block of exactly the length asked for is taken from it,
//! so no class wastes memory.

/// Lengths in grains with a bin of their own.
pub(super) const EXACT: u64 = 128;
/// Bins per doubling above.
const STEPS: u64 = 16;
/// Longest length that has a bin: 1 MiB.
pub(super) const BINNED: u64 = 2048;
/// Bins for lengths above [`EXACT`].
pub(super) const STEPPED_BINS: usize = ((BINNED.ilog2() - EXACT.ilog2()) as u64 * STEPS + 1) as usize;

/// Lengths that differ less are in the same bin, whatever the doubling.
const FINEST: u64 = EXACT / STEPS;

/// The bin of each so many lengths above [`EXACT`]: a load is shorter than the sum.
const BINS: [u8; (BINNED / FINEST + 1) as usize] = {
    let mut bins = [0; (BINNED / FINEST + 1) as usize];
    let mut place = (EXACT / FINEST) as usize;
    while place < bins.len() {
        let grains = place as u64 * FINEST;
        let doubling = grains.ilog2();
        let step = (grains >> (doubling - STEPS.ilog2())) - STEPS;
        bins[place] = ((doubling - EXACT.ilog2()) as u64 * STEPS + step) as u8;
        place += 1;
    }
    bins
};

/// The bin above [`EXACT`]. pre: `EXACT < grains`; `None` if there is none.
#[inline(always)]
pub(super) fn stepped_bin(grains: u64) -> Option<usize> {
    BINS.get((grains / FINEST) as usize).map(|&bin| bin.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_length_and_stay_in_range() {
        let mut last = 0;
        for grains in EXACT + 1..=BINNED {
            let bin = stepped_bin(grains).expect("within range");
            assert!(bin == last || bin == last + 1, "{grains}: {last} then {bin}");
            last = bin;
        }
        assert_eq!(last, STEPPED_BINS - 1);
    }

    #[test]
    fn a_bin_spans_at_most_a_sixteenth() {
        let mut start = EXACT + 1;
        for grains in EXACT + 2..=BINNED {
            if stepped_bin(grains) != stepped_bin(start) {
                assert!((grains - start) * STEPS <= grains, "{start}..{grains}");
                start = grains;
            }
        }
    }
}
