//! The arena, and how far each stream's frees in it are covered by a fence.

use std::sync::Arc;

use crate::arena::{Arena, Owner};
use crate::pool::cache::stream::Stream;
use crate::pool::order::fence::Fence;

/// Behind the arena's lock.
#[derive(Debug)]
pub(crate) struct OrderedArena {
    pub arena: Arena,
    /// By stream slot.
    orders: Vec<Order>,
    /// Whether long blocks of one stream were ever freed on another.
    pub hands_over: bool,
}

/// How far a stream's frees are covered by a fence.
#[derive(Debug, Default)]
struct Order {
    /// Frees now get this epoch.
    epoch: u64,
    /// The newest fence recorded, and the epoch it covers.
    fence: Option<(Arc<Fence>, u64)>,
}

impl OrderedArena {
    pub fn new(arena: Arena) -> Self {
        Self { arena, orders: Vec::new(), hands_over: false }
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

    /// Takes a block into the order of the stream in that slot.
    pub fn give(&mut self, start: u64, slot: u16, owner: Owner) {
        let epoch = self.epoch(slot);
        self.arena.give(start, owner, epoch);
    }

    /// A fence was recorded behind everything that this stream freed so far.
    pub fn recorded(&mut self, slot: u16, fence: Arc<Fence>) {
        let order = self.order(slot);
        order.fence = Some((fence, order.epoch));
        order.epoch += 1;
    }

    /// The same because somebody else wants that memory, and the epoch that the fence covers. Where blocks are handed over, what it
    /// covers is kept apart from what is freed later.
    pub fn recorded_for_others(&mut self, stream: &Stream, fence: Arc<Fence>) -> u64 {
        let epoch = self.epoch(stream.slot);
        self.recorded(stream.slot, fence);
        if self.hands_over {
            self.arena.set_merge_barrier(stream.owner, epoch);
        }
        epoch
    }

    /// The newest fence of this stream, and the epoch it covers.
    pub fn fence(&mut self, slot: u16) -> Option<(Arc<Fence>, u64)> {
        self.order(slot).fence.clone()
    }

    /// The stream's fence has passed and been acted on.
    pub fn cleared(&mut self, slot: u16) {
        self.order(slot).fence = None;
    }

    /// Empties a stream's cache into the arena.
    pub fn drain(&mut self, stream: &Stream) {
        let epoch = self.epoch(stream.slot);
        let arena = &mut self.arena;
        stream.drain(|block, coming| {
            arena.await_give(coming);
            arena.give(block.start, stream.owner, epoch);
        });
    }

    /// The slot will name another stream.
    pub fn forget(&mut self, slot: u16) {
        *self.order(slot) = Order::default();
    }
}
