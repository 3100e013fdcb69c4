//! Long blocks that one stream asks for and another frees, again and again.
//!
//! They go straight to the arena, and the freeing stream's fence is raised there and then: when the other stream asks for the next
//! one it has mostly passed, and one look at it is all that the request takes. Where nothing is handed over, none of this is done.

use std::sync::Arc;

use super::device::DevicePool;
use super::inner::Inner;
use super::stream::Stream;
use crate::pool::{Cached, Front};

impl DevicePool {
    /// Takes a long block that another stream was given, in the order of `stream`.
    pub(super) fn hand_back(&self, stream: &Stream, block: Cached) {
        // Recorded without the lock: the stream's queue may be full.
        let none_yet = stream.is_durable() && self.inner.lock().fence(stream.slot).is_none();
        let fence = if none_yet { self.fence_after(stream).ok() } else { None };
        let mut inner = self.inner.lock();
        inner.handed_over = true;
        let epoch = inner.epoch(stream.slot);
        inner.arena.give(block.start, stream.owner, epoch);
        if let Some(fence) = fence.filter(|_| inner.fence(stream.slot).is_none()) {
            inner.raised(stream.slot, fence);
        }
    }

    /// A long block that another stream was given is on its way to the order of `stream`, as soon as its other uses are over. Those
    /// before it may have come there since: each has its fence before the other stream runs out of them.
    pub(super) fn hand_back_in_time(&self, inner: &mut Inner, stream: &Stream) {
        inner.handed_over = true;
        Self::give_first_deferred(inner);
        let free = inner.arena.owner_free(stream.owner) > 0;
        if free && stream.is_durable() && inner.fence(stream.slot).is_none() {
            // Without one it takes longer.
            let _ = self.raise_fence_of(inner, stream);
        }
    }

    /// What another stream handed back, if its fence has passed. pre: the request is [long](Front::is_long).
    pub(super) fn handed_back(&self, stream: &Stream, grains: u64) -> Option<u64> {
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
