//! The arena's blocks in address order, and allocation at a given address.

use super::arena::Arena;
use super::slab::{Kind, NONE, Owner};

/// A mapped block, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where the block begins.
    pub start: u64,
    /// The block's length.
    pub granules: u64,
    /// The owner of a free block; `None` for a live one, those in stream caches included.
    pub free: Option<Owner>,
}

impl Arena {
    /// Every mapped block, in address order. The ranges between them are not mapped, or are the old places of chunks
    /// that moved.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let known = |id| (id != NONE).then_some(id);
        let blocks = std::iter::successors(known(self.first_block()), move |&id| known(self.slab[id].next));
        blocks.filter_map(|id| {
            let block = &self.slab[id];
            let free = match block.kind {
                Kind::Live => None,
                Kind::Free => Some(block.owner),
                Kind::Retiring | Kind::Hole => return None,
            };
            Some(Span { start: block.start, granules: block.len, free })
        })
    }

    /// Allocates `granules` at exactly `start`, if `owner` has them free. Returns whether it did.
    pub fn take_at(&mut self, owner: Owner, start: u64, granules: u64) -> bool {
        let end = start + self.min_in_zone(self.zone_at(start), granules);
        let own = self.owners[owner as usize].sets[self.zone_at(start)].all(&self.slab);
        let Some(id) = own.into_iter().find(|&id| self.slab[id].start <= start && end <= self.slab[id].end()) else {
            return false;
        };
        let block = self.carve(id, start, end);
        self.make_live(block);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{IDLE, kit};

    fn arena() -> Arena {
        let mut arena = kit::arena(8, 16, (4, 4));
        let start = kit::new_block(&mut arena, IDLE, 32);
        arena.give(start, IDLE, 0);
        arena
    }

    #[test]
    fn take_at_allocates_at_the_given_address() {
        let mut arena = arena();
        let free: Vec<Span> = arena.spans().collect();
        assert_eq!(free.len(), 1);
        let (start, granules) = (free[0].start, free[0].granules);
        assert!(arena.take_at(IDLE, start + 4, 8));
        let parts: Vec<(u64, u64, bool)> =
            arena.spans().map(|span| (span.start - start, span.granules, span.free.is_none())).collect();
        assert_eq!(parts, [(0, 4, false), (4, 8, true), (12, granules - 12, false)]);
        arena.check().expect("every equation holds");
        assert!(!arena.take_at(IDLE, start + 8, 8), "half of it is given out");
        assert!(!arena.take_at(IDLE, start + granules - 4, 8), "it reaches beyond the free block");
        arena.give(start + 4, IDLE, 0);
        assert_eq!(arena.spans().collect::<Vec<_>>(), free);
        arena.check().expect("every equation holds");
    }
}
