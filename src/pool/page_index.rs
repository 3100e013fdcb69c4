//! Free blocks of a page or more, in address order: the only ones that a whole chunk can lie in.
//!
//! Of blocks that long only one can start in a page, so each has the place of the page in which it starts. A tree of
//! bits over the places finds the next one below in a few words; adding and removing touch a word or two.

use super::block::{BlockId, NONE};

/// Blocks by the page that they start in.
#[derive(Debug)]
pub(super) struct PageIndex {
    /// By page; untouched memory, which is [`NONE`], costs nothing.
    blocks: Vec<BlockId>,
    /// Bit `i` of a level: word `i` of the level below is not zero; of the lowest: there is a block at place `i`.
    levels: Vec<Vec<u64>>,
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
        Self { blocks: vec![NONE; pages], levels }
    }

    pub fn insert(&mut self, page: u64, id: BlockId) {
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
        let mut place = page as usize;
        self.blocks[place] = NONE;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            *word &= !(1 << (place % 64));
            if *word != 0 {
                return;
            }
            place /= 64;
        }
    }

    /// The block that starts in this page.
    pub fn get(&self, page: u64) -> Option<BlockId> {
        self.blocks.get(page as usize).copied().filter(|&id| id != NONE)
    }

    /// The last block that starts in this page or before it.
    pub fn last_up_to(&self, page: u64) -> Option<BlockId> {
        self.place_below(page as usize + 1).and_then(|place| self.get(place as u64))
    }

    /// Every block, from the highest address down.
    pub fn descending(&self) -> impl Iterator<Item = BlockId> + '_ {
        let first = self.place_below(self.blocks.len());
        let places = std::iter::successors(first, |&place| self.place_below(place));
        places.filter_map(|place| self.get(place as u64))
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
}
