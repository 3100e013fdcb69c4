//! Carries a plan out: creates, maps, moves, unmaps and releases chunks, and updates the arena.

use super::backing::Backing;
use super::need::Need;
use super::state::State;
use crate::arena::{Fill, Plan, Source};
use crate::driver::{DriverError, ErrorKind, Physical, Result};
use crate::pool::order::fence::Fence;
use crate::pool::order::gpu::Gpu;
use crate::units::{GRANULE, Human};

/// New chunks from which one query for free memory is cheap beside creating them.
const QUERY_FROM: u64 = 16;

/// Bytes of physical memory that the pool holds.
pub(crate) fn held(backing: &Backing, state: &State) -> u64 {
    backing.page_bytes(state.memory.arena.mapped_pages()) + state.unmapped()
}

/// Maps the chunks of a plan and commits it. On an error nothing has changed.
pub(crate) fn carry_out(gpu: &Gpu, backing: &Backing, state: &mut State, plan: &Plan, need: Need<'_>) -> Result<()> {
    compare_with_free(gpu, backing, plan)?;
    let moves = plan.moves();
    // Recorded before the move: the old places stay mapped until it has passed.
    let fence = match moves {
        0 => None,
        _ if need.private => None,
        // Behind all work of the requesting stream.
        _ => Some(Fence::after(&need.stream.gpu, need.stream.handle)?),
    };
    let created = create_all(backing, state, plan)?;
    map_all(backing, state, plan, &created)?;
    let handles: Vec<u64> = created.iter().map(|&(physical, _)| physical.0).collect();
    let epoch = need.epoch(&mut state.memory);
    let retired = state.memory.arena.commit(plan, need.owner, epoch, &handles);
    state.retiring.extend(retired.into_iter().map(|old| (fence.clone().filter(|_| !old.idle), old)));
    state.counts.steals += moves;
    state.counts.growths += created.len() as u64;
    let held = note_held(backing, state);
    if !created.is_empty() {
        state.history.grew();
        state.grown_to = state.grown_to.max(held);
    }
    if let Some(fence) = fence {
        state.memory.recorded(need.stream.slot, fence);
    }
    unmap_retired(gpu, backing, state);
    tracing::debug!(device = %gpu.device, bytes = plan.granules * GRANULE, moves, created = created.len(), "plan carried out");
    Ok(())
}

/// Updates the physical peak. Returns the bytes held.
pub(crate) fn note_held(backing: &Backing, state: &mut State) -> u64 {
    let held = held(backing, state);
    state.counts.physical_peak = state.counts.physical_peak.max(held);
    held
}

/// Fails if a plan needs more new memory than the driver has free. Creating chunks until the driver refuses would take
/// the memory from others meanwhile.
fn compare_with_free(gpu: &Gpu, backing: &Backing, plan: &Plan) -> Result<()> {
    if plan.new_chunks() < QUERY_FROM || backing.is_host() {
        return Ok(());
    }
    let (wanted, free) = (backing.page_bytes(plan.new_pages()), gpu.driver.memory_info(gpu.device)?.free);
    if wanted <= free {
        return Ok(());
    }
    let why = format!("{} more are needed and {} are free", Human(wanted), Human(free));
    Err(DriverError::new(ErrorKind::OutOfMemory, "cuMemGetInfo", why))
}

fn create_all(backing: &Backing, state: &mut State, plan: &Plan) -> Result<Vec<(Physical, u64)>> {
    let mut created = Vec::new();
    for bytes in new_sizes(backing, plan) {
        if let Some(place) = state.prepared.iter().position(|&(_, made)| made == bytes) {
            created.push(state.prepared.swap_remove(place));
            continue;
        }
        match backing.create(bytes) {
            Ok(physical) => created.push((physical, bytes)),
            Err(error) => {
                release_all(backing, state, &created);
                return Err(error);
            }
        }
    }
    Ok(created)
}

/// The bytes of each new chunk of a plan.
fn new_sizes<'a>(backing: &'a Backing, plan: &'a Plan) -> impl Iterator<Item = u64> + 'a {
    plan.fills.iter().filter(|fill| fill.source == Source::Create).map(|fill| backing.page_bytes(fill.pages))
}

/// Creates the physical memory of a plan until the driver refuses; carrying the plan out then reports the refusal.
pub(crate) fn prepare(backing: &Backing, plan: &Plan) -> Vec<(Physical, u64)> {
    new_sizes(backing, plan).map_while(|bytes| backing.create(bytes).ok().map(|physical| (physical, bytes))).collect()
}

