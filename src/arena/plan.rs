//! Plans: memory for a request that no free block can serve. Chooses a range of addresses and the chunks to fill it
//! with.
//!
//! A plan changes nothing. The caller creates and maps its chunks and then commits it, or drops it.

use super::arena::Arena;
use super::chunk::ChunkId;
use super::slab::{BlockId, IDLE, Kind, NONE, Owner};

/// The source of a missing run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A wholly free chunk that is mapped elsewhere, with its driver handle.
    Move(ChunkId, u64),
    /// New physical memory.
    Create,
}

/// A chunk's new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// First page.
    pub page: u64,
    /// Pages.
    pub pages: u64,
    /// The chunk.
    pub source: Source,
}

/// A plan for one block's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the block will start, in granules.
    pub start: u64,
    /// Length in granules.
    pub granules: u64,
    /// The block that contains `start` now.
    pub(crate) first: BlockId,
    /// The page ranges to map, in address order: first page, pages.
    pub ranges: Vec<(u64, u64)>,
    /// The chunks that fill the ranges, in no particular order.
    pub fills: Vec<Fill>,
}

impl Plan {
    /// Pages of new physical memory.
    #[must_use]
    pub fn new_pages(&self) -> u64 {
        self.fills.iter().filter(|fill| fill.source == Source::Create).map(|fill| fill.pages).sum()
    }

    /// Chunks of new physical memory.
    #[must_use]
    pub fn new_chunks(&self) -> u64 {
        self.fills.len() as u64 - self.moves()
    }

    /// Chunks to move.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.fills.iter().filter(|fill| fill.source != Source::Create).count() as u64
    }
}

/// A window in the tightest run wins among windows that lack equally many pages: a run that is used up leaves no part
/// of a page. Runs with this many pages left over count as equal, and the lowest wins.
const MAX_LEFT_OVER: u64 = 16;

/// A range of addresses for the block, and the number of its unmapped pages.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: u64,
    missing: u64,
    /// Granules of the run around it that stay left over, up to a bound.
    left_over: u64,
    first: BlockId,
}

/// A run of missing pages in a window, and the pages of its hole on either side where chunks may be mapped as well.
#[derive(Clone, Copy, Debug)]
struct Gap {
    page: u64,
    pages: u64,
    hole_left: u64,
    hole_right: u64,
}

/// Pages of the next new chunk for a run with `left` pages still missing. The end of a live block pins the chunk that
/// it lies in, and the next block ends near the end of the run; so chunks get smaller there, each at most half of what
/// is left.
fn chunk_pages(left: u64, largest: u64) -> u64 {
    largest.min(1 << (left / 2).max(1).ilog2())
}

impl Arena {
    /// Plans `granules` for `owner` with the fewest missing pages. New chunks have at most `largest` pages, a power of
    /// two. `None` if no free range of addresses is long enough.
    #[must_use]
    pub fn plan(&mut self, owner: Owner, granules: u64, largest: u64) -> Option<Plan> {
        self.ensure_page_index();
        let (least, longest_hole) = self.windows(owner, granules);
        let least = least?;
        let plan = self.fill(granules, least, self.movable_chunks(owner, least, granules), largest);
        if plan.new_pages() == 0 {
            return Some(plan);
        }
        // The free chunks may be too large for the gaps of the tightest window; the start of the longest hole has space
        // for them.
        let in_hole = longest_hole
            .map(|window| self.fill(granules, window, self.movable_chunks(owner, window, granules), largest));
        let better = in_hole.filter(|in_hole| in_hole.new_pages() < plan.new_pages());
        Some(better.unwrap_or(plan))
    }

    /// The same with new memory only: nothing moves.
    #[must_use]
    pub fn plan_new(&self, owner: Owner, granules: u64, largest: u64) -> Option<Plan> {
        let (least, _) = self.windows(owner, granules);
        Some(self.fill(granules, least?, Vec::new(), largest))
    }

    // ---- the window ----------------------------------------------------------------------------------

    pub(crate) fn usable(&self, id: BlockId, owner: Owner) -> bool {
        let block = &self.slab[id];
        match block.kind {
            Kind::Hole => true,
            Kind::Free => block.owner == owner || block.owner == IDLE,
            Kind::Live | Kind::Retiring => false,
        }
    }

