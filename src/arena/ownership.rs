//! Ownership of free memory: refills for small requests, promotion to unowned memory, transfer between owners.

use super::arena::Arena;
use super::slab::{Block, BlockId, IDLE, Kind, NONE, Owner};

impl Arena {
    /// Granules of unowned memory that a refill for small requests takes at most: 256 KiB.
    pub(crate) const REFILL: u64 = 512;
    /// What it takes begins and ends at a multiple of so many.
    const REFILL_ALIGNMENT: u64 = 8;

    /// Makes nobody's memory an owner's, for a small request and the next ones: they are served beside it, other owners' elsewhere. What two
    /// threads write into the table for blocks of up to 64 KiB there is never on one cache line, nor on the one that is fetched along.
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
        self.hand_over(found, start, end.min(most), owner, 0);
        self.owners[owner as usize].sets[0].best_fit(&self.slab, granules)
    }

    /// Everything `owner` freed up to `epoch` has been proven unused: it becomes anybody's.
    pub fn promote(&mut self, owner: Owner, epoch: u64) {
        self.pass_on(owner, IDLE, epoch, 0, |_, _| true);
        self.lift_merge_barrier(owner, epoch);
    }

    /// `to` now runs after everything `from` freed up to `epoch`, so it may use that memory: the best fit
    /// for `granules` if one block has it, `whole` or only so much of it, else all that helps `to`. Returns the granules that
    /// changed hands.
    pub fn transfer(&mut self, from: Owner, to: Owner, epoch: u64, to_epoch: u64, granules: u64, whole: bool) -> u64 {
        if let Some(id) = self.best_fit_up_to(from, epoch, granules) {
            let Block { start, len, .. } = self.slab[id];
            let moved = if whole { len } else { granules };
            self.hand_over(id, start, start + moved, to, to_epoch);
            return moved;
        }
        self.pass_on(from, to, epoch, to_epoch, |arena, id| arena.helps(id, to))
    }

    /// Whether `from` has anything that [`transfer`](Self::transfer) would give to `to`.
    #[must_use]
    pub fn can_transfer(&self, from: Owner, to: Owner, granules: u64) -> bool {
        if self.owner_free(from) == 0 {
            return false;
        }
        let sets = &self.owners[from as usize].sets;
        sets[self.zone_for(granules)].best_fit(&self.slab, granules).is_some()
            || sets.iter().any(|set| set.all(&self.slab).into_iter().any(|id| self.helps(id, to)))
    }

    /// Whether a free block that is too short helps `to` to make room: a whole chunk in it can move, or it lies beside what `to` may use.
    /// Any other stays with whom it has: it becomes anybody's sooner than where it counts as freed anew.
    fn helps(&self, id: BlockId, to: Owner) -> bool {
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

    /// Whether `owner` has a block of so many granules that was freed up to `epoch`.
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

    fn pass_on(
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
                // A merge may have swallowed a block of the list: then it is no longer `from`'s.
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
        self.hand_over(id, block.start, block.end(), to, epoch);
    }

    /// Makes a part of a free block `to`'s.
    pub(crate) fn hand_over(&mut self, id: BlockId, start: u64, end: u64, to: Owner, epoch: u64) {
        let part = self.carve(id, start, end);
        (self.slab[part].owner, self.slab[part].epoch) = (to, epoch);
        self.attach_merged(part);
    }

    /// Hands `owner` the parts of nobody's free blocks that share a chunk with one of its own: a chunk can move only
    /// if it lies in one block. Less than a chunk changes hands at each border.
    pub fn complete_chunks(&mut self, owner: Owner, epoch: u64) {
        if self.owners[owner as usize].private || self.owners[IDLE as usize].free == 0 {
            return;
        }
        for zone in 0..2 {
            for id in self.owners[owner as usize].sets[zone].all(&self.slab) {
                // A merge may have swallowed it.
                if (self.slab[id].kind, self.slab[id].owner) == (Kind::Free, owner) && self.slab[id].len > 0 {
                    self.complete_border(id, false, epoch);
                    self.complete_border(id, true, epoch);
                }
            }
        }
    }

    /// The right border before the left one: joining on the left ends the life of `id`.
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
            self.hand_over(side, from, to, block.owner, epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::arena::kit::{arena, new_block};

    #[test]
    fn small_blocks_of_two_owners_are_on_different_lines_of_the_table() {
        let mut arena = arena(4096, 64, (16, 512));
        let owners = [arena.owner_add(false), arena.owner_add(false)];
        let mut live: Vec<(u64, usize)> = vec![(new_block(&mut arena, owners[0], 3), 0)];
        // What the first gives back is anybody's at once, in pieces of all lengths between blocks that it keeps.
        for step in 0..600_u64 {
            let who = step as usize % 2;
            if let Some(start) = arena.take(owners[who], 1 + step % 13) {
                live.push((start, who));
            }
            if step % 3 == 0 {
                let (start, who) = live.swap_remove(step as usize * 7 % live.len());
                arena.give(start, owners[who], 0);
                arena.promote(owners[who], 0);
            }
            arena.check().expect("every equation holds");
        }
        let lines = |of| live.iter().filter(move |&&(_, who)| who == of).map(|&(start, _)| start / 8);
        assert!(lines(0).count() > 100 && lines(1).count() > 100);
        assert!(lines(0).all(|line| lines(1).all(|other| line != other)));
    }

    #[test]
    fn of_blocks_that_are_too_short_only_those_are_lent_that_help() {
        let mut arena = arena(64, 64, (0, 0));
        let [lender, asker] = [(); 2].map(|()| arena.owner_add(false));
        let start = new_block(&mut arena, lender, 6 * 64);
        arena.give(start, lender, 0);
        // Eight blocks of three quarters of a page, in six chunks of a page.
        let blocks: Vec<u64> = (0..8).filter_map(|_| arena.take(lender, 48)).collect();
        assert_eq!(blocks, (0..8).map(|number| start + number * 48).collect::<Vec<_>>());
        arena.give(blocks[1], lender, 0);
        assert!(!arena.can_transfer(lender, asker, 64), "no whole chunk lies in it, and nobody's memory beside it");
        assert!(arena.can_transfer(lender, asker, 48), "it fits");
        assert_eq!(arena.transfer(lender, asker, 0, 0, 64, true), 0);

        arena.give(blocks[2], asker, 0);
        assert_eq!(arena.transfer(lender, asker, 0, 0, 100, true), 48, "together they are longer");
        assert_eq!(arena.owner_free(asker), 96);
        arena.give(blocks[4], lender, 0);
        arena.give(blocks[5], lender, 0);
        arena.give(blocks[7], lender, 0);
        assert_eq!(arena.transfer(lender, asker, 0, 0, 100, true), 96, "with a whole chunk; the last has none");
        assert_eq!((arena.owner_free(asker), arena.owner_free(lender)), (192, 48));
        arena.check().expect("every equation holds");
    }
}
