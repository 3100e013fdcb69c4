//! Making room for a request that no front cache could serve: the out-of-memory ladder.
//!
//! Under the arena's lock: best fit; the stream's own front emptied; every front emptied and every fence
//! looked at; chunks moved; memory of other streams borrowed behind their fence; new chunks within the limit.
//! Without the lock, when all that is not enough: waits for what is pending, then asks others to give back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::DevicePool;
use super::state::Inner;
use super::times::Spent;
use crate::arena::{Chunking, Fill, IDLE, Owner, Plan, Source};
use crate::driver::{DriverError, ErrorKind, Physical};
use crate::error::{Error, Result};
use crate::policy::time_budget::{GROW, MOVE, pinning, times};
use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::Front;
use crate::pool::order::fence::Fence;
use crate::units::{Address, GRAIN, Human};

/// Below this share of the device's memory a pool grows rather than make one stream wait for another.
const FREE_GROWTH: u64 = 128;

/// Other streams' memory is worth a wait where it serves the request, or is one part in so many of what the pool would hold: what is
/// left with them when the pool grows stays on top of what is live.
const WORTH_A_WAIT: u64 = 64;

/// Where a stream was asked for so many blocks, the pool is in use.
const IN_USE: u64 = 8192;

/// A request that makes room looks at so many streams, on average, where that gives nothing.
const STREAMS_PER_REQUEST: usize = 64;

/// Making so many chunks costs many times what asking for free memory does.
const WORTH_ASKING: u64 = 16;

/// For whom room is made.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub stream: &'a Arc<Stream>,
    /// In whose order: the stream's, a private pool's, or nobody's for memory that the host may touch at once.
    pub owner: Owner,
    /// A private pool's memory may later be used on any stream, nobody's by the host: only proven idle memory will do.
    pub private: bool,
}

impl Asker<'_> {
    /// The epoch of memory that becomes free for the asker; nobody's memory has none.
    fn epoch(&self, inner: &mut Inner) -> u64 {
        if self.owner == IDLE { 0 } else { inner.epoch(self.stream.slot) }
    }
}

/// Why there is no room under the lock.
#[derive(Debug)]
pub(crate) enum Shortage {
    /// So many more bytes than the limit allows.
    Limit(u64),
    /// The driver had no more memory.
    Device(DriverError),
    /// No run of addresses is that long.
    Addresses,
    /// There is not so much in all.
    Total,
}

impl DevicePool {
    #[cold]
    pub(crate) fn make_room(&self, stream: &Arc<Stream>, grains: u64) -> Result<u64> {
        if Front::is_long(grains)
            && let Some(start) = self.handed_back(stream, grains)
        {
            return Ok(start);
        }
        self.room_for(Asker { stream, owner: stream.owner, private: false }, grains)
    }

    pub(crate) fn room_for(&self, asker: Asker<'_>, grains: u64) -> Result<u64> {
        self.inner.lock().figures.misses += 1;
        if grains * GRAIN > self.backing.total {
            return Err(self.refused(grains, &Shortage::Total));
        }
        let mut steps = super::reclaim::STEPS.iter();
        let mut looked = false;
        loop {
            let begun = self.driver.now();
            let made = self.room_now(asker, grains);
            self.times.add(Spent::Making, self.driver.now().saturating_sub(begun));
            let shortage = match made? {
                Ok(start) => return Ok(start),
                Err(shortage) => shortage,
            };
            {
                let mut inner = self.inner.lock();
                // It may have made do without a look at every stream.
                if std::mem::take(&mut inner.unsettled) > 0 && !std::mem::replace(&mut looked, true) {
                    continue;
                }
                if let Some(start) = inner.arena.take_anywhere(asker.owner, grains) {
                    return Ok(start);
                }
            }
            let begun = self.driver.now();
            // Only a step that gave something back is worth another try.
            let helped = steps.by_ref().any(|step| step(self, grains * GRAIN));
            self.times.add(Spent::Waiting, self.driver.now().saturating_sub(begun));
            if !helped {
                return Err(self.refused(grains, &shortage));
            }
        }
    }

    fn refused(&self, grains: u64, shortage: &Shortage) -> Error {
        self.inner.lock().figures.out_of_memory += 1;
        self.out_of_memory(grains * GRAIN, shortage)
    }

