//! Plans that use what live blocks leave of the chunks that they pin, by mapping those once more (`twin.rs`).

use super::arena::Arena;
use super::block::{IDLE, Kind, Owner};
use super::chunk::ChunkId;
use super::chunk_size::Chunking;
use super::plan::{Fill, Gap, Plan, Source, Window};

/// The free end, or the free beginning, of a chunk that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub(super) chunk: ChunkId,
    /// The driver's handle.
    pub handle: u64,
    /// Where it begins, and its length, in grains.
    pub(super) start: u64,
    pub(super) grains: u64,
}

/// What is free at the ends of chunks, and at their beginnings.
#[derive(Default)]
struct Rests {
    ends: Vec<Rest>,
    beginnings: Vec<Rest>,
}

impl Arena {
    /// Whether a block of that length may begin or end with another's rest.
    pub(super) fn may_share(&self, grains: u64) -> bool {
        self.options.shared_chunks && self.zone_for(grains) == 1
    }

    /// A chunk's first grain and the one past its last.
    pub(super) fn extent(&self, chunk: ChunkId) -> (u64, u64) {
        let chunk = self.chunks.get(chunk);
        (chunk.page * self.options.page_grains, chunk.end() * self.options.page_grains)
    }

    fn pages(&self, rest: Rest) -> u64 {
        self.chunks.get(rest.chunk).pages
    }

    /// What `owner` may use at a second place, outside of a window. A chunk has two places at most.
    fn rests(&self, owner: Owner, (outside_from, outside_to): (u64, u64)) -> Rests {
        let page_grains = self.options.page_grains;
        let mut rests = Rests::default();
        let free = |owner: Owner| self.owners[owner as usize].sets[1].all(&self.slab);
        let own = if self.owners[owner as usize].private || owner == IDLE { Vec::new() } else { free(owner) };
        for id in own.into_iter().chain(free(IDLE)) {
            let (start, end) = (self.slab[id].start, self.slab[id].end());
            if start < outside_to && outside_from < end {
                continue;
            }
            let rest = |chunk: ChunkId, start, end| {
                let known = self.chunks.get(chunk);
                known.twin.is_none().then_some(Rest { chunk, handle: known.handle, start, grains: end - start })
            };
            let (first, last) = (self.chunks.at(start / page_grains), self.chunks.at((end - 1) / page_grains));
            let (from, to) = self.extent(first);
            if from < start && to <= end {
                rests.ends.extend(rest(first, start, to));
            }
            let (from, to) = self.extent(last);
            if start <= from && end < to {
                rests.beginnings.extend(rest(last, from, end));
            }
        }
        rests
    }

    /// A window of which one end lies in a hole, with a rest there.
    pub(super) fn joined(&self, owner: Owner, grains: u64, window: Window, chunking: Chunking) -> Option<Plan> {
        let page_grains = self.options.page_grains;
        let (start, end) = (window.start, window.start + grains);
        let (first_page, end_page) = self.pages_of(start, end);
        let mut gaps = self.gaps(window, end);
        let in_front = self.slab[window.first].kind == Kind::Hole;
        let behind = gaps.last().is_some_and(|gap| gap.page + gap.pages == end_page);
        if in_front == behind {
            return None;
        }
        let rests = self.rests(owner, (start, end));
        let (page, rest) = if behind {
            let gap = gaps.last_mut()?;
            let (saved, used, rest) =
                self.fitting(&rests.beginnings, (end - 1) % page_grains + 1, *gap, gap.room_right)?;
            (gap.pages, gap.room_right) = (gap.pages - saved, 0);
            (end_page - saved, Rest { grains: used, ..rest })
        } else {
            let gap = gaps.first_mut()?;
            let (saved, used, rest) =
                self.fitting(&rests.ends, page_grains - start % page_grains, *gap, gap.room_left)?;
            (gap.page, gap.pages, gap.room_left) = (gap.page + saved, gap.pages - saved, 0);
            (
                first_page + saved - self.pages(rest),
                Rest { start: rest.start + rest.grains - used, grains: used, ..rest },
            )
        };
        let plan = Plan { start, grains, first: window.first, ranges: Vec::new(), fills: Vec::new() };
        let mut plan = self.fill_gaps(plan, &gaps, self.stealable(owner, window, grains), chunking);
        self.add_place(&mut plan, page, rest);
        Some(plan)
    }

