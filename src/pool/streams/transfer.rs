//! Long blocks that one stream asks for and another frees, again and again.
//!
//! They go straight to the arena, and the freeing stream's fence is raised there and then: when the other stream asks for the next
//! one it has mostly passed, and one look at it is all that the request takes. Where nothing is handed over, none of this is done.

use std::sync::Arc;

use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::{Cached, Front};
use crate::pool::device::DevicePool;
use crate::pool::device::state::Inner;

impl DevicePool {
    /// Takes a long block that another stream was given, in the order of `stream`.
    pub(crate) fn hand_back(&self, stream: &Stream, block: Cached) {
        let mut inner = self.inner.lock();
        inner.give(block.start, stream.slot, stream.owner);
        self.hand_back_in_time(&mut inner, stream);
    }

    /// A long block that another stream was given is on its way to the order of `stream`, as soon as its other uses are over. Those
    /// before it may have come there since: each has its fence before the other stream runs out of them. The event is recorded under the
    /// lock: what other threads hand to the arena between the event and its epoch would count as covered.
    pub(crate) fn hand_back_in_time(&self, inner: &mut Inner, stream: &Stream) {
        inner.handed_over = true;
        Self::give_first_deferred(inner);
        let lacks_fence = inner.arena.owner_free(stream.owner) > 0 && inner.fence(stream.slot).is_none();
        if lacks_fence && stream.is_durable() {
            // Without one it takes longer.
            let _ = self.raise_fence_of(inner, stream);
        }
    }

    /// What another stream handed back, if its fence has passed. pre: the request is [long](Front::is_long).
    pub(crate) fn handed_back(&self, stream: &Stream, grains: u64) -> Option<u64> {
        debug_assert!(Front::is_long(grains), "shorter blocks are in fronts, not in the arena");
        let mut inner = self.inner.lock();
        if !inner.handed_over {
            return None;
        }
        let lends = |other: &&Arc<Stream>| other.slot != stream.slot && inner.arena.owner_free(other.owner) >= grains;
        let lender = self.streams.read().all().find(lends).cloned()?;
        self.look_at_fence(&mut inner, &lender);
        let start = inner.arena.take(stream.owner, grains)?;
        inner.figures.misses += 1;
        Some(start)
    }
}
