//! Free blocks of a page or more, in address order: the only ones that a whole chunk can lie in.
//!
//! Of blocks that long only one can start in a page, so each has the place of the page in which it starts. A tree of
//! bits over the places finds the next one below in a few words; adding and removing touch a word or two.
//!
//! Only what makes room looks here, and where free memory serves every request nobody does. So an index that was not read for a
//! while is no longer kept, and made anew for the next who reads it.

use super::slab::{BlockId, NONE};

/// Blocks by the page that they start in.
#[derive(Debug)]
pub(crate) struct PageIndex {
    /// By page, where the bits say that there is one; untouched memory, which is [`NONE`], costs nothing.
    blocks: Vec<BlockId>,
    /// Bit `i` of a level: word `i` of the level below is not zero; of the lowest: there is a block at place `i`.
    levels: Vec<Vec<u64>>,
    /// So many changes are still taken in; 0: it is not kept.
    patience: usize,
}

impl PageIndex {
    /// For so many pages.
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
        Self { blocks: vec![NONE; pages], levels, patience: 1 }
    }

    /// Whether it is kept now: it will be for so many changes more. If not, it is empty now.
    pub fn read(&mut self, patience: usize) -> bool {
        let kept = self.is_kept();
        if !kept {
            self.levels.iter_mut().for_each(|level| level.fill(0));
        }
        self.patience = patience.max(1);
        kept
    }

    pub fn is_kept(&self) -> bool {
        self.patience > 0
    }

    /// Whether the next change is to be taken in.
    #[inline]
    fn takes_in(&mut self) -> bool {
        self.patience = self.patience.saturating_sub(1);
        self.is_kept()
    }

    pub fn insert(&mut self, page: u64, id: BlockId) {
        if self.takes_in() {
            self.set(page, id);
        }
    }

    /// Puts a block in that was in no index.
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
        if !self.takes_in() {
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

    /// The block that starts in this page. pre: it is kept.
    pub fn get(&self, page: u64) -> Option<BlockId> {
        let place = page as usize;
        let is_there = self.levels[0].get(place / 64)? >> (place % 64) & 1 == 1;
        is_there.then(|| self.blocks[place])
    }

    /// The last block that starts in this page or before it. pre: it is kept.
    pub fn last_up_to(&self, page: u64) -> Option<BlockId> {
        self.place_below(page as usize + 1).map(|place| self.blocks[place])
    }

    /// Every block, from the highest address down. pre: it is kept.
    pub fn descending(&self) -> impl Iterator<Item = BlockId> + '_ {
        debug_assert!(self.is_kept());
        let first = self.place_below(self.blocks.len());
        std::iter::successors(first, |&place| self.place_below(place)).map(|place| self.blocks[place])
    }

    /// The highest taken place below `bound`.
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
            let asked = (state >> 8) % PAGES;
            assert_eq!(index.last_up_to(asked), model.range(..=asked).next_back().map(|(_, &id)| id));
            assert_eq!(index.get(asked), model.get(&asked).copied());
        }
        assert!(index.descending().eq(model.values().rev().copied()));
    }

    #[test]
    fn is_kept_as_long_as_it_is_read_and_made_anew_after_that() {
        let mut index = PageIndex::new(1000);
        assert!(index.read(3));
        index.insert(10, 1);
        index.insert(700, 2);
        assert!(index.is_kept());
        index.remove(10);
        assert!(!index.is_kept());
        // Nobody hears of these.
        index.insert(20, 3);
        index.remove(700);
        assert!(!index.read(2), "it says so, and is empty");
        index.set(20, 3);
        assert!(index.descending().eq([3]) && index.get(700).is_none() && index.get(10).is_none());
        index.insert(30, 4);
        assert!(index.read(2) && index.descending().eq([4, 3]));
    }
}
