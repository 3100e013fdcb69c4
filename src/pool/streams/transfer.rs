//! Ownership transfer: another stream's free memory, behind a wait on the device. The requesting stream waits for the
//! other's work; the host does not.

use std::sync::Arc;

use super::ordered_arena::OrderedArena;
use super::registry::List;
use crate::driver::Result;
use crate::pool::cache::stream::Stream;
use crate::pool::order::fence::Fence;
use crate::units::GRANULE;

/// Streams whose free memory fits a request of `to`, those with most memory first.
pub(crate) fn sources(list: &List, memory: &OrderedArena, to: &Stream, granules: u64) -> Vec<Arc<Stream>> {
    let mut sources: Vec<Arc<Stream>> = list.all().cloned().collect();
    sources.retain(|from| from.slot != to.slot && memory.arena.can_transfer(from.owner, to.owner, granules));
    sources.sort_by_key(|from| std::cmp::Reverse(memory.arena.owner_free(from.owner)));
    sources
}

/// Makes `to` wait for the fence of `from` and transfers free memory of `from` that fits the request. Returns the
/// granules transferred; `None` if `to` does not wait.
pub(crate) fn transfer(memory: &mut OrderedArena, from: &Stream, to: &Stream, granules: u64) -> Result<Option<u64>> {
    let before = memory.fence(from.slot).filter(|&(_, epoch)| memory.arena.has_up_to(from.owner, epoch, granules));
    let covered = match (before, from.own_fences()) {
        // An earlier fence covers enough, so work that `from` got since need not be waited for.
        (Some((fence, epoch)), _) => {
            fence.make_stream_wait(to.handle)?;
            epoch
        }
        (None, Some(fences)) => {
            if !from.cover_unfenced() {
                return Ok(None);
            }
            fences.make_stream_wait(to.handle)?;
            u64::MAX
        }
        (None, None) => {
            let (fence, epoch) = record_for_others(memory, from)?;
            fence.make_stream_wait(to.handle)?;
            epoch
        }
    };
    // Transferred memory is free only behind the wait that was just queued.
    to.record_own(false)?;
    let epoch = memory.epoch(to.slot);
    // If blocks are freed across streams, only the blocks needed are transferred: each can then be waited for on its
    // own.
    let whole = !memory.has_cross_stream_frees;
    let moved = memory.arena.transfer(from.owner, to.owner, covered, epoch, granules, whole);
    if !whole && !memory.arena.has_up_to(from.owner, covered, granules) {
        // The next transfer waits only for the work that `from` has now, not for later work. It works without this
        // fence, too.
        let _ = record_next(memory, from);
    }
    tracing::debug!(from = %from.handle, to = %to.handle, bytes = moved * GRANULE, "memory transferred");
    Ok(Some(moved))
}

/// Records a fence behind all work that a stream has now, if possible.
pub(crate) fn record_next(memory: &mut OrderedArena, stream: &Stream) -> bool {
    let Some(fences) = stream.own_fences() else { return record_for_others(memory, stream).is_ok() };
    let is_pending = memory.fence(stream.slot).is_some();
    let Some(turn) = stream.turn(is_pending) else { return false };
    memory.recorded_for_others(stream, Arc::clone(fences.of(turn)));
    true
}

/// The same for a durable stream. Returns the fence and the epoch that it covers.
pub(crate) fn record_for_others(memory: &mut OrderedArena, stream: &Stream) -> Result<(Arc<Fence>, u64)> {
    let fence = Fence::after_uncaptured(&stream.gpu, stream.handle)?;
    let epoch = memory.recorded_for_others(stream, Arc::clone(&fence));
    Ok((fence, epoch))
}
