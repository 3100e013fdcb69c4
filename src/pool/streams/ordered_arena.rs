//! The arena, and how much of each stream's free memory a fence covers.

use std::sync::Arc;

use crate::arena::{Arena, Owner};
use crate::pool::cache::stream::Stream;
use crate::pool::order::fence::Fence;

/// Protected by the arena's lock.
#[derive(Debug)]
pub(crate) struct OrderedArena {
    pub arena: Arena,
    /// Indexed by stream slot.
    orders: Vec<Order>,
    /// Whether long blocks of one stream were ever freed on another.
    pub has_cross_stream_frees: bool,
}

/// How much of a stream's free memory a fence covers.
#[derive(Debug, Default)]
struct Order {
    /// The epoch of frees from now on.
    epoch: u64,
    /// The newest fence that was recorded, and the epoch it covers.
    fence: Option<(Arc<Fence>, u64)>,
}

impl OrderedArena {
    pub fn new(arena: Arena) -> Self {
        Self { arena, orders: Vec::new(), has_cross_stream_frees: false }
    }

    fn order(&mut self, slot: u16) -> &mut Order {
        let slot = slot as usize;
        if self.orders.len() <= slot {
            self.orders.resize_with(slot + 1, Order::default);
        }
        &mut self.orders[slot]
    }

    /// The epoch of a free on this stream now.
    pub fn epoch(&mut self, slot: u16) -> u64 {
        self.order(slot).epoch
    }

    /// Frees a block in the order of the stream in `slot`.
    pub fn give(&mut self, start: u64, slot: u16, owner: Owner) {
        let epoch = self.epoch(slot);
        self.arena.give(start, owner, epoch);
    }

    /// Stores a fence that was recorded behind everything the stream freed so far.
    pub fn recorded(&mut self, slot: u16, fence: Arc<Fence>) {
        let order = self.order(slot);
        order.fence = Some((fence, order.epoch));
        order.epoch += 1;
    }

    /// Stores a fence that was recorded because another stream needs the memory. Returns the epoch that it covers. If
    /// blocks are freed across streams, memory that the fence covers does not merge with later frees.
    pub fn recorded_for_others(&mut self, stream: &Stream, fence: Arc<Fence>) -> u64 {
        let epoch = self.epoch(stream.slot);
        self.recorded(stream.slot, fence);
        if self.has_cross_stream_frees {
            self.arena.set_merge_barrier(stream.owner, epoch);
        }
        epoch
    }

    /// The stream's newest fence, and the epoch it covers.
    pub fn fence(&mut self, slot: u16) -> Option<(Arc<Fence>, u64)> {
        self.order(slot).fence.clone()
    }

    /// Removes the stream's fence, which has passed.
    pub fn cleared(&mut self, slot: u16) {
        self.order(slot).fence = None;
    }

    /// Empties a stream's cache into the arena.
    pub fn drain(&mut self, stream: &Stream) {
        let epoch = self.epoch(stream.slot);
        let arena = &mut self.arena;
        stream.drain(|block, coming| {
            arena.prefetch_give(coming);
            arena.give(block.start, stream.owner, epoch);
        });
    }

    /// Resets the slot for another stream.
    pub fn forget(&mut self, slot: u16) {
        *self.order(slot) = Order::default();
    }
}
