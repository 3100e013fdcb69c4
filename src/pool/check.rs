//! Every equation of the pool, verified by walking everything. For tests.

use std::collections::BTreeMap;

use super::arena::Arena;
use super::block::{BlockId, IDLE, Kind, NONE};
use super::chunk::{ChunkId, RETIRING, UNMAPPED};

/// Sums over all blocks, in grains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Given out, front caches included.
    pub live: u64,
    /// Mapped and unused.
    pub free: u64,
    /// Still mapped where a chunk was.
    pub retiring: u64,
    /// Mapped, and used at the chunk's other place.
    pub elsewhere: u64,
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
    /// Verifies every equation; the error names the first that fails.
    ///
    /// # Errors
    /// A sentence about the violated equation.
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
                "blocks at {} and {at} could be one",
                self.slab[prev].start
            );
            match block.kind {
                Kind::Live => totals.live += block.len,
                Kind::Free => totals.free += block.len,
                Kind::Retiring => totals.retiring += block.len,
                Kind::Elsewhere => totals.elsewhere += block.len,
                Kind::Hole => totals.hole += block.len,
            }
            self.check_pages(id)?;
            indexed += self.check_index(id)?;
            blocks += 1;
            at = block.end();
            prev = id;
            id = block.next;
        }
        let grains = self.options.pages * self.options.page_grains;
        ensure!(at == grains, "blocks end at {at}, the arena at {grains}");
        ensure!(blocks == self.slab.len(), "{} blocks in the slab, {blocks} in the arena", self.slab.len());
        ensure!(indexed == self.indexed(), "{} blocks in the indices, {indexed} belong there", self.indexed());
        ensure!(totals.live == self.live, "live is counted as {}, summed as {}", self.live, totals.live);
        let mapped = self.chunks.mapped * self.options.page_grains;
        ensure!(
            totals.live + totals.free == mapped,
            "live {} + free {} is not mapped {mapped}",
            totals.live,
            totals.free
        );
        self.check_chunks()?;
        ensure!(self.check_pairs()? == totals.elsewhere, "{} grains are elsewhere, of no pair", totals.elsewhere);
        self.check_owners(&totals)?;
        Ok(totals)
    }

    pub(super) fn first_block(&self) -> BlockId {
        // Zones are made first, so a walk back from any block ends at the arena's start.
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
        let aligned =
            block.start.is_multiple_of(self.options.page_grains) && block.len.is_multiple_of(self.options.page_grains);
        match block.kind {
            Kind::Live | Kind::Free | Kind::Elsewhere => {
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
                // The last hole is nearly the whole arena; beyond the page table's end nothing was ever mapped.
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
                let big = self.big.get(block.start / self.options.page_grains) == Some(id);
                ensure!(
                    !self.big.is_kept() || big == (block.len >= self.options.page_grains),
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
            Kind::Live | Kind::Retiring | Kind::Elsewhere => Ok(0),
        }
    }

    fn indexed(&self) -> usize {
        let free: usize = self.owners.iter().filter(|o| o.alive).flat_map(|o| &o.sets).map(|set| set.len()).sum();
        free + self.holes.iter().map(BTreeMap::len).sum::<usize>()
    }

    fn check_chunks(&self) -> Result<(), String> {
        let mut mapped = 0;
        for (id, chunk) in self.chunks.alive() {
            if !self.placed(id).again {
                mapped += chunk.pages;
            }
            for page in chunk.page..chunk.end() {
                ensure!(self.chunks.at(page) == id, "page {page} does not say that chunk {id} is there");
            }
        }
        ensure!(mapped == self.chunks.mapped, "chunks have {mapped} pages, counted {}", self.chunks.mapped);
        Ok(())
    }

    /// Of a chunk with two places every grain is used at one of them: what is elsewhere of all of them, in grains.
    fn check_pairs(&self) -> Result<u64, String> {
        let mut elsewhere = 0;
        let twins = self.chunks.alive().filter(|(_, chunk)| chunk.twin.is_some()).count();
        ensure!(twins == 2 * self.chunks.pairs.len(), "{twins} chunks have a second place, of {:?}", self.chunks.pairs);
        for &(first, second) in &self.chunks.pairs {
            let part = |chunk: ChunkId, other: ChunkId| {
                let (from, to) = self.extent(chunk);
                let twin = self.chunks.get(chunk).twin.filter(|twin| twin.chunk == other)?;
                let block = &self.slab[twin.block];
                let inside = block.kind == Kind::Elsewhere && from <= block.start && block.end() <= to;
                inside.then_some((block.start - from, block.end() - from, to - from))
            };
            let parts = part(first, second).zip(part(second, first));
            let Some(((a, b, len), (c, d, other_len))) = parts else {
                return Err(format!("chunks {first} and {second} do not name blocks of their own"));
            };
            let whole = len == other_len && ((a, b, d) == (0, c, len) || (c, d, b) == (0, a, len));
            let handles = (self.chunks.get(first).handle, self.chunks.get(second).handle);
            ensure!(
                whole && handles.0 == handles.1,
                "chunks {first} and {second} are not one: {a}..{b} and {c}..{d} of {len}"
            );
            elsewhere += len;
        }
        Ok(elsewhere)
    }

    fn check_owners(&self, totals: &Totals) -> Result<(), String> {
        ensure!(self.owners[IDLE as usize].alive, "nobody's memory has no list");
        let mut free = 0;
        for (index, owner) in self.owners.iter().enumerate().filter(|(_, owner)| owner.alive) {
            let all = owner.sets.iter().flat_map(|set| set.all(&self.slab));
            let sum: u64 = all.map(|id| self.slab[id].len).sum();
            ensure!(sum == owner.free, "owner {index} has {sum} free grains, counted {}", owner.free);
            free += sum;
        }
        ensure!(free == totals.free, "owners have {free} free grains, blocks {}", totals.free);
        Ok(())
    }
}
