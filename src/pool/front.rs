//! A stream's front cache: the blocks it freed last, ready for its next request of the same length.
//!
//! To the arena these blocks are still given out: they neither join their neighbours nor serve other
//! lengths. So the cache is bounded, most tightly where blocks are long, and emptied before the pool
//! takes more memory.

use super::size_class::{BINNED, EXACT, STEPPED_BINS, stepped_bin};

/// A block in a front cache: offset and length in grains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Offset in grains.
    pub start: u64,
    /// Length in grains.
    pub grains: u64,
}

/// The last blocks of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Exact {
    count: u64,
    starts: [u64; 15],
}

/// Blocks that a bin of several lengths keeps.
const FEW: usize = 4;

/// The last few blocks of a range of lengths, oldest first.
#[derive(Clone, Copy, Debug, Default)]
struct Few {
    count: usize,
    blocks: [Cached; FEW],
}

impl Few {
    #[inline]
    fn pop(&mut self, grains: u64) -> Option<u64> {
        let last = self.count.checked_sub(1)?;
        let newest = *self.blocks.get(last)?;
        if newest.grains == grains {
            self.count = last;
            return Some(newest.start);
        }
        self.pop_older(grains)
    }

    fn pop_older(&mut self, grains: u64) -> Option<u64> {
        let filled = self.blocks.get_mut(..self.count)?;
        let found = filled.iter().rposition(|block| block.grains == grains)?;
        let start = filled[found].start;
        filled[found..].rotate_left(1);
        self.count -= 1;
        Some(start)
    }

    /// Keeps the block; what no longer fits, the oldest, comes back.
    fn push(&mut self, block: Cached, bound: usize) -> Option<Cached> {
        if self.count < bound {
            self.blocks[self.count] = block;
            self.count += 1;
            return None;
        }
        let oldest = self.blocks[0];
        self.blocks.copy_within(1..bound, 0);
        self.blocks[bound - 1] = block;
        Some(oldest)
    }
}

/// One stream's cache. Fixed size: neither call allocates.
#[derive(Debug)]
pub struct Front {
    exact: Box<[Exact; EXACT as usize]>,
    stepped: Box<[Few; STEPPED_BINS]>,
    /// Longer than any bin: only the last of them, since they would split the arena's free memory.
    long: Few,
    /// Grains held in bins.
    binned: u64,
    limit: u64,
}

/// Blocks over 1 MiB that a front keeps.
const LONG: usize = 2;

