//! Ownership of free memory: refills for small requests, promotion to unowned memory, transfer between owners.

use super::arena::Arena;
use super::slab::{Block, BlockId, IDLE, Kind, NONE, Owner};

impl Arena {
    /// The most granules that a refill for small requests takes from unowned memory: 256 KiB.
    pub(crate) const REFILL: u64 = 512;
    /// A refill begins and ends at a multiple of this.
    const REFILL_ALIGNMENT: u64 = 8;

    /// Makes unowned memory an owner's, for a small request and the next ones, so that different owners are served at
    /// different addresses. The table's cells for blocks of up to 64 KiB of two threads are then never on the same
    /// cache line, nor on the one that is fetched with it.
    pub(crate) fn refill_from_unowned(&mut self, owner: Owner, granules: u64) -> Option<BlockId> {
        if owner == IDLE || self.zone_for(granules) != 0 {
            return None;
        }
        let found =
            self.owners[IDLE as usize].sets[0].best_fit(&self.slab, granules + 2 * (Self::REFILL_ALIGNMENT - 1))?;
        let block = self.slab[found];
        let start = block.start.next_multiple_of(Self::REFILL_ALIGNMENT);
        let end = block.end() / Self::REFILL_ALIGNMENT * Self::REFILL_ALIGNMENT;
        let most = (start + granules.max(Self::REFILL)).next_multiple_of(Self::REFILL_ALIGNMENT);
        self.reassign(found, start, end.min(most), owner, 0);
        self.owners[owner as usize].sets[0].best_fit(&self.slab, granules)
    }

    /// Makes everything `owner` freed up to `epoch` unowned: all its uses are proven to be over.
    pub fn promote(&mut self, owner: Owner, epoch: u64) {
        self.reassign_all(owner, IDLE, epoch, 0, |_, _| true);
        self.lift_merge_barrier(owner, epoch);
    }

    /// Transfers memory that `from` freed up to `epoch` to `to`, which now runs after those frees: the best fit for
    /// `granules` if one block has it, `whole` or cut to length, else every block that is useful to `to`. Returns the
    /// granules transferred.
    pub fn transfer(&mut self, from: Owner, to: Owner, epoch: u64, to_epoch: u64, granules: u64, whole: bool) -> u64 {
        if let Some(id) = self.best_fit_up_to(from, epoch, granules) {
            let Block { start, len, .. } = self.slab[id];
            let moved = if whole { len } else { granules };
            self.reassign(id, start, start + moved, to, to_epoch);
            return moved;
        }
        self.reassign_all(from, to, epoch, to_epoch, |arena, id| arena.is_useful_to(id, to))
    }

    /// Whether [`transfer`](Self::transfer) would move anything from `from` to `to`.
    #[must_use]
    pub fn can_transfer(&self, from: Owner, to: Owner, granules: u64) -> bool {
        if self.owner_free(from) == 0 {
            return false;
        }
        let sets = &self.owners[from as usize].sets;
        sets[self.zone_for(granules)].best_fit(&self.slab, granules).is_some()
            || sets.iter().any(|set| set.all(&self.slab).into_iter().any(|id| self.is_useful_to(id, to)))
    }

    /// Whether a free block that is too short is useful to `to`: it contains a whole chunk, which can move, or lies
    /// beside memory that `to` may use. Any other block stays with its owner, where it becomes unowned sooner: a
    /// transfer counts as a new free.
    fn is_useful_to(&self, id: BlockId, to: Owner) -> bool {
        let block = &self.slab[id];
        let joins = |side: BlockId| side != NONE && self.slab[side].kind == Kind::Free && self.usable(side, to);
        self.has_whole_chunk(block) || joins(block.prev) || joins(block.next)
    }

    fn has_whole_chunk(&self, block: &Block) -> bool {
        let (from, to) = (block.start.div_ceil(self.options.page_granules), block.end() / self.options.page_granules);
        if from >= to {
            return false;
        }
        let first = self.chunks.get(self.chunks.at(from));
        let next = if first.page < from { first.end() } else { from };
        next < to && self.chunks.get(self.chunks.at(next)).end() <= to
    }

    /// Whether `owner` has a free block of at least `granules` that was freed up to `epoch`.
    #[must_use]
    pub fn has_up_to(&self, owner: Owner, epoch: u64, granules: u64) -> bool {
        self.best_fit_up_to(owner, epoch, granules).is_some()
    }

    /// The best fit among what was freed up to `epoch`.
    fn best_fit_up_to(&self, owner: Owner, epoch: u64, granules: u64) -> Option<BlockId> {
        let set = &self.owners[owner as usize].sets[self.zone_for(granules)];
        let best = set.best_fit(&self.slab, granules)?;
        if self.slab[best].epoch <= epoch {
            return Some(best);
        }
        let fits = |&id: &BlockId| self.slab[id].len >= granules && self.slab[id].epoch <= epoch;
        set.at_least(&self.slab, granules).into_iter().filter(fits).min_by_key(|&id| self.slab[id].len)
    }

