//! The slow path: memory for a request that no cache could serve. `policy::next` says what to do next, this does it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::chunks::{carry_out, held, lacking, note_held, prepare, prepared_for_others, release_all};
use super::device_pool::{DevicePool, add_time};
use super::need::{Failure, Need, Shortage};
use super::reclaim::{poll, reclaim};
use super::state::State;
use crate::arena::{IDLE, Plan};
use crate::driver::{DriverError, ErrorKind};
use crate::policy::chunk::largest_chunk;
use crate::policy::next::{Looked, Planned, Reason, Step, View, next};
use crate::pool::cache::stream::Stream;
use crate::pool::streams::polling;
use crate::pool::streams::transfer::{sources, transfer};
use crate::units::GRANULE;

/// A request on the slow path looks at so many streams, on average, where that gives nothing.
const STREAMS_PER_REQUEST: usize = 64;

/// What another stream handed over, if its fence has passed. pre: the request is long; shorter blocks are in caches.
pub(crate) fn handed_over(pool: &DevicePool, stream: &Stream, granules: u64) -> Option<u64> {
    let mut state = pool.state.lock();
    let start = polling::handed_over(&pool.streams.read(), &mut state.memory, stream, granules)?;
    state.counts.misses += 1;
    Some(start)
}

/// Finds memory, or makes it. Returns where it starts.
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
            search.look(&mut guard);
            let step = next(&search.view);
            // Planning and asking free nothing.
            may_find = !matches!(step, Step::Plan { .. } | Step::AskOthers | Step::AskIdle);
            match step {
                Step::Look(further) => search.look_further(&mut guard, further),
                Step::Plan { moving } => search.plan(&mut guard, moving),
                Step::AskOthers => search.ask_others(&guard),
                Step::AskIdle => search.view.idle = Some(pool.gpu.is_idle(need.stream.handle)),
                Step::Transfer => search.transfer(&mut guard),
                Step::CarryOut => search.carry_out(&mut guard).inspect_err(|_| made(begun))?,
                Step::Reclaim(ways) => {
                    made(begun);
                    if let Some(start) = guard.memory.arena.take_anywhere(need.owner, need.granules) {
                        return Ok(start);
                    }
                    let end = now();
                    reclaimed += MutexGuard::unlocked(&mut guard, || reclaim(pool, ways, bytes));
                    begun = now();
                    add_time(&pool.times.waiting, begun.saturating_sub(end));
                    // Without the lock others changed the arena: no plan from before holds any more.
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

/// One search for room, until something is given back that calls for another.
struct Search<'a> {
    pool: &'a DevicePool,
    need: Need<'a>,
    view: View,
    plan: Option<Plan>,
    /// Streams whose memory helps, as far as they were asked for.
    sources: Vec<Arc<Stream>>,
    /// What the driver said when it refused.
    refusal: Option<DriverError>,
    /// Memory of the host was pinned for a plan.
    prepared: bool,
    /// Where room was made.
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
            looked: Looked::Nowhere,
            look_pays: state.unpolled == 0,
            planned: None,
            others: None,
            idle: None,
            refused: false,
            reclaimed,
        };
        Self { pool, need, view, plan: None, sources: Vec::new(), refusal: None, prepared: false, made: None }
    }

    /// A free block that is long enough, or the room that was made.
    fn find(&mut self, state: &mut State) -> Option<u64> {
        self.made.or_else(|| state.memory.arena.take(self.need.owner, self.need.granules))
    }

    /// Brings what is held and planned up to date.
    fn look(&mut self, state: &mut State) {
        let backing = &self.pool.backing;
        self.view.held = held(backing, state);
        self.view.history = state.history;
        let Some(plan) = &self.plan else { return };
        if self.view.held + lacking(backing, state, plan) > self.view.limit {
            // Several may have prepared for themselves, and too much together.
            let others = prepared_for_others(backing, state, plan);
            state.prepared.retain(|made| !others.contains(made));
            release_all(backing, state, &others);
            self.view.held = held(backing, state);
        }
        let new = lacking(backing, state, plan);
        if let Some(Some(planned)) = &mut self.view.planned {
            planned.new = new;
        }
    }

    fn look_further(&mut self, state: &mut State, further: Looked) {
        let Self { pool, need, .. } = *self;
        self.view.looked = further;
        if further == Looked::Own {
            state.memory.drain(need.stream);
            state.memory.arena.clear_merge_barrier(need.owner);
            state.unpolled = state.unpolled.saturating_sub(1);
            return;
        }
        let free = |state: &State| (state.memory.arena.live_granules(), state.memory.arena.owner_free(IDLE));
        let before = free(state);
        // Its own memory is as good as idle to a stream, but not to the host.
        let own = (need.owner != IDLE).then_some(need.stream.slot);
        poll(pool, state, |stream| own != Some(stream.slot));
        // Where that gave nothing and there are many streams, the next requests cannot pay for it.
        let idle = free(state) == before;
        state.unpolled = if idle { pool.streams.read().len() / STREAMS_PER_REQUEST } else { 0 };
        self.forget();
    }

    /// What was planned and asked says nothing any more.
    fn forget(&mut self) {
        (self.plan, self.view.planned, self.view.others) = (None, None, None);
    }

    /// Plans to make room with as little new memory as can be, or without moving anything.
    fn plan(&mut self, state: &mut State, moving: bool) {
        let Need { owner, granules, .. } = self.need;
        // What lies in caches is not live by now.
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

    fn ask_others(&mut self, state: &State) {
        let Self { pool, need, .. } = *self;
        self.sources = match need.private {
            true => Vec::new(),
            false => sources(&pool.streams.read(), &state.memory, need.stream, need.granules),
        };
        self.view.others =
            Some(self.sources.iter().map(|from| state.memory.arena.owner_free(from.owner) * GRANULE).sum());
    }

    /// Hands the asking stream other streams' memory, of the richest that has any.
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
        if backing.is_host() && !self.prepared && lacking(backing, state, plan) > 0 {
            // Pinning takes 0.3 ms a MiB: others go on meanwhile, and may change what there is to plan with.
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
