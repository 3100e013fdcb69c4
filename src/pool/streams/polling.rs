//! Polling fences: what a stream freed becomes unowned once its fence has passed.

use std::sync::Arc;

use super::ordered_arena::OrderedArena;
use super::registry::List;
use super::transfer::{record_for_others, record_next};
use crate::pool::cache::stream::Stream;
use crate::pool::order::event_pair::EventPair;
use crate::pool::order::fence::Fence;

/// Empties every cache and polls the fence of each stream that `may_poll` allows, without waiting.
pub(crate) fn poll(list: &List, memory: &mut OrderedArena, may_poll: impl Fn(&Stream) -> bool) {
    for stream in list.all() {
        memory.drain(stream);
    }
    for stream in list.all() {
        if memory.arena.owner_free(stream.owner) > 0 && may_poll(stream) {
            poll_fence(memory, stream);
        }
    }
}

/// Makes a stream's free memory unowned if its fence has passed. Records a fence if there is none.
pub(crate) fn poll_fence(memory: &mut OrderedArena, stream: &Stream) {
    if let Some(fences) = stream.own_fences() {
        if !stream.cover_unfenced() {
            return;
        }
        if fences.passed() {
            memory.arena.promote(stream.owner, u64::MAX);
            return memory.cleared(stream.slot);
        }
    }
    // At most three turns: an old fence has passed, a new one is recorded, and that one has passed too.
    for _ in 0..3 {
        match memory.fence(stream.slot) {
            Some((fence, epoch)) if fence.passed() => {
                memory.arena.promote(stream.owner, epoch);
                memory.cleared(stream.slot);
            }
            // One pending fence at a time: recorded again and again, it would never pass.
            Some((_, epoch)) => {
                // Without such frees each stream allocates what it frees, so its free memory may merge.
                if memory.has_cross_stream_frees {
                    memory.arena.set_merge_barrier(stream.owner, epoch);
                }
                return;
            }
            None if memory.arena.owner_free(stream.owner) == 0 => return,
            None if !record_next(memory, stream) => return,
            None => {}
        }
    }
}

/// Every fence that covers free memory of a stream.
pub(crate) fn pending(list: &List, memory: &mut OrderedArena) -> Vec<Arc<Fence>> {
    let mut fences = Vec::new();
    for stream in list.all() {
        if memory.arena.owner_free(stream.owner) == 0 {
            continue;
        }
        if stream.is_durable() {
            fences.extend(memory.fence(stream.slot).map(|(fence, _)| fence));
        } else if stream.cover_unfenced() {
            fences.extend(stream.fences.iter().flat_map(EventPair::both).cloned());
        }
    }
    fences
}

/// Records a fence behind the frees of `stream`, which frees long blocks that another stream allocates, so that the
/// fence has passed before the other stream runs out of blocks. Called under the arena's lock: memory that other
/// threads free between the event and its epoch would otherwise count as covered.
pub(crate) fn record_early_fence(memory: &mut OrderedArena, stream: &Stream) {
    memory.has_cross_stream_frees = true;
    let lacks_fence = memory.arena.owner_free(stream.owner) > 0 && memory.fence(stream.slot).is_none();
    if lacks_fence && stream.is_durable() {
        // Without the fence a transfer takes longer.
        let _ = record_for_others(memory, stream);
    }
}

/// Takes memory that another stream freed and whose fence has passed, where one stream allocates long blocks and
/// another frees them. Costs the request one poll of one fence.
pub(crate) fn take_from_other_stream(
    list: &List,
    memory: &mut OrderedArena,
    stream: &Stream,
    granules: u64,
) -> Option<u64> {
    if !memory.has_cross_stream_frees {
        return None;
    }
    let has = |other: &&Arc<Stream>| other.slot != stream.slot && memory.arena.owner_free(other.owner) >= granules;
    let other = list.all().find(has)?;
    poll_fence(memory, other);
    memory.arena.take(stream.owner, granules)
}