    /// All that can be done without waiting for the GPU.
    fn room_now(&self, asker: Asker<'_>, grains: u64) -> Result<std::result::Result<u64, Shortage>> {
        let mut inner = self.inner.lock();
        if let Some(start) = inner.arena.take(asker.owner, grains) {
            return Ok(Ok(start));
        }
        inner.drain(asker.stream);
        inner.arena.unseal(asker.owner);
        if let Some(start) = inner.arena.take(asker.owner, grains) {
            return Ok(Ok(start));
        }
        self.settle_if_worth_it(&mut inner, asker);
        let mut prepared = false;
        let now = self.driver.now();
        // A chunk costs next to nothing beside the pinning of its memory.
        let pinned = self.backing.is_host();
        let live = (inner.arena.live_grains() + grains) * GRAIN;
        let allowed = inner.growth.may_move(now, live);
        let mut may_move = allowed;
        let in_use = pinned || asker.stream.requests() >= IN_USE;
        // As many chunks as serve memory best, where there is time for them.
        let with_time = pinned || inner.small_chunks.is_left(now);
        let chunking = Chunking {
            tiny: in_use.then_some(if with_time { 1 } else { 2 }),
            most_pages: self.limit.load(Ordering::Relaxed) / self.backing.granularity,
        };
        loop {
            if let Some(start) = inner.arena.take(asker.owner, grains) {
                return Ok(Ok(start));
            }
            let Some(plan) = self.plan(&mut inner, asker, grains, may_move, chunking) else {
                return Ok(Err(Shortage::Addresses));
            };
            let new_bytes = self.lacking(&inner, &plan);
            let held = self.physical(&inner);
            let over = self.over_limit(&inner, &plan);
            if !may_move && (over > 0 || !inner.growth.may_grow(now, held + new_bytes, live)) {
                may_move = true;
                continue;
            }
            let thrifty =
                new_bytes > 0 && !self.options.grow_first && held + new_bytes > self.backing.total / FREE_GROWTH;
            if over > 0 || thrifty {
                let worth = new_bytes.min((held + new_bytes) / WORTH_A_WAIT);
                let lenders = self.lenders(&inner, asker, grains, worth);
                // The driver is asked only where there is anything to borrow.
                let spared = || inner.growth.may_spare_a_wait(held + new_bytes, || self.stands_idle(asker.stream));
                let borrows = !lenders.is_empty() && (over > 0 || !spared());
                if borrows && self.borrow(&mut inner, asker, grains, &lenders) {
                    continue;
                }
            }
            if over > 0 && plan.new_pages() > 0 {
                // Several may have prepared for themselves, and too much together.
                let others = self.prepared_for_others(&inner, &plan);
                if !others.is_empty() {
                    inner.prepared.retain(|made| !others.contains(made));
                    self.release_all(&mut inner, &others);
                    continue;
                }
                return Ok(Err(Shortage::Limit(over)));
            }
            if new_bytes > 0 && !prepared && self.backing.is_host() {
                // Pinning takes 0.3 ms a MiB: others go on meanwhile, and may change what there is to plan with.
                let made = inner.unlocked(|| self.prepare(&plan));
                inner.growth.pinned(pinning(made.iter().map(|&(_, bytes)| bytes).sum()));
                inner.prepared.extend(made);
                inner.figures.physical_peak = inner.figures.physical_peak.max(self.physical(&inner));
                prepared = true;
                continue;
            }
            match self.carry_out(&mut inner, &plan, asker) {
                Ok(()) => {
                    let moving = times(MOVE, plan.moves());
                    inner.growth.moved(moving, !allowed);
                    if in_use && with_time {
                        inner.small_chunks.took(moving + times(GROW, plan.new_chunks()));
                    }
                    return Ok(Ok(plan.start));
                }
                Err(error) if error.kind == ErrorKind::OutOfMemory => {
                    if !may_move {
                        may_move = true;
                        continue;
                    }
                    let lenders = self.lenders(&inner, asker, grains, 0);
                    if !self.borrow(&mut inner, asker, grains, &lenders) {
                        return Ok(Err(Shortage::Device(error)));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks at every stream, unless that gave nothing lately and there are so many streams that a request cannot pay for it.
    fn settle_if_worth_it(&self, inner: &mut Inner, asker: Asker<'_>) {
        if inner.unsettled > 0 {
            inner.unsettled -= 1;
            return;
        }
        let free = |inner: &Inner| (inner.arena.live_grains(), inner.arena.owner_free(IDLE));
        let before = free(inner);
        // Its own memory is as good as idle to a stream, but not to the host.
        self.settle(inner, (asker.owner != IDLE).then_some(asker.stream));
        if free(inner) == before {
            inner.unsettled = self.streams.read().by_key.len() / STREAMS_PER_REQUEST;
        }
    }

    /// How to make room: with as little new memory as can be, or without moving anything.
    fn plan(
        &self,
        inner: &mut Inner,
        asker: Asker<'_>,
        grains: u64,
        may_move: bool,
        chunking: Chunking,
    ) -> Option<Plan> {
        if !may_move {
            return inner.arena.plan_new(asker.owner, grains, chunking);
        }
        let epoch = asker.epoch(inner);
        inner.arena.complete_chunks(asker.owner, epoch);
        inner.arena.plan(asker.owner, grains, chunking)
    }

    /// By how many bytes a plan would exceed the limit.
    fn over_limit(&self, inner: &Inner, plan: &Plan) -> u64 {
        let wanted = self.physical(inner) + self.lacking(inner, plan);
        wanted.saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    /// What was prepared and is not for this plan.
    fn prepared_for_others(&self, inner: &Inner, plan: &Plan) -> Vec<(Physical, u64)> {
        let mut left = inner.prepared.clone();
        for fill in plan.fills.iter().filter(|fill| fill.source == Source::Create) {
            let bytes = self.page_bytes(fill.pages);
            if let Some(place) = left.iter().position(|&(_, made)| made == bytes) {
                left.swap_remove(place);
            }
        }
        left
    }

    /// Bytes of a plan that are still to be made; what was prepared for it counts as held already.
    fn lacking(&self, inner: &Inner, plan: &Plan) -> u64 {
        let sum = |chunks: &[(Physical, u64)]| chunks.iter().map(|&(_, bytes)| bytes).sum::<u64>();
        let ready = sum(&inner.prepared) - sum(&self.prepared_for_others(inner, plan));
        self.page_bytes(plan.new_pages()) - ready
    }

    // ---- the driver's part ---------------------------------------------------------------------------

    /// Maps what a plan asks for and commits it. On an error everything is as before.
    fn carry_out(&self, inner: &mut Inner, plan: &Plan, asker: Asker<'_>) -> crate::driver::Result<()> {
        self.compare_with_free(plan)?;
        let steals = plan.moves();
        // Raised before anything moves: the old places stay mapped until it has passed.
        let fence = match steals {
            0 => None,
            _ if asker.private => None,
            // Behind all that the asker's stream has been given.
            _ => Some(Fence::after(&self.events, asker.stream.handle)?),
        };
        let created = self.create_all(inner, plan)?;
        self.map_all(inner, plan, &created)?;
        let handles: Vec<u64> = created.iter().map(|&(physical, _)| physical.0).collect();
        let epoch = asker.epoch(inner);
        let retired = inner.arena.commit(plan, asker.owner, epoch, &handles);
        inner.retiring.extend(retired.into_iter().map(|old| (fence.clone().filter(|_| !old.idle), old)));
        inner.figures.steals += steals;
        inner.figures.growths += created.len() as u64;
        self.note_growth(inner, !created.is_empty());
        if let Some(fence) = fence {
            inner.raised(asker.stream.slot, fence);
        }
        self.unmap_retired(inner);
        tracing::debug!(device = %self.device, bytes = plan.grains * GRAIN, steals, created = created.len(), "room made");
        Ok(())
    }

    fn note_growth(&self, inner: &mut Inner, grew: bool) {
        let held = self.physical(inner);
        inner.figures.physical_peak = inner.figures.physical_peak.max(held);
        if grew {
            inner.growth.grew();
            inner.grown_to = inner.grown_to.max(held);
        }
    }

    /// Fails if a plan asks for more new memory than there is: nobody else should go without it until that is found out chunk by chunk.
    fn compare_with_free(&self, plan: &Plan) -> crate::driver::Result<()> {
        if plan.new_chunks() < WORTH_ASKING || self.backing.is_host() {
            return Ok(());
        }
        let (wanted, free) = (self.page_bytes(plan.new_pages()), self.driver.memory_info(self.device)?.free);
        if wanted <= free {
            return Ok(());
        }
        let why = format!("{} more are needed and {} are free", Human(wanted), Human(free));
        Err(DriverError::new(ErrorKind::OutOfMemory, "cuMemGetInfo", why))
    }

    fn create_all(&self, inner: &mut Inner, plan: &Plan) -> crate::driver::Result<Vec<(Physical, u64)>> {
        let mut created = Vec::new();
        for fill in plan.fills.iter().filter(|fill| fill.source == Source::Create) {
            let bytes = fill.pages * self.backing.granularity;
            if let Some(place) = inner.prepared.iter().position(|&(_, made)| made == bytes) {
                created.push(inner.prepared.swap_remove(place));
                continue;
            }
            match self.backing.create(bytes) {
                Ok(physical) => created.push((physical, bytes)),
                Err(error) => {
                    self.release_all(inner, &created);
                    return Err(error);
                }
            }
        }
        Ok(created)
    }

    /// Makes the physical memory that a plan asks for, as far as there is any; what is missing then fails in its turn.
    fn prepare(&self, plan: &Plan) -> Vec<(Physical, u64)> {
        let sizes =
            plan.fills.iter().filter(|fill| fill.source == Source::Create).map(|fill| self.page_bytes(fill.pages));
        sizes.map_while(|bytes| self.backing.create(bytes).ok().map(|physical| (physical, bytes))).collect()
    }

    /// Gives back what a failed plan created. What the driver refuses to take is held, and tried again.
    pub(crate) fn release_all(&self, inner: &mut Inner, created: &[(Physical, u64)]) {
        for &(physical, bytes) in created {
            if let Err(error) = self.backing.release(physical) {
                tracing::warn!(device = %self.device, %error, "memory could not be given back; it is tried again");
                inner.orphans.push((physical, bytes));
            }
        }
        inner.figures.physical_peak = inner.figures.physical_peak.max(self.physical(inner));
    }

    /// Maps what a plan asks for, or, after an error, gives back what was created for it.
    fn map_all(&self, inner: &mut Inner, plan: &Plan, created: &[(Physical, u64)]) -> crate::driver::Result<()> {
        let mut new = created.iter().map(|&(physical, _)| physical);
        let mut mapped: Vec<&Fill> = Vec::new();
        let result = plan
            .fills
            .iter()
            .try_for_each(|fill| {
                let physical = match fill.source {
                    Source::Steal(_, handle) => Physical(handle),
                    Source::Create => new.next().unwrap_or(Physical(0)),
                };
                self.backing.map(self.page_address(fill.page), self.page_bytes(fill.pages), physical)?;
                mapped.push(fill);
                Ok(())
            })
            .and_then(|()| {
                plan.ranges
                    .iter()
                    .try_for_each(|&(page, pages)| self.backing.grant(self.page_address(page), self.page_bytes(pages)))
            });
        if result.is_err() {
            let unmap = |fill: &&Fill| self.backing.unmap(self.page_address(fill.page), self.page_bytes(fill.pages));
            mapped.retain(|fill| unmap(fill).is_err());
            if mapped.is_empty() {
                self.release_all(inner, created);
                return result;
            }
            tracing::warn!(device = %self.device, places = mapped.len(), "what a failed allocation mapped could not be unmapped; it is tried again");
            let stray = mapped.into_iter().map(|fill| (None, inner.arena.keep_mapped(fill.page, fill.pages)));
            stray.for_each(|old| inner.retiring.push_front(old));
            // The memory is held for as long as it is mapped, so it is released after that.
            inner.orphans.extend(created);
            inner.figures.physical_peak = inner.figures.physical_peak.max(self.physical(inner));
        }
        result
    }

    pub(crate) fn page_address(&self, page: u64) -> Address {
        self.base.plus(page * self.backing.granularity)
    }

    pub(crate) fn page_bytes(&self, pages: u64) -> u64 {
        pages * self.backing.granularity
    }

    /// Bytes of the device's memory that this pool holds.
    pub(crate) fn physical(&self, inner: &Inner) -> u64 {
        self.page_bytes(inner.arena.mapped_pages()) + inner.unmapped()
    }
}