    /// The window with the fewest missing pages, and the one at the start of the longest hole.
    fn windows(&self, owner: Owner, granules: u64) -> (Option<Window>, Option<Window>) {
        let zone = self.zone_for(granules);
        let mut least: Option<Window> = None;
        let mut longest_hole: Option<(u64, Window)> = None;
        let mut run = Vec::new();
        let mut seen_to = 0;
        let idle = &self.owners[IDLE as usize].sets[zone];
        let idle_seeds = if owner == IDLE { Vec::new() } else { idle.long(&self.slab) };
        for seed in self.holes[zone].values().copied().chain(idle_seeds) {
            let block = &self.slab[seed];
            if block.kind == Kind::Hole {
                if block.len >= granules && longest_hole.as_ref().is_none_or(|&(len, _)| block.len > len) {
                    let missing = granules.div_ceil(self.options.page_granules);
                    longest_hole = Some((
                        block.len,
                        Window { start: block.start, missing, left_over: block.len - granules, first: seed },
                    ));
                }
                if block.start < seen_to {
                    continue;
                }
            }
            self.run_around(seed, owner, zone, &mut run);
            if block.kind == Kind::Hole {
                seen_to = run.last().map_or(seen_to, |&id| self.slab[id].end());
            }
            self.best_window(&run, granules, &mut least);
            if least.as_ref().is_some_and(|window| window.missing == 0) {
                break;
            }
        }
        (least, longest_hole.map(|(_, window)| window))
    }

    /// The longest sequence of usable neighbours that contains `seed`.
    fn run_around(&self, seed: BlockId, owner: Owner, zone: usize, run: &mut Vec<BlockId>) {
        run.clear();
        let inside = |id: BlockId| id != NONE && self.usable(id, owner) && self.zone_at(self.slab[id].start) == zone;
        let mut first = seed;
        while inside(self.slab[first].prev) {
            first = self.slab[first].prev;
        }
        let mut id = first;
        while inside(id) {
            run.push(id);
            id = self.slab[id].next;
        }
    }

    /// Tries every window that begins or ends with a block of the run; the best window is one of them.
    fn best_window(&self, run: &[BlockId], granules: u64, least: &mut Option<Window>) {
        let (Some(&first), Some(&last)) = (run.first(), run.last()) else { return };
        let (run_start, run_end) = (self.slab[first].start, self.slab[last].end());
        let Some(rest) = (run_end - run_start).checked_sub(granules) else { return };
        let left_over = rest.min(MAX_LEFT_OVER * self.options.page_granules);
        for &id in run {
            let block = &self.slab[id];
            for start in [Some(block.start), block.end().checked_sub(granules)].into_iter().flatten() {
                if start < run_start || start + granules > run_end {
                    continue;
                }
                let (missing, first) = self.missing(run, start, start + granules);
                let better = least
                    .as_ref()
                    .is_none_or(|best| (missing, left_over, start) < (best.missing, best.left_over, best.start));
                if better {
                    *least = Some(Window { start, missing, left_over, first });
                }
            }
        }
    }

    fn missing(&self, run: &[BlockId], start: u64, end: u64) -> (u64, BlockId) {
        let mut pages = 0;
        let mut first = NONE;
        for &id in run {
            let block = &self.slab[id];
            if block.end() <= start || block.start >= end {
                continue;
            }
            if first == NONE {
                first = id;
            }
            if block.kind == Kind::Hole {
                let (from, to) = self.pages_of(start.max(block.start), end.min(block.end()));
                pages += to - from;
            }
        }
        (pages, first)
    }

    /// The pages that `start..end` touches: the first, and the one after the last.
    pub(crate) fn pages_of(&self, start: u64, end: u64) -> (u64, u64) {
        (start / self.options.page_granules, end.div_ceil(self.options.page_granules))
    }

    // ---- the chunks to fill it with ------------------------------------------------------------------

    fn fill(&self, granules: u64, window: Window, mut movable: Vec<(ChunkId, u64)>, largest: u64) -> Plan {
        let mut plan =
            Plan { start: window.start, granules, first: window.first, ranges: Vec::new(), fills: Vec::new() };
        for gap in self.gaps(window, window.start + granules) {
            self.fill_gap(gap, &mut movable, &mut plan, largest);
        }
        plan
    }

    fn gaps(&self, window: Window, end: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut id = window.first;
        while id != NONE && self.slab[id].start < end {
            let block = &self.slab[id];
            if block.kind == Kind::Hole {
                let (page, to) = self.pages_of(window.start.max(block.start), end.min(block.end()));
                let (hole_page, hole_to) = self.pages_of(block.start, block.end());
                gaps.push(Gap { page, pages: to - page, hole_left: page - hole_page, hole_right: hole_to - to });
            }
            id = block.next;
        }
        gaps
    }

