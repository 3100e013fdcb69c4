//! A free block's place in its owner's lists and in the index of pages, as it comes and goes, gives a part away or gets one.
//!
//! Every request that no cache serves takes these steps. What stays true of a block that changes its length is left as it is.

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
        if !self.big.is_kept() {
            return;
        }
        let (old, new) = (self.indexed_page(old_start, old_len), self.indexed_page(start, len));
        if old != new {
            old.into_iter().for_each(|page| self.big.remove(page));
            new.into_iter().for_each(|page| self.big.insert(page, id));
        }
    }

    /// To be called by who reads the index of pages: makes it anew if it is not kept. It takes in as many changes from now on as
    /// there are blocks, so what is made anew costs each change since then no more than a block.
    pub(crate) fn know_pages(&mut self) {
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

    /// The place in the index of pages of a free block that has one.
    #[inline]
    fn indexed_page(&self, start: u64, len: u64) -> Option<u64> {
        (len >= self.options.page_granules).then_some(start >> self.page_bits)
    }

    /// Cuts the first `granules` off a free block that is in the lists, and longer: the new block, in none.
    pub(crate) fn cut_front(&mut self, id: BlockId, granules: u64) -> BlockId {
        let block = self.slab[id];
        let cut = self.slab.add(Block { len: granules, next: id, ..block });
        self.slab[block.prev].next = cut;
        self.slab[id].prev = cut;
        self.reshape(id, block.start + granules, block.len - granules);
        cut
    }

    /// Puts a free block that is in no list into those of its owner, as one with the neighbours on the `sides`, left and right, that it joins.
    pub(crate) fn merge_free(&mut self, id: BlockId, sides: (bool, bool)) {
        let Block { start, len, prev, next, epoch, .. } = self.slab[id];
        match sides {
            (false, false) => self.attach_free(id),
            (true, false) => {
                self.leave_out(id);
                self.extend(prev, self.slab[prev].start, len, epoch);
            }
            (false, true) => {
                self.leave_out(id);
                self.extend(next, start, len, epoch);
            }
            (true, true) => {
                let right = self.slab[next];
                self.detach_free(next);
                self.leave_out(id);
                self.leave_out(next);
                self.extend(prev, self.slab[prev].start, len + right.len, epoch.max(right.epoch));
            }
        }
    }

    /// Fetches what [`Arena::give`] of the live blocks that are `coming` will look at, into the cache, a step for each.
    pub fn await_give(&self, coming: &[u64]) {
        let block = |place: usize| coming.get(place).and_then(|&start| self.slab.get(self.table.block(start)));
        if let Some(block) = block(3) {
            prefetch(block);
        }
        if let Some(block) = block(1) {
            prefetch(&self.slab[block.prev]);
            prefetch(&self.slab[block.next]);
        }
    }

    /// A free block that is in the lists gets `more` granules, which were freed up to `epoch`.
    fn extend(&mut self, id: BlockId, start: u64, more: u64, epoch: u64) {
        let block = &mut self.slab[id];
        block.epoch = block.epoch.max(epoch);
        let len = block.len + more;
        self.reshape(id, start, len);
    }

    /// Takes a block that is in no list out of the order of addresses.
    fn leave_out(&mut self, id: BlockId) {
        let Block { prev, next, .. } = self.slab[id];
        self.slab[prev].next = next;
        self.slab[next].prev = prev;
        self.slab.remove(id);
    }
}
