//! What the arena's lock protects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::export::Export;
use crate::arena::{Arena, Owner, Retired};
use crate::driver::Physical;
use crate::policy::growth::Growth;
use crate::policy::time_budget::Allowance;
use crate::pool::cache::stream::Stream;
use crate::pool::graph::private::Private;
use crate::pool::order::fence::Fence;

/// The arena, and everything about it that is not in the streams' fronts.
pub(crate) struct Inner {
    pub arena: Arena,
    /// By stream slot.
    orders: Vec<Order>,
    /// Old places of moved chunks, oldest first, and places that a failed allocation could not unmap; without a fence they may be
    /// unmapped at once.
    pub retiring: VecDeque<(Option<Arc<Fence>>, Retired)>,
    /// Freed blocks that further streams may still use.
    pub deferred: Vec<Deferred>,
    /// Further streams that use a live block, by its start.
    pub uses: HashMap<u64, Vec<Arc<Stream>>>,
    /// Private pools by id.
    pub privates: HashMap<u128, Private>,
    /// Which private pool a live block came from, by its start.
    pub private_blocks: HashMap<u64, u128>,
    /// Freed blocks whose last use nothing but a wait for the whole device proves to be over.
    pub quarantine: Vec<(u64, Owner)>,
    /// Owners of released private pools, waiting for the same.
    pub released: HashSet<Owner>,
    /// What was exported of live blocks, by their start.
    pub exports: HashMap<u64, Vec<Export>>,
    /// Physical memory made for a plan that came out otherwise, for the next one. Bytes beside it.
    pub prepared: Vec<(Physical, u64)>,
    /// Physical memory that no chunk has: the driver refused to take it back, or to unmap it.
    pub orphans: Vec<(Physical, u64)>,
    /// So many requests make room without a look at every stream.
    pub unsettled: usize,
    /// Whether long blocks of one stream were ever freed on another.
    pub handed_over: bool,
    /// Whether chunks are moved or taken.
    pub growth: Growth,
    /// What the pool grew to since that was looked at last, in bytes; 0 if it did not.
    pub grown_to: u64,
    /// What may still go into more and smaller chunks than necessary.
    pub small_chunks: Allowance,
    pub figures: Figures,
}

/// How far a stream's frees are covered by a fence.
#[derive(Debug, Default)]
struct Order {
    /// Frees now get this epoch.
    epoch: u64,
    /// The newest fence raised, and the epoch it covers.
    fence: Option<(Arc<Fence>, u64)>,
}

/// A block that waits for fences.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub start: u64,
    pub owner: Owner,
    pub slot: u16,
    pub fences: Vec<Arc<Fence>>,
}

impl Deferred {
    /// Whether all that it waits for is done.
    pub fn is_over(&self) -> bool {
        self.fences.iter().all(|fence| fence.passed())
    }
}

/// Counted under the lock. Bytes and counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub physical_peak: u64,
    pub misses: u64,
    pub steals: u64,
    pub growths: u64,
    pub waits: u64,
    pub releases: u64,
    pub out_of_memory: u64,
    /// Of streams that were forgotten.
    pub past_allocations: u64,
    pub past_frees: u64,
    pub past_hits: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("arena", &self.arena).field("figures", &self.figures).finish_non_exhaustive()
    }
}

impl Inner {
    /// `now`: on the driver's clock.
    pub fn new(arena: Arena, now: Duration) -> Self {
        Self {
            arena,
            orders: Vec::new(),
            retiring: VecDeque::new(),
            deferred: Vec::new(),
            uses: HashMap::new(),
            privates: HashMap::new(),
            private_blocks: HashMap::new(),
            quarantine: Vec::new(),
            released: HashSet::new(),
            exports: HashMap::new(),
            prepared: Vec::new(),
            orphans: Vec::new(),
            unsettled: 0,
            handed_over: false,
            growth: Growth::new(now),
            grown_to: 0,
            small_chunks: Allowance::for_small_chunks(now),
            figures: Figures::default(),
        }
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

    /// A fence was raised behind everything that this stream freed so far.
    pub fn raised(&mut self, slot: u16, fence: Arc<Fence>) {
        let order = self.order(slot);
        order.fence = Some((fence, order.epoch));
        order.epoch += 1;
    }

    /// The same because somebody else wants that memory, and the epoch that the fence covers. Where blocks are handed over, what it covers
    /// is kept apart from what is freed later.
    pub fn raised_for_others(&mut self, stream: &Stream, fence: Arc<Fence>) -> u64 {
        let epoch = self.epoch(stream.slot);
        self.raised(stream.slot, fence);
        if self.handed_over {
            self.arena.seal(stream.owner, epoch);
        }
        epoch
    }

    /// The newest fence of this stream, and the epoch it covers.
    pub fn fence(&mut self, slot: u16) -> Option<(Arc<Fence>, u64)> {
        self.order(slot).fence.clone()
    }

    /// The stream's fence has passed and been acted on.
    pub fn lowered(&mut self, slot: u16) {
        self.order(slot).fence = None;
    }

    /// Empties a stream's front cache into the arena.
    pub fn drain(&mut self, stream: &Stream) {
        let epoch = self.epoch(stream.slot);
        let arena = &mut self.arena;
        stream.drain(|block, coming| {
            arena.await_give(coming);
            arena.give(block.start, stream.owner, epoch);
        });
    }

    /// Whether a private pool keeps memory in this stream's order.
    pub fn is_bound_to_private(&self, slot: u16) -> bool {
        self.privates.values().any(|private| private.owners.contains_key(&slot))
    }

    /// Whether a freed block is still to come back to this owner.
    pub fn awaits(&self, owner: Owner) -> bool {
        self.deferred.iter().any(|block| block.owner == owner) || self.quarantine.iter().any(|&(_, of)| of == owner)
    }

    /// The slot will name another stream.
    pub fn forget_order(&mut self, slot: u16) {
        *self.order(slot) = Order::default();
    }

    /// Bytes of physical memory held for this pool that are not mapped.
    pub fn unmapped(&self) -> u64 {
        self.orphans.iter().chain(&self.prepared).map(|&(_, bytes)| bytes).sum()
    }
}
