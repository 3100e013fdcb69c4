//! Best fit over one owner's free blocks in one zone.
//!
//! Up to [`EXACT`] granules there is one list per length; above, one per 64th of a doubling. A bitmap of the lists that
//! are not empty finds the first that can serve with a few word scans. A list of long blocks is searched for the
//! shortest that fits, but only its first [`LOOK`] blocks: a block that is missed differs by less than a 64th.

use super::slab::{Block, BlockId, NONE, Slab};

/// Up to this length each length has its own list: 1 MiB.
const EXACT: u64 = 2048;
/// Lists per doubling above that.
const STEPS: u64 = 64;
/// Longer blocks share the last list: 32 TiB.
const LONGEST: u64 = (1 << 36) - 1;
const LISTS: usize = list_of(LONGEST) + 1;
const WORDS: usize = LISTS.div_ceil(64);
const _: () = assert!(WORDS <= 64, "one word sums up all words");
const _: () = assert!(LISTS <= u16::MAX as usize, "a block names its list");
/// Blocks of a list of long ones that are searched.
const LOOK: usize = 16;

#[derive(Debug)]
pub(crate) struct FreeSet {
    /// Head of each list. Empty before the first block: a stream may never have a free block in a zone.
    heads: Box<[BlockId]>,
    /// Bit `i` is set if list `i` is not empty.
    bits: [u64; WORDS],
    /// Bit `w` is set if word `w` of `bits` is not zero.
    summary: u64,
    count: usize,
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { heads: Box::default(), bits: [0; WORDS], summary: 0, count: 0 }
    }
}

/// pre: `len > 0`.
const fn list_of(len: u64) -> usize {
    if len <= EXACT {
        return len as usize - 1;
    }
    let len = if len > LONGEST { LONGEST } else { len };
    let doubling = len.ilog2();
    let step = (len >> (doubling - STEPS.ilog2())) - STEPS;
    (EXACT + (doubling - EXACT.ilog2()) as u64 * STEPS + step) as usize
}

impl FreeSet {
    pub fn insert(&mut self, slab: &mut Slab, id: BlockId) {
        self.count += 1;
        self.link(slab, id, list_of(slab[id].len));
    }

    pub fn remove(&mut self, slab: &mut Slab, id: BlockId) {
        self.count -= 1;
        self.unlink(slab, id);
    }

    /// Changes the length of a block in the set.
    pub fn resize(&mut self, slab: &mut Slab, id: BlockId, len: u64) {
        let list = list_of(len);
        slab[id].len = len;
        if usize::from(slab[id].list) != list {
            self.unlink(slab, id);
            self.link(slab, id, list);
        }
    }

    // Neither function branches on whether a block has neighbours in its list: that is as good as random.

    #[inline]
    fn link(&mut self, slab: &mut Slab, id: BlockId, list: usize) {
        if self.heads.is_empty() {
            self.heads = vec![NONE; LISTS].into_boxed_slice();
        }
        let head = std::mem::replace(&mut self.heads[list], id);
        let block = &mut slab[id];
        (block.list, block.link_prev, block.link_next) = (list as u16, NONE, head);
        slab[head].link_prev = id;
        self.bits[list / 64] |= 1 << (list % 64);
        self.summary |= 1 << (list / 64);
    }

    #[inline(always)]
    fn unlink(&mut self, slab: &mut Slab, id: BlockId) {
        let Block { list, link_prev, link_next, .. } = slab[id];
        let list = usize::from(list);
        slab[link_next].link_prev = link_prev;
        slab[link_prev].link_next = link_next;
        let head = &mut self.heads[list];
        *head = if link_prev == NONE { link_next } else { *head };
        let word = &mut self.bits[list / 64];
        *word &= !(u64::from(*head == NONE) << (list % 64));
        self.summary &= !(u64::from(*word == 0) << (list / 64));
    }

    /// The shortest block of at least `len` granules, or one that is longer by less than a 64th.
    pub fn best_fit(&self, slab: &Slab, len: u64) -> Option<BlockId> {
        let list = self.first_list_from(list_of(len))?;
        if list < EXACT as usize {
            return Some(self.heads[list]);
        }
        // All blocks of the first list may be too short; those of the next are not.
        self.shortest(slab, list, len).or_else(|| self.shortest(slab, self.first_list_from(list + 1)?, len))
    }

    /// The shortest of a list's first blocks that has `len` granules; the lowest among equals.
    fn shortest(&self, slab: &Slab, list: usize, len: u64) -> Option<BlockId> {
        let (mut best, mut shortest) = (NONE, (u64::MAX, u64::MAX));
        let mut id = self.heads[list];
        for _ in 0..LOOK {
            if id == NONE {
                break;
            }
            let block = &slab[id];
            if block.len >= len && (block.len, block.start) < shortest {
                (best, shortest) = (id, (block.len, block.start));
            }
            id = block.link_next;
        }
        (best != NONE).then_some(best)
    }

    fn list<'a>(&'a self, slab: &'a Slab, list: usize) -> impl Iterator<Item = BlockId> + 'a {
        let some = |id: BlockId| (id != NONE).then_some(id);
        std::iter::successors(some(self.heads[list]), move |&id| some(slab[id].link_next))
    }

    fn first_list_from(&self, list: usize) -> Option<usize> {
        let word = list / 64;
        let here = self.bits.get(word)? & (u64::MAX << (list % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.summary & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The longest block.
    pub fn longest(&self, slab: &Slab) -> u64 {
        if self.summary == 0 {
            return 0;
        }
        let word = 63 - self.summary.leading_zeros() as usize;
        let list = word * 64 + 63 - self.bits[word].leading_zeros() as usize;
        self.list(slab, list).map(|id| slab[id].len).max().unwrap_or(0)
    }

    /// Every block in the set. Shorter ones come first, except within a list.
    pub fn all(&self, slab: &Slab) -> Vec<BlockId> {
        self.lists_from(slab, 0)
    }

    /// The blocks of more than 1 MiB.
    pub fn long(&self, slab: &Slab) -> Vec<BlockId> {
        self.lists_from(slab, EXACT as usize)
    }

    /// The blocks of at least `granules`, and some that are shorter by less than a 64th.
    pub fn at_least(&self, slab: &Slab, granules: u64) -> Vec<BlockId> {
        self.lists_from(slab, list_of(granules))
    }

    fn lists_from(&self, slab: &Slab, first: usize) -> Vec<BlockId> {
        let lists = std::iter::successors(self.first_list_from(first), |&list| self.first_list_from(list + 1));
        lists.flat_map(|list| self.list(slab, list)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_blocks_are_in_later_lists() {
        let mut last = 0;
        for len in (1..20_000).chain((20..45).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let list = list_of(len);
            assert!(list >= last && list < LISTS, "{len}: {last} then {list}");
            assert!(len > EXACT || list + 1 == len as usize);
            last = list;
        }
        assert_eq!(last, LISTS - 1);
    }
}
