//! Keeping what a pending fence covers apart from what is freed after it.
//!
//! Free neighbours become one block, and that is as new as its newest part. Where a stream frees and frees, a block that grew
//! so would never be older than a fence that has passed, and the stream's memory never anybody else's. So once somebody waits
//! for a fence, what it covers is sealed: it joins nothing that is freed later.

use super::arena::Arena;
use super::slab::{Block, Kind, Owner};

impl Arena {
    /// What `owner` freed up to `epoch` joins nothing that it frees later, until it is promoted or unsealed. Ends an earlier seal.
    pub fn seal(&mut self, owner: Owner, epoch: u64) {
        self.set_seal(owner, epoch.saturating_add(1));
    }

    /// Ends that: the owner itself may use all of its memory as one.
    pub fn unseal(&mut self, owner: Owner) {
        self.set_seal(owner, 0);
    }

    fn set_seal(&mut self, owner: Owner, epoch: u64) {
        let before = std::mem::replace(&mut self.owners[owner as usize].sealed, epoch);
        if before == 0 || before == epoch {
            return;
        }
        for zone in 0..2 {
            for id in self.owners[owner as usize].sets[zone].all(&self.slab) {
                let Block { prev, next, kind, len, .. } = self.slab[id];
                // One that was joined before is no free block any more.
                if kind == Kind::Free && len > 0 && (self.can_join(prev, id) || self.can_join(id, next)) {
                    self.detach(id);
                    self.attach_merged(id);
                }
            }
        }
    }

    /// What a fence up to `epoch` covers is no longer waited for.
    pub(crate) fn unseal_up_to(&mut self, owner: Owner, epoch: u64) {
        let sealed = &mut self.owners[owner as usize].sealed;
        if epoch.saturating_add(1) >= *sealed {
            *sealed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::IDLE;
    use crate::arena::kit::{arena, new_block};

    /// An arena with one owner, and six neighbouring blocks that he has.
    fn six_blocks() -> (Arena, Owner, Vec<u64>) {
        let mut arena = arena(64, 64, (16, 8));
        let owner = arena.owner_add(false);
        let start = new_block(&mut arena, owner, 6 * 64);
        arena.give(start, owner, 0);
        let blocks = (0..6).map(|_| arena.take(owner, 64).expect("it is free")).collect();
        (arena, owner, blocks)
    }

    #[test]
    fn what_is_freed_later_leaves_what_a_fence_covers_as_it_is() {
        let (mut arena, owner, blocks) = six_blocks();
        for (epoch, &block) in blocks.iter().enumerate() {
            arena.give(block, owner, epoch as u64);
            if epoch == 2 {
                arena.seal(owner, 1);
                arena.seal(owner, 2);
            }
            arena.check().expect("every equation holds");
        }
        assert_eq!((arena.free_blocks(), arena.largest_free()), (2, 3 * 64));
        arena.promote(owner, 1);
        assert_eq!((arena.owner_free(owner), arena.owner_free(IDLE)), (6 * 64, 0), "the block has newer parts");
        arena.promote(owner, 2);
        assert_eq!((arena.owner_free(owner), arena.owner_free(IDLE)), (3 * 64, 3 * 64));
        arena.check().expect("every equation holds");
        // The seal is gone with what it held.
        let again = arena.take(owner, 64).expect("it is free");
        arena.give(again, owner, 100);
        arena.check().expect("every equation holds");
    }

    #[test]
    fn unsealed_an_owner_has_one_block_again() {
        let (mut arena, owner, blocks) = six_blocks();
        for (epoch, &block) in blocks.iter().enumerate() {
            arena.give(block, owner, epoch as u64);
            if epoch >= 2 {
                arena.seal(owner, 2);
            }
        }
        assert_eq!(arena.take(owner, 6 * 64), None);
        arena.unseal(owner);
        arena.check().expect("every equation holds");
        assert_eq!((arena.free_blocks(), arena.largest_free()), (1, 6 * 64));
        arena.promote(owner, 4);
        assert_eq!(arena.owner_free(IDLE), 0, "one block is as new as its newest part");
    }
}