    /// Chunks that can move, highest addresses first: they lie wholly inside free blocks of `owner` or unowned ones,
    /// outside the window. The search ends at a few times what is missing. pre: the page index is current.
    fn movable_chunks(&self, owner: Owner, window: Window, granules: u64) -> Vec<(ChunkId, u64)> {
        let page_granules = self.options.page_granules;
        let (keep_from, keep_to) = self.pages_of(window.start, window.start + granules);
        let enough = window.missing * 4 + 64;
        let private = self.owners[owner as usize].private;
        let mut found = Vec::new();
        let mut pages = 0;
        for id in self.big.descending() {
            let block = &self.slab[id];
            if pages >= enough {
                break;
            }
            if block.owner != IDLE && (private || block.owner != owner) {
                continue;
            }
            let from = block.start.div_ceil(page_granules);
            let mut to = block.end() / page_granules;
            while to > from && pages < enough {
                let chunk_id = self.chunks.at(to - 1);
                let chunk = self.chunks.get(chunk_id);
                if chunk.page < from {
                    break;
                }
                if chunk.end() <= to && (chunk.end() <= keep_from || chunk.page >= keep_to) {
                    found.push((chunk_id, chunk.pages));
                    pages += chunk.pages;
                }
                to = chunk.page;
            }
        }
        // Largest first; equals stay in the order found, highest address first.
        found.sort_by_key(|&(_, pages)| std::cmp::Reverse(pages));
        found
    }

    fn fill_gap(&self, gap: Gap, movable: &mut Vec<(ChunkId, u64)>, plan: &mut Plan, largest: u64) {
        let mut chosen: Vec<(Source, u64)> = Vec::new();
        let mut left = gap.pages;
        movable.retain(|&(id, pages)| {
            let take = pages <= left;
            if take {
                chosen.push((Source::Move(id, self.chunks.get(id).handle), pages));
                left -= pages;
            }
            !take
        });
        let space = gap.hole_left.max(gap.hole_right);
        if left > 0 {
            // Only larger chunks are left: takes the smallest if the hole has space for its excess.
            let fits = movable.iter().rposition(|&(_, pages)| pages <= left + space);
            if let Some(index) = fits.filter(|&index| movable[index].1 >= left) {
                let (id, pages) = movable.remove(index);
                chosen.push((Source::Move(id, self.chunks.get(id).handle), pages));
                left = 0;
            }
        }
        while left > 0 {
            let pages = chunk_pages(left, largest);
            chosen.push((Source::Create, pages));
            left -= pages;
        }
        let total: u64 = chosen.iter().map(|&(_, pages)| pages).sum();
        let over = total - gap.pages;
        let page = if over <= gap.hole_right { gap.page } else { gap.page - over };
        plan.ranges.push((page, total));
        let mut at = page;
        for (source, pages) in chosen {
            plan.fills.push(Fill { page: at, pages, source });
            at += pages;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::kit::{arena, new_block};

    const PAGE: u64 = 8;

    fn block(arena: &mut Arena, pages: u64) -> u64 {
        new_block(arena, IDLE, pages * PAGE)
    }

    #[test]
    fn of_windows_with_equal_gaps_the_tightest_wins() {
        let mut arena = arena(PAGE, 256, (0, 0));
        // Holes of 40, 10 and 3 pages, each between two live blocks, and the rest of the addresses.
        let starts: Vec<u64> = [1, 40, 1, 10, 1, 3, 1].map(|pages| block(&mut arena, pages)).to_vec();
        for hole in [1, 3, 5] {
            arena.give(starts[hole], IDLE, 0);
        }
        while let Some(&spare) = arena.spare(1).first() {
            arena.forget(spare);
        }
        arena.check().expect("every equation holds");
        let place =
            |arena: &mut Arena, pages: u64| arena.plan(IDLE, pages * PAGE, 32).expect("there are addresses").start;
        assert_eq!(place(&mut arena, 3), starts[5], "the hole of three is used up");
        assert_eq!(place(&mut arena, 4), starts[3], "of those that are left the tightest");
        assert_eq!(place(&mut arena, 11), starts[1]);
        // A hole with more than MAX_LEFT_OVER pages left over is as good as the rest of the addresses, and lower.
        assert_eq!(block(&mut arena, 3), starts[5]);
        assert_eq!(block(&mut arena, 10), starts[3]);
        assert_eq!(place(&mut arena, 2), starts[1]);
        arena.check().expect("every equation holds");
    }
}