    fn reassign_all(
        &mut self,
        from: Owner,
        to: Owner,
        epoch: u64,
        to_epoch: u64,
        which: impl Fn(&Self, BlockId) -> bool,
    ) -> u64 {
        let mut passed = 0;
        for zone in 0..2 {
            for id in self.owners[from as usize].sets[zone].all(&self.slab) {
                let block = self.slab[id];
                // A merge may have absorbed a block of the list; then it is no longer a free block of `from`.
                if block.kind == Kind::Free && block.owner == from && block.epoch <= epoch && which(self, id) {
                    passed += block.len;
                    self.change_owner(id, to, to_epoch);
                }
            }
        }
        passed
    }

    fn change_owner(&mut self, id: BlockId, to: Owner, epoch: u64) {
        let block = self.slab[id];
        self.reassign(id, block.start, block.end(), to, epoch);
    }

    /// Makes a part of a free block `to`'s.
    pub(crate) fn reassign(&mut self, id: BlockId, start: u64, end: u64, to: Owner, epoch: u64) {
        let part = self.carve(id, start, end);
        (self.slab[part].owner, self.slab[part].epoch) = (to, epoch);
        self.attach_merged(part);
    }

    /// Moves to `owner` the parts of unowned blocks that share a chunk with one of its own: a chunk can move only if it
    /// lies in one block. Less than a chunk changes owner at each border.
    pub fn complete_chunks(&mut self, owner: Owner, epoch: u64) {
        if self.owners[owner as usize].private || self.owners[IDLE as usize].free == 0 {
            return;
        }
        for zone in 0..2 {
            for id in self.owners[owner as usize].sets[zone].all(&self.slab) {
                // A merge may have absorbed it.
                if (self.slab[id].kind, self.slab[id].owner) == (Kind::Free, owner) && self.slab[id].len > 0 {
                    self.complete_border(id, false, epoch);
                    self.complete_border(id, true, epoch);
                }
            }
        }
    }

    /// The right border comes before the left one: a merge on the left removes `id`.
    fn complete_border(&mut self, id: BlockId, left: bool, epoch: u64) {
        let block = self.slab[id];
        let side = if left { block.prev } else { block.next };
        if side == NONE || (self.slab[side].kind, self.slab[side].owner) != (Kind::Free, IDLE) {
            return;
        }
        let page_granules = self.options.page_granules;
        let page = if left { block.start / page_granules } else { (block.end() - 1) / page_granules };
        let chunk = self.chunks.get(self.chunks.at(page));
        let (from, to) = (chunk.page * page_granules, chunk.end() * page_granules);
        let (from, to) = (from.max(self.slab[side].start), to.min(self.slab[side].end()));
        if from < to {
            self.reassign(side, from, to, block.owner, epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::arena::kit::{arena, new_block};

    #[test]
    fn small_blocks_of_two_owners_share_no_cache_line_of_the_table() {
        let mut arena = arena(4096, 64, (16, 512));
        let owners = [arena.owner_add(false), arena.owner_add(false)];
        let mut live: Vec<(u64, usize)> = vec![(new_block(&mut arena, owners[0], 3), 0)];
        // What the first owner frees is unowned at once, in pieces of all lengths between its live blocks.
        for step in 0..600_u64 {
            let which = step as usize % 2;
            if let Some(start) = arena.take(owners[which], 1 + step % 13) {
                live.push((start, which));
            }
            if step % 3 == 0 {
                let (start, which) = live.swap_remove(step as usize * 7 % live.len());
                arena.give(start, owners[which], 0);
                arena.promote(owners[which], 0);
            }
            arena.check().expect("every equation holds");
        }
        let lines = |of| live.iter().filter(move |&&(_, which)| which == of).map(|&(start, _)| start / 8);
        assert!(lines(0).count() > 100 && lines(1).count() > 100);
        assert!(lines(0).all(|line| lines(1).all(|other| line != other)));
    }

    #[test]
    fn of_short_blocks_only_useful_ones_are_transferred() {
        let mut arena = arena(64, 64, (0, 0));
        let [from, to] = [(); 2].map(|()| arena.owner_add(false));
        let start = new_block(&mut arena, from, 6 * 64);
        arena.give(start, from, 0);
        // Eight blocks of three quarters of a page, in six chunks of a page.
        let blocks: Vec<u64> = (0..8).filter_map(|_| arena.take(from, 48)).collect();
        assert_eq!(blocks, (0..8).map(|number| start + number * 48).collect::<Vec<_>>());
        arena.give(blocks[1], from, 0);
        assert!(!arena.can_transfer(from, to, 64), "it contains no whole chunk, and lies beside no usable memory");
        assert!(arena.can_transfer(from, to, 48), "it fits");
        assert_eq!(arena.transfer(from, to, 0, 0, 64, true), 0);

        arena.give(blocks[2], to, 0);
        assert_eq!(arena.transfer(from, to, 0, 0, 100, true), 48, "together they are longer");
        assert_eq!(arena.owner_free(to), 96);
        arena.give(blocks[4], from, 0);
        arena.give(blocks[5], from, 0);
        arena.give(blocks[7], from, 0);
        assert_eq!(
            arena.transfer(from, to, 0, 0, 100, true),
            96,
            "the pair contains a whole chunk; the last block does not"
        );
        assert_eq!((arena.owner_free(to), arena.owner_free(from)), (192, 48));
        arena.check().expect("every equation holds");
    }
}
