//! The slow path: memory for a request that no cache could serve.
//!
//! Under the state's lock: best fit; the stream's own cache emptied; every cache emptied and every fence
//! looked at; chunks moved; memory of other streams behind their fence; new chunks within the limit.
//! Without the lock, when all that is not enough: waits for what is pending, then asks others to give back.

use std::sync::atomic::Ordering;

use super::chunks::{carry_out, held, lacking, note_held, prepare, prepared_for_others, release_all};
use super::device_pool::{DevicePool, add_time};
use super::need::{Failure, Need, Shortage};
use super::reclaim::{self, poll};
use super::state::State;
use crate::arena::{Chunking, IDLE, Plan};
use crate::driver::ErrorKind;
use crate::policy::time_budget::{GROW, MOVE, pinning, times};
use crate::pool::cache::stream::Stream;
use crate::pool::streams::polling;
use crate::pool::streams::transfer::{sources, transfer};
use crate::units::GRAIN;

/// Below this share of the device's memory a pool grows rather than make one stream wait for another.
const FREE_GROWTH: u64 = 128;

/// Other streams' memory is worth a wait where it serves the request, or is one part in so many of what the pool would hold: what is
/// left with them when the pool grows stays on top of what is live.
const WORTH_A_WAIT: u64 = 64;

/// Where a stream was asked for so many blocks, the pool is in use.
const IN_USE: u64 = 8192;

/// A request on the slow path looks at so many streams, on average, where that gives nothing.
const STREAMS_PER_REQUEST: usize = 64;

/// What another stream handed over, if its fence has passed. pre: the request is long; shorter blocks are in caches.
pub(crate) fn handed_over(pool: &DevicePool, stream: &Stream, grains: u64) -> Option<u64> {
    let mut state = pool.state.lock();
    let start = polling::handed_over(&pool.streams.read(), &mut state.memory, stream, grains)?;
    state.counts.misses += 1;
    Some(start)
}

/// Finds memory, or makes it. Returns where it starts.
#[cold]
pub(crate) fn slow_path(pool: &DevicePool, need: Need<'_>) -> Result<u64, Failure> {
    pool.state.lock().counts.misses += 1;
    let bytes = need.grains * GRAIN;
    if bytes > pool.backing.total {
        return Err(refused(pool, bytes, Shortage::Total));
    }
    let driver = &pool.gpu.driver;
    let mut steps = reclaim::STEPS.iter();
    let mut looked = false;
    loop {
        let begun = driver.now();
        let made = make(pool, need);
        add_time(&pool.times.making, driver.now().saturating_sub(begun));
        let shortage = match made {
            Err(Failure::Memory(_, shortage)) => shortage,
            other => return other,
        };
        {
            let mut state = pool.state.lock();
            // It may have made do without a look at every stream.
            if std::mem::take(&mut state.unpolled) > 0 && !std::mem::replace(&mut looked, true) {
                continue;
            }
            if let Some(start) = state.memory.arena.take_anywhere(need.owner, need.grains) {
                return Ok(start);
            }
        }
        let begun = driver.now();
        // Only a step that gave something back is worth another try.
        let helped = steps.by_ref().any(|step| step(pool, bytes));
        add_time(&pool.times.waiting, driver.now().saturating_sub(begun));
        if !helped {
            return Err(refused(pool, bytes, shortage));
        }
    }
}

fn refused(pool: &DevicePool, bytes: u64, shortage: Shortage) -> Failure {
    pool.state.lock().counts.out_of_memory += 1;
    Failure::Memory(bytes, shortage)
}

