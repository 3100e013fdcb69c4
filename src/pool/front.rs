//! A stream's front cache: the blocks it freed last, ready for its next request of the same length.
//!
//! To the arena these blocks are still given out: they neither join their neighbours nor serve other
//! lengths. So each bin keeps few of them, most tightly where blocks are long, in all of them some 150 MiB at most but for the
//! longest two; and the cache is emptied before the pool takes more memory.

use super::size_class::{BINNED, EXACT, STEPPED_BINS, stepped_bin};

/// A block in a front cache: offset and length in grains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Offset in grains.
    pub start: u64,
    /// Length in grains.
    pub grains: u64,
}

/// Blocks that a bin of one length keeps: with their count two cache lines, and 60 MiB in all these bins.
const SOME: usize = 15;

/// The last blocks of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Exact {
    starts: [u64; SOME],
    count: u32,
}

/// Blocks that a bin of several lengths keeps.
const FEW: usize = 4;

/// The last few blocks of a range of lengths, oldest first. On one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Few {
    starts: [u64; FEW],
    /// Blocks of 2 TiB and more go back at once.
    grains: [u32; FEW],
    count: u32,
}

impl Few {
    /// The block that was put in last, if it is of that length.
    #[inline(always)]
    fn newest(&mut self, grains: u64) -> Option<Newest<'_>> {
        let last = self.count.wrapping_sub(1) as usize;
        let (start, newest) = (self.starts.get(last)?, self.grains.get(last)?);
        (u64::from(*newest) == grains).then_some(Newest { start: *start, count: &mut self.count })
    }

    fn pop(&mut self, grains: u64) -> Option<u64> {
        let filled = self.grains.get(..self.count as usize)?;
        let found = filled.iter().rposition(|&held| u64::from(held) == grains)?;
        Some(self.remove(found).start)
    }

    fn remove(&mut self, place: usize) -> Cached {
        let count = self.count as usize;
        let block = Cached { start: self.starts[place], grains: self.grains[place].into() };
        self.starts.copy_within(place + 1..count, place);
        self.grains.copy_within(place + 1..count, place);
        self.count -= 1;
        block
    }

    /// Keeps the block if there are fewer than `bound`. Returns whether it did.
    #[inline(always)]
    fn push_if_room(&mut self, block: Cached, bound: u32) -> bool {
        let place = self.count;
        if place >= bound || block.grains > u32::MAX.into() {
            return false;
        }
        let (Some(start), Some(grains)) = (self.starts.get_mut(place as usize), self.grains.get_mut(place as usize))
        else {
            return false;
        };
        (*start, *grains) = (block.start, block.grains as u32);
        self.count = place + 1;
        true
    }

    /// Keeps the block in a full bin; the oldest comes back. pre: there are as many as may be, [`FEW`] or [`LONG`].
    fn replace_oldest(&mut self, block: Cached) -> Cached {
        let Ok(new) = u32::try_from(block.grains) else { return block };
        let ([a, b, c, d], [k, l, m, n]) = (self.starts, self.grains);
        // Written out: moving so little in memory costs a call.
        if self.count as usize == FEW {
            (self.starts, self.grains) = ([b, c, d, block.start], [l, m, n, new]);
        } else {
            (self.starts, self.grains) = ([b, block.start, c, d], [l, new, m, n]);
        }
        Cached { start: a, grains: k.into() }
    }

    fn blocks(&self) -> impl Iterator<Item = Cached> {
        let lengths = self.grains.iter().take(self.count as usize);
        self.starts.iter().zip(lengths).map(|(&start, &grains)| Cached { start, grains: grains.into() })
    }
}

/// A block that a cache would give out next for its length.
#[derive(Debug)]
pub struct Newest<'front> {
    /// Offset in grains.
    pub start: u64,
    count: &'front mut u32,
}

impl Newest<'_> {
    /// Gives it out: its offset.
    #[inline(always)]
    pub fn take(self) -> u64 {
        *self.count -= 1;
        self.start
    }
}

/// One stream's cache. Fixed size: neither call allocates.
#[derive(Debug)]
pub struct Front {
    exact: Box<[Exact; EXACT as usize]>,
    stepped: Box<[Few; STEPPED_BINS]>,
    /// Longer than any bin: only the last of them, since they would split the arena's free memory.
    long: Few,
    /// A bin may hold something.
    filled: bool,
}

/// Blocks over 1 MiB that a front keeps.
const LONG: u32 = 2;
const _: () = assert!(FEW == 4 && LONG == 2, "replace_oldest is written for these");

impl Default for Front {
    fn default() -> Self {
        Self {
            exact: Box::new([Exact::default(); EXACT as usize]),
            stepped: Box::new([Few::default(); STEPPED_BINS]),
            long: Few::default(),
            filled: false,
        }
    }
}

impl Front {
    /// Blocks of up to so many grains have a bin of their own length.
    pub const SHORT: u64 = EXACT;