impl Front {
    /// Its bins hold at most `limit` grains.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            exact: Box::new([Exact::default(); EXACT as usize]),
            stepped: Box::new([Few::default(); STEPPED_BINS]),
            long: Few::default(),
            binned: 0,
            limit,
        }
    }

    /// The block of exactly this length that was put in last.
    #[inline(always)]
    pub fn pop(&mut self, grains: u64) -> Option<u64> {
        // 0 wraps to a bin that is not there.
        let Some(bin) = self.exact.get_mut((grains as usize).wrapping_sub(1)) else { return self.pop_longer(grains) };
        let last = bin.count.checked_sub(1)?;
        let start = *bin.starts.get(last as usize)?;
        bin.count = last;
        self.binned -= grains;
        Some(start)
    }

    #[inline(never)]
    fn pop_longer(&mut self, grains: u64) -> Option<u64> {
        match grains {
            0 => None,
            longest if longest > BINNED => self.long.pop(grains),
            _ => {
                let start = self.stepped[stepped_bin(grains)].pop(grains)?;
                self.binned -= grains;
                Some(start)
            }
        }
    }

    /// Keeps a block. What the cache does not keep comes back, for the arena: this block or an older one.
    #[inline(always)]
    #[must_use]
    pub fn push(&mut self, block: Cached) -> Option<Cached> {
        let grains = block.grains;
        let Some(bin) = self.exact.get_mut((grains as usize).wrapping_sub(1)) else { return self.push_longer(block) };
        let Some(place) = bin.starts.get_mut(bin.count as usize) else { return Some(block) };
        if self.binned + grains > self.limit {
            return Some(block);
        }
        *place = block.start;
        bin.count += 1;
        self.binned += grains;
        None
    }

    /// Keeps a block if no other has to go for it. Returns whether it did.
    #[inline(always)]
    pub fn push_if_room(&mut self, block: Cached) -> bool {
        let grains = block.grains;
        if let Some(bin) = self.exact.get_mut((grains as usize).wrapping_sub(1)) {
            let Some(place) = bin.starts.get_mut(bin.count as usize) else { return false };
            if self.binned + grains > self.limit {
                return false;
            }
            *place = block.start;
            bin.count += 1;
            self.binned += grains;
            return true;
        }
        self.push_longer_if_room(block)
    }

    /// pre: longer than any exact bin.
    #[inline(never)]
    fn push_longer_if_room(&mut self, block: Cached) -> bool {
        let grains = block.grains;
        let (few, bound) = if grains > BINNED {
            (&mut self.long, LONG)
        } else if self.binned + grains <= self.limit {
            let Some(few) = self.stepped.get_mut(stepped_bin(grains)) else { return false };
            (few, FEW)
        } else {
            return false;
        };
        let Some(place) = few.blocks[..bound].get_mut(few.count) else { return false };
        *place = block;
        few.count += 1;
        self.binned += if grains > BINNED { 0 } else { grains };
        true
    }

    #[inline(never)]
    fn push_longer(&mut self, block: Cached) -> Option<Cached> {
        let grains = block.grains;
        if grains > BINNED {
            return self.long.push(block, LONG);
        }
        if self.binned + grains > self.limit {
            return Some(block);
        }
        let left = self.stepped[stepped_bin(grains)].push(block, FEW);
        // What came back may be the longer of the two: one bin holds a range of lengths.
        self.binned = self.binned + grains - left.map_or(0, |left| left.grains);
        left
    }

    /// Grains held. For checks: adds up.
    #[must_use]
    pub fn grains(&self) -> u64 {
        let few = |few: &Few| few.blocks[..few.count].iter().map(|block| block.grains).sum::<u64>();
        few(&self.long) + self.binned
    }

    /// Blocks held. Adds up.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let exact: u64 = self.exact.iter().map(|bin| bin.count).sum();
        let few: usize = self.stepped.iter().map(|few| few.count).sum();
        exact + (few + self.long.count) as u64
    }

    /// Empties the cache into `take`.
    pub fn drain(&mut self, mut take: impl FnMut(Cached)) {
        let empty = |few: &mut Few, take: &mut dyn FnMut(Cached)| {
            few.blocks[..few.count].iter().for_each(|&block| take(block));
            few.count = 0;
        };
        empty(&mut self.long, &mut take);
        if self.binned == 0 {
            return;
        }
        for (index, bin) in self.exact.iter_mut().enumerate() {
            for &start in &bin.starts[..bin.count as usize] {
                take(Cached { start, grains: index as u64 + 1 });
            }
            bin.count = 0;
        }
        for bin in self.stepped.iter_mut() {
            empty(bin, &mut take);
        }
        self.binned = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_the_last_of_the_same_length_only() {
        let mut front = Front::new(1 << 30);
        for grains in [1, 128, 129, BINNED, BINNED + 7] {
            assert_eq!(front.push(Cached { start: grains * 10, grains }), None);
            assert_eq!(front.push(Cached { start: grains * 10 + 1, grains }), None);
            assert_eq!(front.pop(grains), Some(grains * 10 + 1));
            assert_eq!(front.pop(grains + 3), None);
        }
        let mut left = Vec::new();
        front.drain(|block| left.push(block.grains));
        assert_eq!((left.as_slice(), front.binned), (&[BINNED + 7, 1, 128, 129, BINNED][..], 0));
        assert_eq!(front.pop(1), None);
        assert_eq!(front.pop(0), None);
    }

    #[test]
    fn a_short_block_may_push_a_longer_one_out() {
        let mut front = Front::new(1 << 30);
        let grains = (EXACT + 2..BINNED).find(|&grains| stepped_bin(grains) == stepped_bin(grains + 1));
        let grains = grains.expect("a bin that holds two lengths");
        for start in 0..4 {
            assert_eq!(front.push(Cached { start, grains: grains + 1 }), None);
        }
        assert_eq!(front.push(Cached { start: 4, grains }), Some(Cached { start: 0, grains: grains + 1 }));
        assert_eq!(front.grains(), 4 * grains + 3);
    }

    #[test]
    fn keeps_within_its_bounds() {
        let mut front = Front::new(20);
        assert_eq!(front.push(Cached { start: 0, grains: 20 }), None);
        assert_eq!(front.push(Cached { start: 20, grains: 1 }), Some(Cached { start: 20, grains: 1 }));
        let mut front = Front::new(1 << 30);
        let kept = (0..100).filter(|&start| front.push(Cached { start, grains: 1 }).is_none()).count();
        assert_eq!(kept, 15);
        let long = |start| Cached { start, grains: 5000 + start };
        assert_eq!((front.push(long(0)), front.push(long(1))), (None, None));
        assert_eq!((front.push(long(2)), front.push(long(3))), (Some(long(0)), Some(long(1))));
        assert_eq!((front.pop(5002), front.pop(5000)), (Some(2), None));
        for start in 0..6 {
            let old = front.push(Cached { start, grains: 200 });
            assert_eq!(old.map(|block| block.start), u64::checked_sub(start, 4));
        }
        assert_eq!(front.binned, 15 + 4 * 200);
    }
}