/// All that can be done without waiting for the GPU.
fn make(pool: &DevicePool, need: Need<'_>) -> Result<u64, Failure> {
    let DevicePool { gpu, backing, .. } = pool;
    let Need { stream, owner, grains, .. } = need;
    let short = |shortage| Err(Failure::Memory(grains * GRAIN, shortage));
    let mut guard = pool.state.lock();
    let state = &mut *guard;
    if let Some(start) = state.memory.arena.take(owner, grains) {
        return Ok(start);
    }
    state.memory.drain(stream);
    state.memory.arena.unseal(owner);
    if let Some(start) = state.memory.arena.take(owner, grains) {
        return Ok(start);
    }
    poll_if_worth_it(pool, state, need);
    let mut prepared = false;
    let now = gpu.driver.now();
    // A chunk costs next to nothing beside the pinning of its memory.
    let pinned = backing.is_host();
    let live = (state.memory.arena.live_grains() + grains) * GRAIN;
    let allowed = state.growth.may_move(now, live);
    let mut may_move = allowed;
    let in_use = pinned || stream.requests() >= IN_USE;
    // As many chunks as serve memory best, where there is time for them.
    let with_time = pinned || state.small_chunks.is_left(now);
    let chunking = Chunking {
        tiny: in_use.then_some(if with_time { 1 } else { 2 }),
        most_pages: pool.limit.load(Ordering::Relaxed) / backing.granularity,
    };
    loop {
        let state = &mut *guard;
        if let Some(start) = state.memory.arena.take(owner, grains) {
            return Ok(start);
        }
        let Some(plan) = plan(state, need, may_move, chunking) else { return short(Shortage::Addresses) };
        let (held, new_bytes) = (held(backing, state), lacking(backing, state, &plan));
        let over = over_limit(pool, state, &plan);
        if !may_move && (over > 0 || !state.growth.may_grow(now, held + new_bytes, live)) {
            may_move = true;
            continue;
        }
        let thrifty = new_bytes > 0 && !pool.grow_first && held + new_bytes > backing.total / FREE_GROWTH;
        if over > 0 || thrifty {
            let worth = new_bytes.min((held + new_bytes) / WORTH_A_WAIT);
            let idle = || gpu.is_idle(stream.handle);
            let spared = |state: &State| state.growth.may_spare_a_wait(held + new_bytes, idle);
            if transfers(pool, state, need, worth, |state| over == 0 && spared(state)) {
                continue;
            }
        }
        if over > 0 && plan.new_pages() > 0 {
            // Several may have prepared for themselves, and too much together.
            let others = prepared_for_others(backing, state, &plan);
            if !others.is_empty() {
                state.prepared.retain(|made| !others.contains(made));
                release_all(backing, state, &others);
                continue;
            }
            return short(Shortage::Limit(over));
        }
        if new_bytes > 0 && !prepared && pinned {
            // Pinning takes 0.3 ms a MiB: others go on meanwhile, and may change what there is to plan with.
            let made = parking_lot::MutexGuard::unlocked(&mut guard, || prepare(backing, &plan));
            let state = &mut *guard;
            state.growth.pinned(pinning(made.iter().map(|&(_, bytes)| bytes).sum()));
            state.prepared.extend(made);
            note_held(backing, state);
            prepared = true;
            continue;
        }
        match carry_out(gpu, backing, state, &plan, need) {
            Ok(()) => {
                let moving = times(MOVE, plan.moves());
                state.growth.moved(moving, !allowed);
                if in_use && with_time {
                    state.small_chunks.took(moving + times(GROW, plan.new_chunks()));
                }
                return Ok(plan.start);
            }
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                if !may_move {
                    may_move = true;
                    continue;
                }
                if !transfers(pool, state, need, 0, |_| false) {
                    return short(Shortage::Device(error));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Looks at every stream, unless that gave nothing lately and there are so many streams that a request cannot pay for it.
fn poll_if_worth_it(pool: &DevicePool, state: &mut State, need: Need<'_>) {
    if state.unpolled > 0 {
        state.unpolled -= 1;
        return;
    }
    let free = |state: &State| (state.memory.arena.live_grains(), state.memory.arena.owner_free(IDLE));
    let before = free(state);
    // Its own memory is as good as idle to a stream, but not to the host.
    let own = (need.owner != IDLE).then_some(need.stream.slot);
    poll(pool, state, |stream| own != Some(stream.slot));
    if free(state) == before {
        state.unpolled = pool.streams.read().len() / STREAMS_PER_REQUEST;
    }
}

/// How to make room: with as little new memory as can be, or without moving anything.
fn plan(state: &mut State, need: Need<'_>, may_move: bool, chunking: Chunking) -> Option<Plan> {
    if !may_move {
        return state.memory.arena.plan_new(need.owner, need.grains, chunking);
    }
    let epoch = need.epoch(&mut state.memory);
    state.memory.arena.complete_chunks(need.owner, epoch);
    state.memory.arena.plan(need.owner, need.grains, chunking)
}

/// By how many bytes a plan would exceed the limit.
fn over_limit(pool: &DevicePool, state: &State, plan: &Plan) -> u64 {
    let wanted = held(&pool.backing, state) + lacking(&pool.backing, state, plan);
    wanted.saturating_sub(pool.limit.load(Ordering::Relaxed))
}

/// Hands the asking stream other streams' memory, the richest's first, if they have `worth` bytes together. `spared` is asked only where
/// there is any. Returns whether anything changed hands.
fn transfers(
    pool: &DevicePool,
    state: &mut State,
    need: Need<'_>,
    worth: u64,
    spared: impl FnOnce(&State) -> bool,
) -> bool {
    if need.private {
        return false;
    }
    let sources = sources(&pool.streams.read(), &state.memory, need.stream, need.grains, worth);
    if sources.is_empty() || spared(state) {
        return false;
    }
    for from in &sources {
        if let Ok(Some(moved)) = transfer(&mut state.memory, from, need.stream, need.grains) {
            state.counts.waits += 1;
            state.growth.waited();
            if moved > 0 {
                return true;
            }
        }
    }
    false
}