    /// The rest that saves most pages of a gap, the shortest of several: what it saves, how much of it is used, and which. It has `part` of a page at
    /// least, and the whole chunk must fit into the gap and `room` beyond.
    fn fitting(&self, rests: &[Rest], part: u64, gap: Gap, room: u64) -> Option<(u64, u64, Rest)> {
        let page_grains = self.options.page_grains;
        let fits = rests.iter().filter_map(|&rest| {
            let used = part + rest.grains.checked_sub(part)? / page_grains * page_grains;
            let saved = used.div_ceil(page_grains);
            (saved <= gap.pages && self.pages(rest) - saved <= room).then_some((saved, used, rest))
        });
        fits.max_by_key(|&(saved, _, rest)| (saved, std::cmp::Reverse(rest.grains)))
    }

    /// A block in a hole, between the rests that leave the fewest pages to be found.
    pub(super) fn bridge(&self, owner: Owner, grains: u64, chunking: Chunking) -> Option<Plan> {
        let page_grains = self.options.page_grains;
        let (front, back) = self.best_pair(owner, grains);
        let length = |rest: Option<Rest>| rest.map_or(0, |rest| rest.grains);
        let missing = grains.saturating_sub(length(front) + length(back)).div_ceil(page_grains);
        // What the rests have to hold, so that nothing is left of a page.
        let held = grains.checked_sub(missing * page_grains).filter(|&held| held > 0)?;
        let in_front = length(front).min(held);
        let front = front.map(|rest| Rest { start: rest.start + rest.grains - in_front, grains: in_front, ..rest });
        let back = back.map(|rest| Rest { grains: held - in_front, ..rest }).filter(|rest| rest.grains > 0);
        let pages = |rest: Option<Rest>| rest.map_or(0, |rest| self.pages(rest));
        let whole = (pages(front) + missing + pages(back)) * page_grains;
        let holes = self.holes[1].values().copied().filter(|&id| self.slab[id].len >= whole);
        let hole = holes.min_by_key(|&id| (self.slab[id].len, self.slab[id].start))?;
        let page = self.slab[hole].start / page_grains + pages(front);
        let room_right = if back.is_some() { 0 } else { (self.slab[hole].len - whole) / page_grains };
        let start = page * page_grains - in_front;
        let window = Window { start, missing, left_over: 0, first: hole };
        let mut plan = Plan { start, grains, first: hole, ranges: Vec::new(), fills: Vec::new() };
        if let Some(rest) = front {
            self.add_place(&mut plan, page - self.pages(rest), rest);
        }
        let gap = Gap { page, pages: missing, room_left: 0, room_right };
        plan = self.fill_gaps(plan, &[gap], self.stealable(owner, window, grains), chunking);
        if let Some(rest) = back {
            self.add_place(&mut plan, page + missing, rest);
        }
        Some(plan)
    }

    /// A chunk's end to begin a block with, and another's beginning to end it with: those that leave the fewest pages to be found, the
    /// fewest and shortest of several.
    fn best_pair(&self, owner: Owner, grains: u64) -> (Option<Rest>, Option<Rest>) {
        let rests = self.rests(owner, (0, 0));
        let or_none = |rests: Vec<Rest>| rests.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
        let (ends, beginnings) = (or_none(rests.ends), or_none(rests.beginnings));
        let pairs = ends.iter().flat_map(|&front| beginnings.iter().map(move |&back| (front, back)));
        let apart =
            pairs.filter(|(front, back)| front.zip(*back).is_none_or(|(front, back)| front.chunk != back.chunk));
        let cost = |&(front, back): &(Option<Rest>, Option<Rest>)| {
            let both: u64 = [front, back].into_iter().flatten().map(|rest| rest.grains).sum();
            let missing = grains.saturating_sub(both).div_ceil(self.options.page_grains);
            (missing, u8::from(front.is_some()) + u8::from(back.is_some()), both)
        };
        apart.min_by_key(cost).unwrap_or_default()
    }

    fn add_place(&self, plan: &mut Plan, page: u64, rest: Rest) {
        let pages = self.pages(rest);
        plan.ranges.push((page, pages));
        plan.fills.push(Fill { page, pages, source: Source::Twin(rest) });
    }
}
