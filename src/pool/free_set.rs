//! Best fit over one owner's free blocks in one zone.
//!
//! Up to [`EXACT`] grains there is one list per length and a bitmap of the lists that hold anything, so the
//! best fit is found with a few word scans. Longer blocks are few and sit in an ordered set.

use std::collections::BTreeSet;

use super::block::{BlockId, NONE, Slab};

/// Lengths with a list of their own: up to 1 MiB.
const EXACT: usize = 2048;
const WORDS: usize = EXACT / 64;

#[derive(Debug)]
pub(super) struct FreeSet {
    /// Head of the list of blocks of length `i + 1`.
    heads: Box<[BlockId]>,
    /// Bit `i`: list `i` holds something.
    bits: [u64; WORDS],
    /// Bit `w`: word `w` of `bits` is not zero.
    summary: u64,
    /// Longer blocks by length, then address.
    long: BTreeSet<(u64, u64, BlockId)>,
    count: usize,
}

impl Default for FreeSet {
    fn default() -> Self {
        Self {
            heads: vec![NONE; EXACT].into_boxed_slice(),
            bits: [0; WORDS],
            summary: 0,
            long: BTreeSet::new(),
            count: 0,
        }
    }
}

const fn list_of(len: u64) -> Option<usize> {
    if len as usize <= EXACT { Some(len as usize - 1) } else { None }
}

impl FreeSet {
    pub fn insert(&mut self, slab: &mut Slab, id: BlockId) {
        self.count += 1;
        let len = slab[id].len;
        let Some(list) = list_of(len) else {
            self.long.insert((len, slab[id].start, id));
            return;
        };
        let head = self.heads[list];
        slab[id].link_prev = NONE;
        slab[id].link_next = head;
        if head != NONE {
            slab[head].link_prev = id;
        }
        self.heads[list] = id;
        self.bits[list / 64] |= 1 << (list % 64);
        self.summary |= 1 << (list / 64);
    }

    pub fn remove(&mut self, slab: &mut Slab, id: BlockId) {
        self.count -= 1;
        let block = slab[id];
        let Some(list) = list_of(block.len) else {
            self.long.remove(&(block.len, block.start, id));
            return;
        };
        if block.link_next != NONE {
            slab[block.link_next].link_prev = block.link_prev;
        }
        if block.link_prev != NONE {
            slab[block.link_prev].link_next = block.link_next;
            return;
        }
        self.heads[list] = block.link_next;
        if block.link_next == NONE {
            self.bits[list / 64] &= !(1 << (list % 64));
            if self.bits[list / 64] == 0 {
                self.summary &= !(1 << (list / 64));
            }
        }
    }

    /// The shortest block of at least `len` grains.
    pub fn best_fit(&self, len: u64) -> Option<BlockId> {
        if let Some(list) = list_of(len)
            && let Some(found) = self.first_list_from(list)
        {
            return Some(self.heads[found]);
        }
        self.long.range((len, 0, 0)..).next().map(|&(_, _, id)| id)
    }

    fn first_list_from(&self, list: usize) -> Option<usize> {
        let word = list / 64;
        let here = self.bits[word] & (u64::MAX << (list % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = if word + 1 == 64 { 0 } else { self.summary & (u64::MAX << (word + 1)) };
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
        if let Some(&(len, _, _)) = self.long.last() {
            return len;
        }
        if self.summary == 0 {
            return 0;
        }
        let word = 63 - self.summary.leading_zeros() as usize;
        let list = word * 64 + 63 - self.bits[word].leading_zeros() as usize;
        slab[self.heads[list]].len
    }

    /// Every block in the set, in no useful order.
    pub fn all(&self, slab: &Slab) -> Vec<BlockId> {
        let mut found: Vec<BlockId> = self.long.iter().map(|&(_, _, id)| id).collect();
        let mut word_bits = self.summary;
        while word_bits != 0 {
            let word = word_bits.trailing_zeros() as usize;
            word_bits &= word_bits - 1;
            let mut bits = self.bits[word];
            while bits != 0 {
                let mut id = self.heads[word * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                while id != NONE {
                    found.push(id);
                    id = slab[id].link_next;
                }
            }
        }
        found
    }

    /// The blocks longer than the exact lists reach, shortest first.
    pub fn long(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.long.iter().map(|&(_, _, id)| id)
    }
}
