//! The merge barrier: memory that a pending fence covers does not merge with memory freed later.
//!
//! Free neighbours merge into one block, which is as new as its newest part. On a stream that frees all the time such a
//! block would always be newer than the last fence that passed, and never become unowned. So once another stream waits
//! for a fence, the blocks that it covers do not merge with later ones until it passes.

use super::arena::Arena;
use super::slab::{Block, Kind, Owner};

impl Arena {
    /// Keeps what `owner` freed up to `epoch` from merging with later frees, until it is promoted or the barrier is
    /// cleared. Replaces an earlier barrier.
    pub fn set_merge_barrier(&mut self, owner: Owner, epoch: u64) {
        self.move_merge_barrier(owner, epoch.saturating_add(1));
    }

    /// Removes the barrier: the owner's own request may use all of its memory.
    pub fn clear_merge_barrier(&mut self, owner: Owner) {
        self.move_merge_barrier(owner, 0);
    }

    fn move_merge_barrier(&mut self, owner: Owner, epoch: u64) {
        let before = std::mem::replace(&mut self.owners[owner as usize].merge_barrier, epoch);
        if before == 0 || before == epoch {
            return;
        }
        for zone in 0..2 {
            for id in self.owners[owner as usize].sets[zone].all(&self.slab) {
                let Block { prev, next, kind, len, .. } = self.slab[id];
                // A block that was merged is not in the lists any more.
                if kind == Kind::Free && len > 0 && (self.can_join(prev, id) || self.can_join(id, next)) {
                    self.detach(id);
                    self.attach_merged(id);
                }
            }
        }
    }

    /// The fence of `epoch` has passed.
    pub(crate) fn lift_merge_barrier(&mut self, owner: Owner, epoch: u64) {
        let merge_barrier = &mut self.owners[owner as usize].merge_barrier;
        if epoch.saturating_add(1) >= *merge_barrier {
            *merge_barrier = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::IDLE;
    use crate::arena::kit::{arena, new_block};

    /// An arena with one owner, and six neighbouring live blocks.
    fn six_blocks() -> (Arena, Owner, Vec<u64>) {
        let mut arena = arena(64, 64, (16, 8));
        let owner = arena.owner_add(false);
        let start = new_block(&mut arena, owner, 6 * 64);
        arena.give(start, owner, 0);
        let blocks = (0..6).map(|_| arena.take(owner, 64).expect("it is free")).collect();
        (arena, owner, blocks)
    }

    #[test]
    fn later_frees_do_not_merge_with_memory_under_a_fence() {
        let (mut arena, owner, blocks) = six_blocks();
        for (epoch, &block) in blocks.iter().enumerate() {
            arena.give(block, owner, epoch as u64);
            if epoch == 2 {
                arena.set_merge_barrier(owner, 1);
                arena.set_merge_barrier(owner, 2);
            }
            arena.check().expect("every equation holds");
        }
        assert_eq!((arena.free_blocks(), arena.largest_free()), (2, 3 * 64));
        arena.promote(owner, 1);
        assert_eq!((arena.owner_free(owner), arena.owner_free(IDLE)), (6 * 64, 0), "the block has newer parts");
        arena.promote(owner, 2);
        assert_eq!((arena.owner_free(owner), arena.owner_free(IDLE)), (3 * 64, 3 * 64));
        arena.check().expect("every equation holds");
        // The barrier ended with what it protected.
        let again = arena.take(owner, 64).expect("it is free");
        arena.give(again, owner, 100);
        arena.check().expect("every equation holds");
    }

    #[test]
    fn clearing_the_barrier_merges_the_blocks() {
        let (mut arena, owner, blocks) = six_blocks();
        for (epoch, &block) in blocks.iter().enumerate() {
            arena.give(block, owner, epoch as u64);
            if epoch >= 2 {
                arena.set_merge_barrier(owner, 2);
            }
        }
        assert_eq!(arena.take(owner, 6 * 64), None);
        arena.clear_merge_barrier(owner);
        arena.check().expect("every equation holds");
        assert_eq!((arena.free_blocks(), arena.largest_free()), (1, 6 * 64));
        arena.promote(owner, 4);
        assert_eq!(arena.owner_free(IDLE), 0, "one block is as new as its newest part");
    }
}
