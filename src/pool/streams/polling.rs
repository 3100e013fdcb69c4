//! Polling fences: what a stream freed becomes anybody's memory once its fence has passed.

use std::sync::Arc;

use super::ordered_arena::OrderedArena;
use super::registry::List;
use super::transfer::{record_for_others, record_next};
use crate::pool::cache::stream::Stream;
use crate::pool::order::event_pair::EventPair;
use crate::pool::order::fence::Fence;

/// Empties every cache and looks at the fence of each stream that `may_look` allows, without waiting for any.
pub(crate) fn poll(list: &List, memory: &mut OrderedArena, may_look: impl Fn(&Stream) -> bool) {
    for stream in list.all() {
        memory.drain(stream);
    }
    for stream in list.all() {
        if memory.arena.owner_free(stream.owner) > 0 && may_look(stream) {
            look_at_fence(memory, stream);
        }
    }
}

/// Hands a stream's freed memory to everybody if its fence has passed; records one where there is none.
pub(crate) fn look_at_fence(memory: &mut OrderedArena, stream: &Stream) {
    if let Some(fences) = stream.own_fences() {
        if !stream.cover_unfenced() {
            return;
        }
        if fences.passed() {
            memory.arena.promote(stream.owner, u64::MAX);
            return memory.cleared(stream.slot);
        }
    }
    // At most: an old fence has passed, a new one is recorded, and that has passed too.
    for _ in 0..3 {
        match memory.fence(stream.slot) {
            Some((fence, epoch)) if fence.passed() => {
                memory.arena.promote(stream.owner, epoch);
                memory.cleared(stream.slot);
            }
            // One pending fence at a time: recording it again and again would keep it from passing.
            Some((_, epoch)) => {
                // Where each stream asks for what it frees, each has enough that joins as it may.
                if memory.hands_over {
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

/// Every fence that covers what streams freed.
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

/// A long block that another stream was given came back, or will as soon as its other uses are over, in the order of `stream`. Each such
/// block has its fence before the other stream runs out of them. The event is recorded under the arena's lock: what other threads hand
/// to the arena between the event and its epoch would count as covered.
pub(crate) fn expect_transfer(memory: &mut OrderedArena, stream: &Stream) {
    memory.hands_over = true;
    let lacks_fence = memory.arena.owner_free(stream.owner) > 0 && memory.fence(stream.slot).is_none();
    if lacks_fence && stream.is_durable() {
        // Without one it takes longer.
        let _ = record_for_others(memory, stream);
    }
}

/// What another stream handed over, if its fence has passed: long blocks that one stream asks for and another frees, again and again.
/// One look at the fence is all that the request takes.
pub(crate) fn handed_over(list: &List, memory: &mut OrderedArena, stream: &Stream, granules: u64) -> Option<u64> {
    if !memory.hands_over {
        return None;
    }
    let has = |other: &&Arc<Stream>| other.slot != stream.slot && memory.arena.owner_free(other.owner) >= granules;
    let other = list.all().find(has)?;
    look_at_fence(memory, other);
    memory.arena.take(stream.owner, granules)
}
