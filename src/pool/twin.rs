//! Chunks at two places.
//!
//! A live block pins each chunk that it lies in, and what it leaves of the first and the last may be too short for any other block.
//! Such a rest is not lost where chunks may be shared: the whole chunk is mapped a second time, where a new block begins or ends, and
//! the block uses the rest there. At each place the other's part is [`Kind::Elsewhere`]: mapped, and never touched.
//!
//! ```text
//!        chunk 7: A's end, and a rest                  chunk 7 again       chunk 12
//! - -|-----------------|---------|- - - - -     |-----------------|---------|--------------|- - -
//!    |  A              |elsewhere|    hole      |    elsewhere    |  B                     |
//! - -|-----------------|---------|- - - - -     |-----------------|---------|--------------|- - -
//! ```
//!
//! When one of the two is free, its place goes and the other has the whole chunk: its rest is a rest again.

use super::arena::{Arena, Retired};
use super::block::{Block, BlockId, IDLE, Kind, NONE, Owner};
use super::chunk::{Chunk, ChunkId};
use super::rests::Rest;

impl Arena {
    /// A chunk has been mapped once more at `page`: what is used of it there, free and attached.
    pub(super) fn add_twin(&mut self, page: u64, rest: Rest, owner: Owner, epoch: u64) -> BlockId {
        let (from, to) = self.extent(rest.chunk);
        let free = self.free_block_at(rest.start);
        let here = self.carve(free, rest.start, rest.start + rest.grains);
        self.slab[here].kind = Kind::Elsewhere;
        let at = page * self.options.page_grains;
        let hole = self.holes[self.zone_at(at)].range(..=at).next_back().map_or(NONE, |(_, &id)| id);
        let place = self.carve(hole, at, at + to - from);
        let (there, usable) = if rest.start == from {
            self.cut(place, at + rest.grains);
            (self.slab[place].next, place)
        } else {
            self.cut(place, at + rest.start - from);
            (place, self.slab[place].next)
        };
        self.slab[there].kind = Kind::Elsewhere;
        let block = &mut self.slab[usable];
        (block.kind, block.owner, block.epoch) = (Kind::Free, owner, epoch);
        self.attach(usable);
        self.chunks.add_twin(rest.chunk, here, page, there);
        usable
    }

    /// The free block that holds a grain of the zone of large requests, in anybody's order.
    fn free_block_at(&self, grain: u64) -> BlockId {
        let mut blocks = self.owners.iter().filter(|owner| owner.alive).flat_map(|owner| owner.sets[1].all(&self.slab));
        let found = blocks.find(|&id| self.slab[id].start <= grain && grain < self.slab[id].end());
        found.expect("a rest lies in a free block")
    }

    /// Whether [`Arena::part`] would find any.
    #[must_use]
    pub fn can_part(&self, owner: Owner) -> bool {
        let free = |chunk| self.free_part(chunk, owner).is_some();
        self.chunks.pairs.iter().any(|&(first, second)| free(first) || free(second))
    }

    /// Of chunks with two places, one of which is not used, the other place has all: those that go are returned. Only where what is unused
    /// is `owner`'s or nobody's.
    pub fn part(&mut self, owner: Owner) -> Vec<Retired> {
        let mut parted = Vec::new();
        for (first, second) in self.chunks.pairs.clone() {
            let idle = |id: BlockId| self.slab[id].owner == IDLE;
            let (stays, goes, free) = match (self.free_part(first, owner), self.free_part(second, owner)) {
                // Better the one that nobody need be waited for.
                (Some(here), Some(there)) if idle(here) && !idle(there) => (second, first, here),
                (_, Some(there)) => (first, second, there),
                (Some(here), None) => (second, first, here),
                (None, None) => continue,
            };
            parted.push(self.part_at(stays, goes, free));
        }
        parted
    }

    /// The free block that has all of what a chunk uses at this place.
    fn free_part(&self, chunk: ChunkId, owner: Owner) -> Option<BlockId> {
        let twin = self.chunks.get(chunk).twin?;
        let (from, to) = self.extent(chunk);
        let elsewhere = &self.slab[twin.block];
        let first = elsewhere.start == from;
        let id = if first { elsewhere.next } else { elsewhere.prev };
        let block = &self.slab[id];
        let covers = if first { block.end() >= to } else { block.start <= from };
        let usable = block.owner == IDLE || (block.owner == owner && !self.owners[owner as usize].private);
        (block.kind == Kind::Free && covers && usable).then_some(id)
    }

    /// `free` has all that is used at the place that goes: it is free at the place that stays, in the same order.
    fn part_at(&mut self, stays: ChunkId, goes: ChunkId, free: BlockId) -> Retired {
        let Chunk { page, pages, .. } = self.chunks.get(goes);
        let (from, to) = self.extent(goes);
        let stands_for = |chunk: ChunkId| self.chunks.get(chunk).twin.map_or(NONE, |twin| twin.block);
        let (there, here) = (stands_for(goes), stands_for(stays));
        let Block { owner, epoch, .. } = self.slab[free];
        let (start, end) = (self.slab[there].start, self.slab[there].end());
        let (part, left) = if start == from {
            (self.carve(free, end, to), there)
        } else {
            let part = self.carve(free, from, start);
            (part, part)
        };
        self.slab[part].kind = Kind::Retiring;
        self.slab[there].kind = Kind::Retiring;
        self.swallow_next(left);
        self.chunks.part(stays, goes);
        let block = &mut self.slab[here];
        (block.kind, block.owner, block.epoch) = (Kind::Free, owner, epoch);
        self.attach_merged(here);
        Retired { block: left, page, pages, idle: owner == IDLE }
    }
}
