//! Free blocks in their owner's lists and in the page index: adding, removing, cutting and merging.
//!
//! Every request that no cache serves runs this code, so a block that only changes its length stays in the lists where
//! it can.

use super::arena::Arena;
use super::slab::{Block, BlockId};
use crate::cpu::prefetch;

impl Arena {
    /// Puts a free block into its owner's lists.
    pub(crate) fn attach_free(&mut self, id: BlockId) {
        let Block { start, len, owner, .. } = self.slab[id];
        let zone = self.zone_at(start);
        let owner = &mut self.owners[owner as usize];
        owner.free += len;
        owner.sets[zone].insert(&mut self.slab, id);
        if let Some(page) = self.indexed_page(start, len) {
            self.big.insert(page, id);
        }
    }

    /// Takes a free block out of its owner's lists.
    pub(crate) fn detach_free(&mut self, id: BlockId) {
        let Block { start, len, owner, .. } = self.slab[id];
        let zone = self.zone_at(start);
        let owner = &mut self.owners[owner as usize];
        owner.free -= len;
        owner.sets[zone].remove(&mut self.slab, id);
        if let Some(page) = self.indexed_page(start, len) {
            self.big.remove(page);
        }
    }

    /// Moves the borders of a free block that is in the lists, within its zone.
    fn reshape(&mut self, id: BlockId, start: u64, len: u64) {
        let Block { start: old_start, len: old_len, owner, .. } = self.slab[id];
        let zone = self.zone_at(start);
        let owner = &mut self.owners[owner as usize];
        owner.free = owner.free - old_len + len;
        owner.sets[zone].resize(&mut self.slab, id, len);
        self.slab[id].start = start;
        if !self.big.is_current() {
            return;
        }
        let (old, new) = (self.indexed_page(old_start, old_len), self.indexed_page(start, len));
        if old != new {
            old.into_iter().for_each(|page| self.big.remove(page));
            new.into_iter().for_each(|page| self.big.insert(page, id));
        }
    }

    /// Makes the page index current, for code that reads it. It then stays current for as many changes as there are
    /// blocks, so that a rebuild costs each of these changes at most one block.
    pub(crate) fn ensure_page_index(&mut self) {
        if self.big.read(self.slab.len()) {
            return;
        }
        for set in self.owners.iter().filter(|owner| owner.alive).flat_map(|owner| &owner.sets) {
            for id in set.at_least(&self.slab, self.options.page_granules) {
                let Block { start, len, .. } = self.slab[id];
                if let Some(page) = self.indexed_page(start, len) {
                    self.big.set(page, id);
                }
            }
        }
    }

    /// The page under which a free block is in the page index, if it is.
    #[inline]
    fn indexed_page(&self, start: u64, len: u64) -> Option<u64> {
        (len >= self.options.page_granules).then_some(start >> self.page_bits)
    }

    /// Cuts the first `granules` off a longer free block in the lists. Returns the new block, which is in no list.
    pub(crate) fn cut_front(&mut self, id: BlockId, granules: u64) -> BlockId {
        let block = self.slab[id];
        let cut = self.slab.add(Block { len: granules, next: id, ..block });
        self.slab[block.prev].next = cut;
        self.slab[id].prev = cut;
        self.reshape(id, block.start + granules, block.len - granules);
        cut
    }

    /// Adds a free block to the lists, merged with its neighbours on the `sides` (left, right).
    pub(crate) fn merge_free(&mut self, id: BlockId, sides: (bool, bool)) {
        let Block { start, len, prev, next, epoch, .. } = self.slab[id];
        match sides {
            (false, false) => self.attach_free(id),
            (true, false) => {
                self.unlink_block(id);
                self.extend(prev, self.slab[prev].start, len, epoch);
            }
            (false, true) => {
                self.unlink_block(id);
                self.extend(next, start, len, epoch);
            }
            (true, true) => {
                let right = self.slab[next];
                self.detach_free(next);
                self.unlink_block(id);
                self.unlink_block(next);
                self.extend(prev, self.slab[prev].start, len + right.len, epoch.max(right.epoch));
            }
        }
    }

    /// Prefetches what [`Arena::give`] of the live blocks `coming` will read, one step ahead of each.
    pub fn prefetch_give(&self, coming: &[u64]) {
        let block = |place: usize| coming.get(place).and_then(|&start| self.slab.get(self.table.block(start)));
        if let Some(block) = block(3) {
            prefetch(block);
        }
        if let Some(block) = block(1) {
            prefetch(&self.slab[block.prev]);
            prefetch(&self.slab[block.next]);
        }
    }

    /// Adds `more` granules, freed up to `epoch`, to a free block in the lists.
    fn extend(&mut self, id: BlockId, start: u64, more: u64, epoch: u64) {
        let block = &mut self.slab[id];
        block.epoch = block.epoch.max(epoch);
        let len = block.len + more;
        self.reshape(id, start, len);
    }

    /// Removes a block that is in no list from the address order.
    fn unlink_block(&mut self, id: BlockId) {
        let Block { prev, next, .. } = self.slab[id];
        self.slab[prev].next = next;
        self.slab[next].prev = prev;
        self.slab.remove(id);
    }
}
