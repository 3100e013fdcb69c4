//! Committing a plan, once the driver calls have succeeded; and removing chunks.

use super::arena::{Arena, Retired};
use super::chunk::{Chunk, ChunkId, RETIRING};
use super::plan::{Plan, Source};
use super::slab::{BlockId, IDLE, Kind, NONE, Owner};

/// A chunk and where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedChunk {
    /// For [`Arena::forget`].
    pub chunk: ChunkId,
    /// First page.
    pub page: u64,
    /// Pages.
    pub pages: u64,
    /// The driver's handle.
    pub handle: u64,
}

impl Arena {
    /// Commits a plan whose chunks are mapped and accessible at their new places: the block becomes live. `created`
    /// holds a handle for each [`Source::Create`], in the plan's order. Returns the old places of moved chunks.
    /// pre: nothing changed since the plan was made.
    pub fn commit(&mut self, plan: &Plan, owner: Owner, epoch: u64, created: &[u64]) -> Vec<Retired> {
        self.take_window(plan, owner, epoch);
        let mut handles = created.iter();
        let mut retired = Vec::new();
        for fill in &plan.fills {
            match fill.source {
                Source::Create => {
                    let handle = *handles.next().expect("one handle for each chunk to create");
                    self.chunks.add(fill.page, fill.pages, handle);
                }
                Source::Move(chunk, _) => {
                    retired.push(self.retire(chunk));
                    self.chunks.move_to(chunk, fill.page);
                }
            }
        }
        retired
    }

    /// Turns the window into one live block, and the memory mapped beside it into free memory of `owner`.
    fn take_window(&mut self, plan: &Plan, owner: Owner, epoch: u64) {
        let end = plan.start + plan.granules;
        let mut ranges = plan.ranges.iter();
        let mut at = plan.start;
        let mut id = plan.first;
        let mut taken = NONE;
        while at < end {
            if self.slab[id].kind == Kind::Hole {
                let &(page, pages) = ranges.next().expect("one range for each hole in the window");
                id = self.carve_pages(id, page, pages);
                let block = &mut self.slab[id];
                (block.kind, block.owner, block.epoch) = (Kind::Free, owner, epoch);
                self.attach(id);
            }
            let stop = end.min(self.slab[id].end());
            id = self.carve(id, at, stop);
            at = stop;
            if taken == NONE {
                taken = id;
                id = self.slab[id].next;
            } else {
                self.merge_next(taken);
                id = self.slab[taken].next;
            }
        }
        self.make_live(taken);
        self.share_new(plan, taken, owner);
        for side in [self.slab[taken].prev, self.slab[taken].next] {
            if side != NONE && self.slab[side].kind == Kind::Free {
                self.detach(side);
                self.attach_merged(side);
            }
        }
    }

    /// New memory has no pending uses: what the next small requests of `owner` do not need becomes unowned.
    fn share_new(&mut self, plan: &Plan, taken: BlockId, owner: Owner) {
        let next = self.slab[taken].next;
        let small = self.zone_at(plan.start) == 0 && !self.owners[owner as usize].private;
        if !small || owner == IDLE || plan.moves() > 0 || next == NONE {
            return;
        }
        let (rest, page_granules) = (self.slab[next], self.options.page_granules);
        let is_new = plan
            .ranges
            .iter()
            .any(|&(page, pages)| page * page_granules <= rest.start && rest.end() <= (page + pages) * page_granules);
        let refill = (rest.start + Self::REFILL).next_multiple_of(Self::REFILL);
        if is_new && rest.kind == Kind::Free && rest.end() > refill {
            self.reassign(next, refill, rest.end(), IDLE, 0);
        }
    }

    fn retire(&mut self, chunk: ChunkId) -> Retired {
        let chunk = self.chunks.get(chunk);
        let idle;
        let block = {
            let id = self.free_block_of(chunk.page);
            idle = self.slab[id].owner == IDLE;
            self.carve_pages(id, chunk.page, chunk.pages)
        };
        self.slab[block].kind = Kind::Retiring;
        Retired { block, page: chunk.page, pages: chunk.pages, idle }
    }

    fn carve_pages(&mut self, id: BlockId, page: u64, pages: u64) -> BlockId {
        let page_granules = self.options.page_granules;
        self.carve(id, page * page_granules, (page + pages) * page_granules)
    }

    /// Excludes pages of a hole from plans until [`Arena::unmapped`]: a failed plan mapped them, and they could not be
    /// unmapped.
    pub fn keep_mapped(&mut self, page: u64, pages: u64) -> Retired {
        let start = page * self.options.page_granules;
        let (_, &hole) = self.holes[self.zone_at(start)].range(..=start).next_back().expect("a plan maps into holes");
        let block = self.carve_pages(hole, page, pages);
        self.slab[block].kind = Kind::Retiring;
        self.chunks.set(page, pages, RETIRING);
        Retired { block, page, pages, idle: true }
    }

    /// The free block that contains the first page of a wholly free chunk.
    fn free_block_of(&mut self, page: u64) -> BlockId {
        self.ensure_page_index();
        self.big.last_up_to(page).expect("a free chunk lies in a free block")
    }

    /// Wholly free, unowned chunks, highest addresses first, of at least `pages` in all if there are as many.
    #[must_use]
    pub fn spare(&mut self, pages: u64) -> Vec<MappedChunk> {
        self.ensure_page_index();
        let page_granules = self.options.page_granules;
        let mut found = Vec::new();
        let mut total = 0;
        for id in self.big.descending() {
            let block = &self.slab[id];
            if total >= pages {
                break;
            }
            if block.owner != IDLE {
                continue;
            }
            let (from, mut to) = (block.start.div_ceil(page_granules), block.end() / page_granules);
            while to > from && total < pages {
                let id = self.chunks.at(to - 1);
                let chunk = self.chunks.get(id);
                if chunk.page >= from && chunk.end() <= to {
                    found.push(self.mapped_chunk(id));
                    total += chunk.pages;
                }
                to = chunk.page.max(from);
            }
        }
        found
    }

    /// Removes a spare chunk that was unmapped.
    pub fn forget(&mut self, spare: MappedChunk) {
        let id = self.free_block_of(spare.page);
        let id = self.carve_pages(id, spare.page, spare.pages);
        self.chunks.remove(spare.chunk);
        self.slab[id].kind = Kind::Hole;
        self.attach_merged(id);
    }

    /// Every chunk, for closing the arena.
    #[must_use]
    pub fn all_chunks(&self) -> Vec<MappedChunk> {
        self.chunks.alive().map(|(chunk, _)| self.mapped_chunk(chunk)).collect()
    }

    /// The chunks that a live block lies in, in address order.
    #[must_use]
    pub fn chunks_under(&self, start: u64, granules: u64) -> Vec<MappedChunk> {
        let (mut page, end) = self.pages_of(start, start + granules);
        let mut found = Vec::new();
        while page < end {
            let chunk = self.mapped_chunk(self.chunks.at(page));
            page = chunk.page + chunk.pages;
            found.push(chunk);
        }
        found
    }

    fn mapped_chunk(&self, chunk: ChunkId) -> MappedChunk {
        let Chunk { page, pages, handle, .. } = self.chunks.get(chunk);
        MappedChunk { chunk, page, pages, handle }
    }
}