    /// The block that was put in last, of those of a length up to [`Front::SHORT`].
    #[inline(always)]
    pub fn newest_short(&mut self, grains: u64) -> Option<Newest<'_>> {
        // 0 wraps to a bin that is not there.
        let Exact { starts, count } = self.exact.get_mut((grains as usize).wrapping_sub(1))?;
        let start = *starts.get(count.wrapping_sub(1) as usize)?;
        Some(Newest { start, count })
    }

    /// The block that was put in last into the bin of a longer length, if it is of that length.
    #[inline(always)]
    pub fn newest_longer(&mut self, grains: u64) -> Option<Newest<'_>> {
        self.few(grains)?.0.newest(grains)
    }

    /// Where blocks longer than any exact bin's are, and how many of them may be there.
    #[inline(always)]
    fn few(&mut self, grains: u64) -> Option<(&mut Few, u32)> {
        if grains > BINNED {
            return Some((&mut self.long, LONG));
        }
        // 0 falls into the first bin, which has no such block.
        Some((self.stepped.get_mut(stepped_bin(grains)?)?, FEW as u32))
    }

    /// The block of exactly this length that was put in last.
    pub fn pop(&mut self, grains: u64) -> Option<u64> {
        if grains <= EXACT {
            return self.newest_short(grains).map(Newest::take);
        }
        self.few(grains)?.0.pop(grains)
    }

    /// Keeps a block. What the cache does not keep comes back, for the arena: this block or an older one.
    #[must_use]
    pub fn push(&mut self, block: Cached) -> Option<Cached> {
        if self.push_if_room(block) {
            return None;
        }
        let full = if block.grains > EXACT { self.few(block.grains) } else { None };
        Some(full.map_or(block, |(few, _)| few.replace_oldest(block)))
    }

    /// Keeps a block if no other has to go for it. Returns whether it did.
    #[inline(always)]
    pub fn push_if_room(&mut self, block: Cached) -> bool {
        let grains = block.grains;
        if let Some(bin) = self.exact.get_mut((grains as usize).wrapping_sub(1)) {
            let Some(place) = bin.starts.get_mut(bin.count as usize) else { return false };
            *place = block.start;
            bin.count += 1;
            self.filled = true;
            return true;
        }
        let kept = self.few(grains).is_some_and(|(few, bound)| few.push_if_room(block, bound));
        self.filled |= kept;
        kept
    }

    /// The block of a full bin of several lengths that goes when the next one comes, where `grains` is one of them.
    #[inline]
    pub fn next_to_go(&self, grains: u64) -> Option<u64> {
        if grains <= EXACT || grains > BINNED {
            return None;
        }
        Some(self.stepped[stepped_bin(grains)?].starts[0])
    }

    /// Grains held. For checks: adds up.
    #[must_use]
    pub fn grains(&self) -> u64 {
        let exact = self.exact.iter().zip(1..).map(|(bin, grains)| u64::from(bin.count) * grains).sum::<u64>();
        let few = self.stepped.iter().chain([&self.long]).flat_map(Few::blocks);
        exact + few.map(|block| block.grains).sum::<u64>()
    }

    /// Blocks held. Adds up.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let exact: u64 = self.exact.iter().map(|bin| u64::from(bin.count)).sum();
        exact + self.stepped.iter().chain([&self.long]).map(|few| u64::from(few.count)).sum::<u64>()
    }

    /// Empties the cache into `take`.
    pub fn drain(&mut self, mut take: impl FnMut(Cached)) {
        if !std::mem::take(&mut self.filled) {
            return;
        }
        for (bin, grains) in self.exact.iter_mut().zip(1..) {
            bin.starts[..bin.count as usize].iter().for_each(|&start| take(Cached { start, grains }));
            bin.count = 0;
        }
        for few in self.stepped.iter_mut().chain([&mut self.long]) {
            few.blocks().for_each(&mut take);
            few.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_the_last_of_the_same_length_only() {
        let mut front = Front::default();
        for grains in [1, 128, 129, BINNED, BINNED + 7] {
            assert_eq!(front.push(Cached { start: grains * 10, grains }), None);
            assert_eq!(front.push(Cached { start: grains * 10 + 1, grains }), None);
            assert_eq!(front.pop(grains), Some(grains * 10 + 1));
            assert_eq!(front.pop(grains + 3), None);
        }
        let mut left = Vec::new();
        front.drain(|block| left.push(block.grains));
        assert_eq!((left.as_slice(), front.grains()), (&[1, 128, 129, BINNED, BINNED + 7][..], 0));
        assert_eq!(front.pop(1), None);
        assert_eq!(front.pop(0), None);
    }

    #[test]
    fn a_short_block_may_push_a_longer_one_out() {
        let mut front = Front::default();
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
        let mut front = Front::default();
        let kept = (0..100).filter(|&start| front.push(Cached { start, grains: 1 }).is_none()).count();
        assert_eq!(kept, SOME);
        let long = |start| Cached { start, grains: 5000 + start };
        assert_eq!((front.push(long(0)), front.push(long(1))), (None, None));
        assert_eq!((front.push(long(2)), front.push(long(3))), (Some(long(0)), Some(long(1))));
        assert_eq!((front.pop(5002), front.pop(5000)), (Some(2), None));
        for start in 0..6 {
            let old = front.push(Cached { start, grains: 200 });
            assert_eq!(old.map(|block| block.start), u64::checked_sub(start, 4));
        }
        assert_eq!((front.blocks(), front.grains()), (15 + 4 + 1, 15 + 4 * 200 + 5003));
    }
}
