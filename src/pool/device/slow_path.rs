//! The slow path: memory for a request that no cache could serve. `policy::next` chooses each step; this file carries
//! it out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::chunks::{bytes_to_create, carry_out, held, note_held, prepare, release_all, unused_prepared};
use super::device_pool::{DevicePool, add_time};
use super::need::{Failure, Need, Shortage};
use super::reclaim::{poll, reclaim};
use super::state::State;
use crate::arena::{IDLE, Plan};
use crate::driver::{DriverError, ErrorKind};
use crate::policy::chunk::largest_chunk;
use crate::policy::next::{Planned, Reason, Searched, Step, View, next};
use crate::pool::cache::stream::Stream;
use crate::pool::streams::polling;
use crate::pool::streams::transfer::{sources, transfer};
use crate::units::GRANULE;

/// Streams that a request on the slow path polls, on average, where polling frees nothing.
const STREAMS_PER_REQUEST: usize = 64;

/// A block that another stream freed and whose fence has passed. pre: the request is long; shorter blocks are in
/// caches.
pub(crate) fn take_from_other_stream(pool: &DevicePool, stream: &Stream, granules: u64) -> Option<u64> {
    let mut state = pool.state.lock();
    let start = polling::take_from_other_stream(&pool.streams.read(), &mut state.memory, stream, granules)?;
    state.counts.misses += 1;
    Some(start)
}

/// Finds or makes memory. Returns where it starts.
#[cold]
pub(crate) fn slow_path(pool: &DevicePool, need: Need<'_>) -> Result<u64, Failure> {
    let (now, bytes) = (|| pool.gpu.driver.now(), need.granules * GRANULE);
    let mut guard = pool.state.lock();
    guard.counts.misses += 1;
    let mut begun = now();
    let made = |begun| add_time(&pool.times.making, now().saturating_sub(begun));
    let mut reclaimed = 0;
    'again: loop {
        let mut search = Search::new(pool, &mut guard, need, begun, reclaimed);
        let mut may_find = true;
        loop {
            if may_find && let Some(start) = search.find(&mut guard) {
                made(begun);
                return Ok(start);
            }
            search.update(&mut guard);
            let step = next(&search.view);
            // Planning and counting free no memory.
            may_find = !matches!(step, Step::Plan { .. } | Step::CountOthers | Step::CheckIdle);
            if matches!(step, Step::Reclaim(_) | Step::Fail(_)) {
                made(begun);
                if let Some(start) = guard.memory.arena.take_anywhere(need.owner, need.granules) {
                    return Ok(start);
                }
            }
            match step {
                Step::Search(further) => search.search_further(&mut guard, further),
                Step::Plan { moving } => search.plan(&mut guard, moving),
                Step::CountOthers => search.count_others(&guard),
                Step::CheckIdle => search.view.idle = Some(pool.gpu.is_idle(need.stream.handle)),
                Step::Transfer => search.transfer(&mut guard),
                Step::CarryOut => search.carry_out(&mut guard).inspect_err(|_| made(begun))?,
                Step::Reclaim(ways) => {
                    let end = now();
                    reclaimed += MutexGuard::unlocked(&mut guard, || reclaim(pool, ways, bytes));
                    begun = now();
                    add_time(&pool.times.waiting, begun.saturating_sub(end));
                    // The lock was released and the arena may have changed, so earlier plans are void.
                    continue 'again;
                }
                Step::Fail(reason) => {
                    guard.counts.out_of_memory += 1;
                    return Err(Failure::Memory(bytes, search.shortage(reason)));
                }
            }
        }
    }
}

/// One search for memory. After a reclaim a new search starts.
struct Search<'a> {
    pool: &'a DevicePool,
    need: Need<'a>,
    view: View,
    plan: Option<Plan>,
    /// Streams with memory that fits the request, if they were counted.
    sources: Vec<Arc<Stream>>,
    /// The driver's last refusal.
    refusal: Option<DriverError>,
    /// Whether host memory was pinned for a plan.
    prepared: bool,
    /// Where the memory starts that a plan made.
    made: Option<u64>,
}

impl<'a> Search<'a> {
    fn new(pool: &'a DevicePool, state: &mut State, need: Need<'a>, now: Duration, reclaimed: usize) -> Self {
        let view = View {
            bytes: need.granules * GRANULE,
            total: pool.backing.total,
            limit: pool.limit.load(Ordering::Relaxed),
            held: 0,
            live: 0,
            history: state.history,
            left: state.budget.left(now),
            grow_first: pool.grow_first,
            searched: Searched::Arena,
            polling_pays: state.unpolled == 0,
            planned: None,
            others: None,
            idle: None,
            refused: false,
            reclaimed,
        };
        Self { pool, need, view, plan: None, sources: Vec::new(), refusal: None, prepared: false, made: None }
    }

    /// The memory that a plan made, or the best free block.
    fn find(&mut self, state: &mut State) -> Option<u64> {
        self.made.or_else(|| state.memory.arena.take(self.need.owner, self.need.granules))
    }

