//! The page index: free blocks of a page or more, in address order. Only these can contain a whole chunk.
//!
//! At most one block of that length starts in a page, so each is stored under the page in which it starts. A tree of
//! bits over the pages finds the next block below in a few words; adding and removing touch a word or two.
//!
//! Only plans and trims read the index, and a pool whose free memory serves every request needs neither. So an index
//! that was not read for a while is no longer updated, and rebuilt at the next read.

use super::slab::{BlockId, NONE};

/// Blocks by the page that they start in.
#[derive(Debug)]
pub(crate) struct PageIndex {
    /// By page, valid where the bits are set. Untouched memory is [`NONE`] and costs nothing.
    blocks: Vec<BlockId>,
    /// Bit `i` of a level is set if word `i` of the level below is not zero; on the lowest level, if page `i` has a
    /// block.
    levels: Vec<Vec<u64>>,
    /// Changes that are still applied; 0: the index is not current.
    changes_left: usize,
}

impl PageIndex {
    /// An index for `pages` pages.
    pub fn new(pages: u64) -> Self {
        let pages = pages as usize;
        let mut levels = Vec::new();
        let mut bits = pages.max(1);
        loop {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
            if bits == 1 {
                break;
            }
        }
        Self { blocks: vec![NONE; pages], levels, changes_left: 1 }
    }

    /// Keeps the index current for `changes` more changes. Returns whether it was current; if not, it is empty now and
    /// must be rebuilt.
    pub fn read(&mut self, changes: usize) -> bool {
        let current = self.is_current();
        if !current {
            self.levels.iter_mut().for_each(|level| level.fill(0));
        }
        self.changes_left = changes.max(1);
        current
    }

    pub fn is_current(&self) -> bool {
        self.changes_left > 0
    }

    /// Whether to apply the next change.
    #[inline]
    fn count_change(&mut self) -> bool {
        self.changes_left = self.changes_left.saturating_sub(1);
        self.is_current()
    }

    pub fn insert(&mut self, page: u64, id: BlockId) {
        if self.count_change() {
            self.set(page, id);
        }
    }

    /// Adds a block while the index is rebuilt.
    pub fn set(&mut self, page: u64, id: BlockId) {
        let mut place = page as usize;
        self.blocks[place] = id;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            let was_empty = *word == 0;
            *word |= 1 << (place % 64);
            if !was_empty {
                return;
            }
            place /= 64;
        }
    }

    pub fn remove(&mut self, page: u64) {
        if !self.count_change() {
            return;
        }
        let mut place = page as usize;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            *word &= !(1 << (place % 64));
            if *word != 0 {
                return;
            }
            place /= 64;
        }
    }

    /// The block that starts in this page. pre: the index is current.
    pub fn get(&self, page: u64) -> Option<BlockId> {
        let place = page as usize;
        let is_there = self.levels[0].get(place / 64)? >> (place % 64) & 1 == 1;
        is_there.then(|| self.blocks[place])
    }

    /// The last block that starts in this page or before it. pre: the index is current.
    pub fn last_up_to(&self, page: u64) -> Option<BlockId> {
        self.place_below(page as usize + 1).map(|place| self.blocks[place])
    }

    /// Every block, from the highest address down. pre: the index is current.
    pub fn descending(&self) -> impl Iterator<Item = BlockId> + '_ {
        debug_assert!(self.is_current());
        let first = self.place_below(self.blocks.len());
        std::iter::successors(first, |&place| self.place_below(place)).map(|place| self.blocks[place])
    }

    /// The highest page below `bound` that has a block.
    fn place_below(&self, bound: usize) -> Option<usize> {
        let mut bound = bound;
        for (height, level) in self.levels.iter().enumerate() {
            let last = bound.checked_sub(1)?;
            let bits = level[last / 64] & (u64::MAX >> (63 - last % 64));
            if bits != 0 {
                let top = |word: usize, bits: u64| word * 64 + 63 - bits.leading_zeros() as usize;
                let down = self.levels[..height].iter().rev();
                return Some(down.fold(top(last / 64, bits), |place, level| top(place, level[place])));
            }
            bound = last / 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_an_ordered_map_finds() {
        const PAGES: u64 = 5000;
        let mut index = PageIndex::new(PAGES);
        assert!(index.read(usize::MAX));
        let mut model = std::collections::BTreeMap::new();
        let mut state = 7_u64;
        for step in 1..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Dense for a while, then sparse.
            let page = (state >> 33) % PAGES;
            if (state >> 20) % 16 < if step / 2000 % 2 == 0 { 12 } else { 2 } {
                index.insert(page, step);
                model.insert(page, step);
            } else {
                index.remove(page);
                model.remove(&page);
            }
            let page = (state >> 8) % PAGES;
            assert_eq!(index.last_up_to(page), model.range(..=page).next_back().map(|(_, &id)| id));
            assert_eq!(index.get(page), model.get(&page).copied());
        }
        assert!(index.descending().eq(model.values().rev().copied()));
    }

    #[test]
    fn an_index_that_is_not_read_is_dropped_and_rebuilt() {
        let mut index = PageIndex::new(1000);
        assert!(index.read(3));
        index.insert(10, 1);
        index.insert(700, 2);
        assert!(index.is_current());
        index.remove(10);
        assert!(!index.is_current());
        // The index is not current, so these changes are lost.
        index.insert(20, 3);
        index.remove(700);
        assert!(!index.read(2), "the index was dropped and is empty");
        index.set(20, 3);
        assert!(index.descending().eq([3]) && index.get(700).is_none() && index.get(10).is_none());
        index.insert(30, 4);
        assert!(index.read(2) && index.descending().eq([4, 3]));
    }
}
