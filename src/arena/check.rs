//! Verifies every equation of the arena by walking all blocks. For tests.

use std::collections::BTreeMap;

use super::arena::Arena;
use super::chunk::{RETIRING, UNMAPPED};
use super::slab::{Block, BlockId, IDLE, Kind, NONE};
use crate::block::State;

/// Sums over all blocks, in granules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live, stream caches included.
    pub live: u64,
    /// The part of `live` that the blocks' headers leave out: small blocks among large ones are longer.
    pub padding: u64,
    /// Mapped and unused.
    pub free: u64,
    /// Still mapped at a chunk's old place.
    pub retiring: u64,
    /// Not mapped.
    pub hole: u64,
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

impl Arena {
    /// Verifies every equation.
    ///
    /// # Errors
    /// A sentence about the first equation that fails.
    pub fn check(&self) -> Result<Totals, String> {
        let mut totals = Totals::default();
        let (mut blocks, mut indexed) = (0, 0);
        let mut at = 0;
        let mut id = self.first_block();
        let mut prev = NONE;
        while id != NONE {
            let block = &self.slab[id];
            ensure!(block.start == at && block.len > 0, "block at {} follows a block that ends at {at}", block.start);
            ensure!(block.prev == prev, "block at {at} does not link back");
            ensure!(
                prev == NONE || !self.can_join(prev, id),
                "blocks at {} and {at} could be merged",
                self.slab[prev].start
            );
            match block.kind {
                Kind::Live => {
                    totals.live += block.len;
                    totals.padding += self.padding(block)?;
                }
                Kind::Free => totals.free += block.len,
                Kind::Retiring => totals.retiring += block.len,
                Kind::Hole => totals.hole += block.len,
            }
            self.check_pages(id)?;
            indexed += self.check_index(id)?;
            blocks += 1;
            at = block.end();
            prev = id;
            id = block.next;
        }
        let granules = self.options.pages * self.options.page_granules;
        ensure!(at == granules, "blocks end at {at}, the arena at {granules}");
        ensure!(blocks == self.slab.len(), "{} blocks in the slab, {blocks} in the arena", self.slab.len());
        ensure!(indexed == self.indexed(), "{} blocks in the indices, {indexed} belong there", self.indexed());
        ensure!(totals.live == self.live, "live is counted as {}, summed as {}", self.live, totals.live);
        let mapped = self.chunks.mapped * self.options.page_granules;
        ensure!(
            totals.live + totals.free == mapped,
            "live {} + free {} is not mapped {mapped}",
            totals.live,
            totals.free
        );
        self.check_chunks()?;
        self.check_owners(&totals)?;
        Ok(totals)
    }

    /// The granules by which a live block is longer than its header says.
    fn padding(&self, block: &Block) -> Result<u64, String> {
        let header = self.table.read(block.start);
        let (zone, granules) = (self.zone_at(block.start), header.granules());
        if header.state() == State::Absent || granules == block.len {
            return Ok(0);
        }
        let least = self.min_in_zone(zone, granules);
        ensure!(least == block.len, "the block at {} has {} granules, its header {granules}", block.start, block.len);
        Ok(least - granules)
    }

    pub(crate) fn first_block(&self) -> BlockId {
        // Zones are never merged away, so a walk back from any block ends at the arena's start.
        let mut holes = self.holes.iter().flat_map(BTreeMap::values).copied();
        let mut id = holes.next().unwrap_or_else(|| self.slab.any());
        while self.slab[id].prev != NONE {
            id = self.slab[id].prev;
        }
        id
    }

    fn check_pages(&self, id: BlockId) -> Result<(), String> {
        let block = &self.slab[id];
        let (from, to) = self.pages_of(block.start, block.end());
        let aligned = block.start.is_multiple_of(self.options.page_granules)
            && block.len.is_multiple_of(self.options.page_granules);
        match block.kind {
            Kind::Live | Kind::Free => {
                for page in from..to {
                    let chunk = self.chunks.at(page);
                    ensure!(
                        chunk != UNMAPPED && chunk != RETIRING,
                        "page {page} of a {:?} block is not mapped",
                        block.kind
                    );
                }
            }
            Kind::Hole => {
                ensure!(aligned, "the hole at {} is not whole pages", block.start);
                // The last hole is nearly the whole arena. Beyond the page table's end nothing was ever mapped.
                for page in from..to.min(from + 4096) {
                    ensure!(self.chunks.at(page) == UNMAPPED, "page {page} of a hole is mapped");
                }
            }
            Kind::Retiring => {
                ensure!(aligned, "the retiring block at {} is not whole pages", block.start);
                for page in from..to {
                    ensure!(self.chunks.at(page) == RETIRING, "page {page} of a retiring block is not retiring");
                }
            }
        }
        if block.kind == Kind::Live {
            ensure!(self.live_at(block.start) == id, "the table does not lead to the live block at {}", block.start);
        }
        Ok(())
    }

    fn check_index(&self, id: BlockId) -> Result<usize, String> {
        let block = &self.slab[id];
        let zone = self.zone_at(block.start);
        match block.kind {
            Kind::Free => {
                let owner = &self.owners[block.owner as usize];
                ensure!(owner.alive, "the free block at {} has a dead owner", block.start);
                let big = self.big.get(block.start / self.options.page_granules) == Some(id);
                ensure!(
                    !self.big.is_current() || big == (block.len >= self.options.page_granules),
                    "big index wrong at {}",
                    block.start
                );
                let fit = owner.sets[zone].best_fit(&self.slab, block.len).map(|found| self.slab[found].len);
                ensure!(
                    fit.is_some_and(|len| len >= block.len),
                    "the free block at {} is not found by its length",
                    block.start
                );
                Ok(1)
            }
            Kind::Hole => {
                ensure!(self.holes[zone].get(&block.start) == Some(&id), "hole at {} not indexed", block.start);
                Ok(1)
            }
            Kind::Live | Kind::Retiring => Ok(0),
        }
    }

    fn indexed(&self) -> usize {
        let free: usize = self.owners.iter().filter(|o| o.alive).flat_map(|o| &o.sets).map(|set| set.len()).sum();
        free + self.holes.iter().map(BTreeMap::len).sum::<usize>()
    }

    fn check_chunks(&self) -> Result<(), String> {
        let mut mapped = 0;
        for (id, chunk) in self.chunks.alive() {
            mapped += chunk.pages;
            for page in chunk.page..chunk.end() {
                ensure!(self.chunks.at(page) == id, "page {page} is not mapped to chunk {id}");
            }
        }
        ensure!(mapped == self.chunks.mapped, "chunks have {mapped} pages, counted {}", self.chunks.mapped);
        Ok(())
    }

    fn check_owners(&self, totals: &Totals) -> Result<(), String> {
        ensure!(self.owners[IDLE as usize].alive, "unowned memory has no owner");
        let mut free = 0;
        for (index, owner) in self.owners.iter().enumerate().filter(|(_, owner)| owner.alive) {
            let all = owner.sets.iter().flat_map(|set| set.all(&self.slab));
            let sum: u64 = all.map(|id| self.slab[id].len).sum();
            ensure!(sum == owner.free, "owner {index} has {sum} free granules, counted {}", owner.free);
            free += sum;
        }
        ensure!(free == totals.free, "owners have {free} free granules, blocks {}", totals.free);
        Ok(())
    }
}