    /// Updates the view: what is held, and what the plan still needs.
    fn update(&mut self, state: &mut State) {
        let backing = &self.pool.backing;
        self.view.held = held(backing, state);
        self.view.history = state.history;
        let Some(plan) = &self.plan else { return };
        if self.view.held + bytes_to_create(backing, state, plan) > self.view.limit {
            // Several requests may have prepared memory for themselves, too much in sum.
            let others = unused_prepared(backing, state, plan);
            state.prepared.retain(|made| !others.contains(made));
            release_all(backing, state, &others);
            self.view.held = held(backing, state);
        }
        let new = bytes_to_create(backing, state, plan);
        if let Some(Some(planned)) = &mut self.view.planned {
            planned.new = new;
        }
    }

    fn search_further(&mut self, state: &mut State, further: Searched) {
        let Self { pool, need, .. } = *self;
        self.view.searched = further;
        if further == Searched::OwnCache {
            state.memory.drain(need.stream);
            state.memory.arena.clear_merge_barrier(need.owner);
            state.unpolled = state.unpolled.saturating_sub(1);
            return;
        }
        let free = |state: &State| (state.memory.arena.live_granules(), state.memory.arena.owner_free(IDLE));
        let before = free(state);
        // A stream can reuse its own memory as it is; the host cannot.
        let own = (need.owner != IDLE).then_some(need.stream.slot);
        poll(pool, state, |stream| own != Some(stream.slot));
        // Polling many streams freed nothing, so the next requests skip it.
        let idle = free(state) == before;
        state.unpolled = if idle { pool.streams.read().len() / STREAMS_PER_REQUEST } else { 0 };
        self.forget();
    }

    /// Discards the plan and what it was based on.
    fn forget(&mut self) {
        (self.plan, self.view.planned, self.view.others) = (None, None, None);
    }

    /// Plans memory for the request: with as little new memory as possible, or (not `moving`) with new memory only.
    fn plan(&mut self, state: &mut State, moving: bool) {
        let Need { owner, granules, .. } = self.need;
        // The caches searched so far are drained, so their blocks do not count as live.
        self.view.live = (state.memory.arena.live_granules() + granules) * GRANULE;
        state.history.needed(self.view.live);
        let largest = self.largest_chunk(state);
        let plan = if moving {
            let epoch = self.need.epoch(&mut state.memory);
            state.memory.arena.complete_chunks(owner, epoch);
            state.memory.arena.plan(owner, granules, largest)
        } else {
            state.memory.arena.plan_new(owner, granules, largest)
        };
        let planned = plan.as_ref().map(|plan| Planned { moving, new: 0, grows: plan.new_pages() > 0 });
        (self.plan, self.view.planned, self.view.others, self.view.refused) = (plan, Some(planned), None, false);
    }

    /// Pages of the largest new chunk.
    fn largest_chunk(&self, state: &State) -> u64 {
        if self.pool.max_chunk_pages > 0 {
            return self.pool.max_chunk_pages;
        }
        let arena = &state.memory.arena;
        let pages = arena.mapped_pages() + self.view.bytes.div_ceil(self.pool.backing.granularity);
        largest_chunk(pages, arena.long_blocks() + 1, state.budget.rate())
    }

    fn count_others(&mut self, state: &State) {
        let Self { pool, need, .. } = *self;
        self.sources = match need.private {
            true => Vec::new(),
            false => sources(&pool.streams.read(), &state.memory, need.stream, need.granules),
        };
        self.view.others =
            Some(self.sources.iter().map(|from| state.memory.arena.owner_free(from.owner) * GRANULE).sum());
    }

    /// Transfers other streams' memory to the requesting stream, from the stream that has most.
    fn transfer(&mut self, state: &mut State) {
        let need = self.need;
        for from in &self.sources {
            if let Ok(Some(moved)) = transfer(&mut state.memory, from, need.stream, need.granules) {
                state.counts.waits += 1;
                state.history.waited();
                if moved > 0 {
                    return self.forget();
                }
            }
        }
        self.view.others = Some(0);
    }

    fn carry_out(&mut self, state: &mut MutexGuard<'_, State>) -> Result<(), Failure> {
        let Self { pool: DevicePool { gpu, backing, .. }, need, .. } = *self;
        let Some(plan) = &self.plan else { return Ok(()) };
        if backing.is_host() && !self.prepared && bytes_to_create(backing, state, plan) > 0 {
            // Pinning takes 0.3 ms/MiB. Other threads go on meanwhile and may change the arena, so the plan is made
            // anew.
            let made = MutexGuard::unlocked(state, || prepare(backing, plan));
            state.budget.pinned(made.iter().map(|&(_, bytes)| bytes).sum());
            state.prepared.extend(made);
            note_held(backing, state);
            self.prepared = true;
            self.forget();
            return Ok(());
        }
        match carry_out(gpu, backing, state, plan, need) {
            Ok(()) => {
                state.budget.spend(plan.moves(), if backing.is_host() { 0 } else { plan.new_chunks() });
                self.made = Some(plan.start);
            }
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                (self.view.refused, self.view.others, self.refusal) = (true, None, Some(error));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn shortage(&mut self, reason: Reason) -> Shortage {
        match (reason, self.refusal.take()) {
            (Reason::Total, _) => Shortage::Total,
            (Reason::Limit(over), _) => Shortage::Limit(over),
            (Reason::Device, Some(error)) => Shortage::Device(error),
            (Reason::Addresses | Reason::Device, _) => Shortage::Addresses,
        }
    }
}
