//! The data behind the arena's lock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::arena::{Arena, Owner, Retired};
use crate::driver::Physical;
use crate::policy::budget::TimeBudget;
use crate::policy::history::History;
use crate::pool::cache::stream::Stream;
use crate::pool::graph::private::Graphs;
use crate::pool::order::deferred::Deferred;
use crate::pool::order::fence::Fence;
use crate::pool::streams::ordered_arena::OrderedArena;
use crate::ticket::Ticket;

/// The arena, and all state of the pool that is not in the streams' caches.
pub(crate) struct State {
    pub memory: OrderedArena,
    /// Old places of moved chunks, oldest first, and places that a failed allocation could not unmap. Those without a
    /// fence may be unmapped at once.
    pub retiring: VecDeque<(Option<Arc<Fence>>, Retired)>,
    /// Freed blocks that further streams may still use.
    pub deferred: Vec<Deferred>,
    /// The further streams that use a live block, by its start.
    pub uses: HashMap<u64, Vec<Arc<Stream>>>,
    pub graphs: Graphs,
    /// Freed blocks whose last use only a wait for the whole device proves to be over.
    pub quarantine: Vec<(u64, Owner)>,
    /// Owners of released private pools, which wait for the same.
    pub released: HashSet<Owner>,
    /// The exports of live blocks, by the block's start.
    pub exports: HashMap<u64, Vec<Export>>,
    /// Physical memory, with its bytes, created for a plan that was not carried out; the next plan takes it.
    pub prepared: Vec<(Physical, u64)>,
    /// Physical memory, with its bytes, that no chunk has because the driver refused to release or to unmap it.
    pub orphans: Vec<(Physical, u64)>,
    /// How many requests still skip polling all streams on the slow path.
    pub unpolled: usize,
    /// What moves and new chunks may cost.
    pub budget: TimeBudget,
    pub history: History,
    /// The most bytes held after growth since the scavenger's last check; 0 if the pool did not grow.
    pub grown_to: u64,
    pub counts: Counts,
}

/// An exported part of a live block.
pub(crate) struct Export {
    /// Offset from the block's start and length, in bytes.
    pub part: (u64, u64),
    /// The ticket that the part was offered under.
    pub ticket: Ticket,
    /// Called when the block is freed.
    pub on_free: Box<dyn FnOnce() + Send>,
}

/// Statistics that are counted under the lock: bytes and counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub physical_peak: u64,
    pub misses: u64,
    pub steals: u64,
    pub growths: u64,
    pub waits: u64,
    pub releases: u64,
    pub out_of_memory: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("memory", &self.memory).field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl State {
    /// `now`: the time on the driver's clock.
    pub fn new(arena: Arena, now: Duration) -> Self {
        Self {
            memory: OrderedArena::new(arena),
            retiring: VecDeque::new(),
            deferred: Vec::new(),
            uses: HashMap::new(),
            graphs: Graphs::default(),
            quarantine: Vec::new(),
            released: HashSet::new(),
            exports: HashMap::new(),
            prepared: Vec::new(),
            orphans: Vec::new(),
            unpolled: 0,
            budget: TimeBudget::new(now),
            history: History::default(),
            grown_to: 0,
            counts: Counts::default(),
        }
    }

    /// The arena, and whether other state still names a stream by its slot or owner.
    pub fn memory_and_bound(&mut self) -> (&mut OrderedArena, impl Fn(&Stream) -> bool + '_) {
        let Self { memory, graphs, deferred, quarantine, .. } = self;
        let is_bound = |stream: &Stream| {
            graphs.is_bound(stream.slot)
                || deferred.iter().any(|block| block.owner == stream.owner)
                || quarantine.iter().any(|&(_, of)| of == stream.owner)
        };
        (memory, is_bound)
    }

    /// Bytes of physical memory held for this pool and not mapped.
    pub fn unmapped(&self) -> u64 {
        self.orphans.iter().chain(&self.prepared).map(|&(_, bytes)| bytes).sum()
    }

    /// Gives the arena the deferred blocks whose fences have passed.
    pub fn give_deferred(&mut self) {
        let (memory, mut waiting) = (&mut self.memory, std::mem::take(&mut self.deferred));
        waiting.retain(|block| {
            let done = block.is_over();
            if done {
                memory.give(block.start, block.slot, block.owner);
            }
            !done
        });
        self.deferred = waiting;
    }

    /// The same for the oldest deferred blocks, up to the first that still waits: thousands may wait behind it.
    pub fn give_first_deferred(&mut self) {
        let done = self.deferred.iter().take_while(|block| block.is_over()).count();
        for block in self.deferred.drain(..done) {
            self.memory.give(block.start, block.slot, block.owner);
        }
    }
}
