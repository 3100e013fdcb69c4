//! Ownership transfer: memory of another stream, behind a wait on the device. The asking stream waits for what the other has; the host
//! goes on.

use std::sync::Arc;

use super::ordered_arena::OrderedArena;
use super::registry::List;
use crate::driver::Result;
use crate::pool::cache::stream::Stream;
use crate::pool::order::fence::Fence;
use crate::units::GRANULE;

/// The streams whose free memory helps `to`, richest first.
pub(crate) fn sources(list: &List, memory: &OrderedArena, to: &Stream, granules: u64) -> Vec<Arc<Stream>> {
    let mut sources: Vec<Arc<Stream>> = list.all().cloned().collect();
    sources.retain(|from| from.slot != to.slot && memory.arena.can_transfer(from.owner, to.owner, granules));
    sources.sort_by_key(|from| std::cmp::Reverse(memory.arena.owner_free(from.owner)));
    sources
}

/// Makes `to` wait for the fence of `from`, and hands it what of that stream's free memory helps. Returns the granules that changed
/// hands; `None` where `to` was not made to wait.
pub(crate) fn transfer(memory: &mut OrderedArena, from: &Stream, to: &Stream, granules: u64) -> Result<Option<u64>> {
    let before = memory.fence(from.slot).filter(|&(_, epoch)| memory.arena.has_up_to(from.owner, epoch, granules));
    let covered = match (before, from.own_fences()) {
        // No need to wait for what the other was given since.
        (Some((fence, epoch)), _) => {
            fence.hold_back(to.handle)?;
            epoch
        }
        (None, Some(fences)) => {
            if !from.cover_unfenced() {
                return Ok(None);
            }
            fences.hold_back(to.handle)?;
            u64::MAX
        }
        (None, None) => {
            let (fence, epoch) = record_for_others(memory, from)?;
            fence.hold_back(to.handle)?;
            epoch
        }
    };
    // What is had so is free only behind the wait that was just queued.
    to.record_own(false)?;
    let epoch = memory.epoch(to.slot);
    // Where blocks are handed over, the other's are freed one by one: so they can be waited for, one by one.
    let whole = !memory.hands_over;
    let moved = memory.arena.transfer(from.owner, to.owner, covered, epoch, granules, whole);
    if !whole && !memory.arena.has_up_to(from.owner, covered, granules) {
        // The next to ask waits for what the other has now, not for what it gets until then. It can do without.
        let _ = record_next(memory, from);
    }
    tracing::debug!(from = %from.handle, to = %to.handle, bytes = moved * GRANULE, "memory changed streams");
    Ok(Some(moved))
}

/// A fence behind all that a stream has now, if that can be.
pub(crate) fn record_next(memory: &mut OrderedArena, stream: &Stream) -> bool {
    let Some(fences) = stream.own_fences() else { return record_for_others(memory, stream).is_ok() };
    let is_pending = memory.fence(stream.slot).is_some();
    let Some(turn) = stream.turn(is_pending) else { return false };
    memory.recorded_for_others(stream, Arc::clone(fences.of(turn)));
    true
}

/// The same for a durable stream, and the epoch that it covers.
pub(crate) fn record_for_others(memory: &mut OrderedArena, stream: &Stream) -> Result<(Arc<Fence>, u64)> {
    let fence = Fence::after_uncaptured(&stream.gpu, stream.handle)?;
    let epoch = memory.recorded_for_others(stream, Arc::clone(&fence));
    Ok((fence, epoch))
}
