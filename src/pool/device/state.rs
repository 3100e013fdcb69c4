//! What the arena's lock protects.

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

/// The arena, and everything about it that is not in the streams' caches.
pub(crate) struct State {
    pub memory: OrderedArena,
    /// Old places of moved chunks, oldest first, and places that a failed allocation could not unmap; without a fence they may be
    /// unmapped at once.
    pub retiring: VecDeque<(Option<Arc<Fence>>, Retired)>,
    /// Freed blocks that further streams may still use.
    pub deferred: Vec<Deferred>,
    /// Further streams that use a live block, by its start.
    pub uses: HashMap<u64, Vec<Arc<Stream>>>,
    pub graphs: Graphs,
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
    /// So many requests take the slow path without a look at every stream.
    pub unpolled: usize,
    /// What moves and new chunks may cost.
    pub budget: TimeBudget,
    pub history: History,
    /// What the pool grew to since that was looked at last, in bytes; 0 if it did not.
    pub grown_to: u64,
    pub counts: Counts,
}

/// A part of a live block that was exported.
pub(crate) struct Export {
    /// Bytes from the block's start, and how many.
    pub part: (u64, u64),
    /// What it was offered as.
    pub ticket: Ticket,
    /// What to do when the block is freed.
    pub on_free: Box<dyn FnOnce() + Send>,
}

/// Counted under the lock. Bytes and counts.
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
    /// `now`: on the driver's clock.
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

    /// The arena, and whether anybody else still names a stream by its slot or its owner.
    pub fn memory_and_bound(&mut self) -> (&mut OrderedArena, impl Fn(&Stream) -> bool + '_) {
        let Self { memory, graphs, deferred, quarantine, .. } = self;
        let is_bound = |stream: &Stream| {
            graphs.is_bound(stream.slot)
                || deferred.iter().any(|block| block.owner == stream.owner)
                || quarantine.iter().any(|&(_, of)| of == stream.owner)
        };
        (memory, is_bound)
    }

    /// Bytes of physical memory held for this pool that are not mapped.
    pub fn unmapped(&self) -> u64 {
        self.orphans.iter().chain(&self.prepared).map(|&(_, bytes)| bytes).sum()
    }

    /// Gives back the deferred blocks whose fences have passed.
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

    /// The deferred blocks that came first, as far as their fences have passed: there may be thousands behind them that wait.
    pub fn give_first_deferred(&mut self) {
        let done = self.deferred.iter().take_while(|block| block.is_over()).count();
        for block in self.deferred.drain(..done) {
            self.memory.give(block.start, block.slot, block.owner);
        }
    }
}