/// Prepared memory that this plan does not use.
pub(crate) fn unused_prepared(backing: &Backing, state: &State, plan: &Plan) -> Vec<(Physical, u64)> {
    let mut left = state.prepared.clone();
    for bytes in new_sizes(backing, plan) {
        if let Some(place) = left.iter().position(|&(_, made)| made == bytes) {
            left.swap_remove(place);
        }
    }
    left
}

/// Bytes that a plan still needs to create; prepared memory already counts as held.
pub(crate) fn bytes_to_create(backing: &Backing, state: &State, plan: &Plan) -> u64 {
    let sum = |chunks: &[(Physical, u64)]| chunks.iter().map(|&(_, bytes)| bytes).sum::<u64>();
    let ready = sum(&state.prepared) - sum(&unused_prepared(backing, state, plan));
    backing.page_bytes(plan.new_pages()) - ready
}

/// Releases what a failed plan created. What the driver refuses to take stays held and is tried again.
pub(crate) fn release_all(backing: &Backing, state: &mut State, created: &[(Physical, u64)]) {
    for &(physical, bytes) in created {
        if let Err(error) = backing.release(physical) {
            tracing::warn!(place = %backing.place(), %error, "memory could not be given back; it is tried again");
            state.orphans.push((physical, bytes));
        }
    }
    note_held(backing, state);
}

/// Maps the chunks of a plan. After an error, releases what was created for it.
fn map_all(backing: &Backing, state: &mut State, plan: &Plan, created: &[(Physical, u64)]) -> Result<()> {
    let mut new = created.iter().map(|&(physical, _)| physical);
    let mut mapped: Vec<&Fill> = Vec::new();
    let result = plan
        .fills
        .iter()
        .try_for_each(|fill| {
            let physical = match fill.source {
                Source::Move(_, handle) => Physical(handle),
                Source::Create => new.next().unwrap_or(Physical(0)),
            };
            backing.map(fill.page, fill.pages, physical)?;
            mapped.push(fill);
            Ok(())
        })
        .and_then(|()| plan.ranges.iter().try_for_each(|&(page, pages)| backing.grant(page, pages)));
    if result.is_err() {
        mapped.retain(|fill| backing.unmap(fill.page, fill.pages).is_err());
        if mapped.is_empty() {
            release_all(backing, state, created);
            return result;
        }
        tracing::warn!(place = %backing.place(), places = mapped.len(), "what a failed allocation mapped could not be unmapped; it is tried again");
        let stray = mapped.into_iter().map(|fill| (None, state.memory.arena.keep_mapped(fill.page, fill.pages)));
        stray.for_each(|old| state.retiring.push_front(old));
        // A mapping holds its memory, so the memory is released after it.
        state.orphans.extend(created);
        note_held(backing, state);
    }
    result
}

/// Unmaps the old places of moved chunks, oldest first, up to the first whose fence has not passed.
pub(crate) fn unmap_retired(gpu: &Gpu, backing: &Backing, state: &mut State) {
    while let Some((fence, old)) = state.retiring.front() {
        if fence.as_ref().is_some_and(|fence| !fence.passed()) {
            return;
        }
        let old = *old;
        if let Err(error) = backing.unmap(old.page, old.pages) {
            tracing::warn!(device = %gpu.device, %error, "an old mapping could not be removed; it is tried again");
            return;
        }
        state.retiring.pop_front();
        state.memory.arena.unmapped(old);
    }
}

/// Retries the releases that the driver refused.
pub(crate) fn retry_orphans(backing: &Backing, state: &mut State) {
    // Places without a fence still have to be unmapped, and orphans may be mapped there: they stay held, and counted,
    // until then.
    if state.retiring.iter().any(|(fence, _)| fence.is_none()) {
        return;
    }
    state.orphans.retain(|&(physical, _)| backing.release(physical).is_err());
}

/// Releases free chunks until at most `keep` bytes are held, or none is left.
pub(crate) fn release_spare(backing: &Backing, state: &mut State, keep: u64) -> Result<()> {
    let over = held(backing, state).saturating_sub(keep).div_ceil(backing.granularity);
    let prepared = std::mem::take(&mut state.prepared);
    release_all(backing, state, &prepared);
    for spare in state.memory.arena.spare(over) {
        if backing.page_bytes(state.memory.arena.mapped_pages()) <= keep {
            break;
        }
        backing.unmap(spare.page, spare.pages)?;
        state.memory.arena.forget(spare);
        state.counts.releases += 1;
        let (physical, bytes) = (Physical(spare.handle), backing.page_bytes(spare.pages));
        backing.release(physical).inspect_err(|_| state.orphans.push((physical, bytes)))?;
    }
    Ok(())
}
