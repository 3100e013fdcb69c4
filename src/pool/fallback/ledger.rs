//! The record of a driver-ordered pool's blocks: no lock, no driver.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::thread::{self, ThreadId};

use crate::error::{Error, Result};
use crate::pool::bad_free::bad_free;
use crate::pool::cache::stream::TAGS;
use crate::pool::report::stats::{Stats, StreamStats};
use crate::units::{Address, StreamHandle};

/// A stream as its handle names it: handle 2 is another stream on each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub handle: StreamHandle,
    thread: Option<ThreadId>,
}

impl Stream {
    /// The stream that `handle` names on this thread.
    pub fn named(handle: StreamHandle) -> Self {
        let handle = handle.canonical();
        Self { handle, thread: (handle == StreamHandle::PER_THREAD).then(|| thread::current().id()) }
    }

    /// Whether its handle names the same stream on this thread.
    pub fn is_named_here(self) -> bool {
        self == Self::named(self.handle)
    }
}

/// A live block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The block's length in bytes.
    pub bytes: u64,
    /// The bytes requested.
    pub requested: u64,
    /// The framework it is charged to.
    pub tag: u8,
    /// The stream of its allocation.
    pub stream: Stream,
    /// Further streams that use the block.
    pub users: Vec<Stream>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The live blocks, by their start.
    blocks: BTreeMap<u64, Block>,
    /// The addresses from the first block ever to the last.
    span: Range<u64>,
    /// Bytes of requests that are in a driver call now.
    pub in_progress: u64,
    /// Live bytes, their peak, live bytes by framework, and counts.
    stats: Stats,
    /// By handle; handle 2 sums over the streams of all threads.
    streams: HashMap<StreamHandle, StreamStats>,
    /// Registered streams.
    pub registered: HashSet<StreamHandle>,
    /// Freed blocks that did not go back to the driver yet: only a wait for the whole device proves them unused.
    pub quarantine: Vec<Address>,
}

impl Ledger {
    // ---- blocks --------------------------------------------------------------------------------------

    /// Records a block that the driver returned.
    pub fn insert(&mut self, at: Address, block: Block) {
        let end = at.0 + block.bytes;
        self.span = if self.span.is_empty() { at.0..end } else { self.span.start.min(at.0)..self.span.end.max(end) };
        let stats = &mut self.stats;
        stats.allocations += 1;
        stats.live += block.bytes;
        stats.live_peak = stats.live_peak.max(stats.live);
        stats.live_by_framework[usize::from(block.tag) % TAGS] += block.bytes;
        let stream = self.streams.entry(block.stream.handle).or_default();
        stream.allocations += 1;
        stream.live += block.bytes;
        stream.live_peak = stream.live_peak.max(stream.live);
        self.blocks.insert(at.0, block);
    }

    /// Removes the live block that starts at `at`.
    pub fn remove(&mut self, at: Address) -> Result<Block> {
        let block = self.blocks.remove(&at.0).ok_or_else(|| self.bad_free(at))?;
        self.stats.frees += 1;
        self.stats.live -= block.bytes;
        self.stats.live_by_framework[usize::from(block.tag) % TAGS] -= block.bytes;
        if let Some(stream) = self.streams.get_mut(&block.stream.handle) {
            stream.frees += 1;
            stream.live -= block.bytes;
        }
        Ok(block)
    }

    /// The live block that starts at `at`.
    pub fn find(&self, at: Address) -> Result<&Block> {
        self.blocks.get(&at.0).ok_or_else(|| self.bad_free(at))
    }

    /// Records a further stream that uses the block.
    pub fn record_use(&mut self, at: Address, user: Stream) -> Result<()> {
        let Some(block) = self.blocks.get_mut(&at.0) else { return Err(self.bad_free(at)) };
        if !block.users.contains(&user) {
            block.users.push(user);
        }
        Ok(())
    }

    /// The live block that `at` lies in: its start and length.
    pub fn around(&self, at: Address) -> Option<(Address, u64)> {
        let (&start, block) = self.blocks.range(..=at.0).next_back()?;
        (at.0 - start < block.bytes).then_some((Address(start), block.bytes))
    }

    /// Whether `at` lies between the first and the last block ever.
    pub fn spans(&self, at: Address) -> bool {
        self.span.contains(&at.0)
    }

    pub fn bad_free(&self, at: Address) -> Error {
        bad_free(at, self.spans(at), self.around(at))
    }

    /// Every live block in address order.
    pub fn blocks(&self) -> impl Iterator<Item = (Address, &Block)> {
        self.blocks.iter().map(|(&start, block)| (Address(start), block))
    }

    /// Removes all blocks. Returns where they are, quarantined ones included.
    pub fn clear(&mut self) -> Vec<Address> {
        let Self { blocks, quarantine, .. } = std::mem::take(self);
        blocks.into_keys().map(Address).chain(quarantine).collect()
    }

    // ---- statistics ----------------------------------------------------------------------------------

    /// Bytes live, and bytes of requests that are in a driver call.
    pub fn committed(&self) -> u64 {
        self.stats.live + self.in_progress
    }

    /// Counts a request that found no memory.
    pub fn refused(&mut self) {
        self.stats.out_of_memory += 1;
    }

    /// The statistics of the ledger; those of the driver are 0.
    pub fn stats(&self) -> Stats {
        Stats { misses: self.stats.allocations, streams: self.streams.len() as u64, ..self.stats }
    }

    pub fn stream_stats(&self, stream: StreamHandle) -> StreamStats {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    /// Live bytes by stream.
    pub fn live_by_stream(&self) -> Vec<(u64, StreamHandle)> {
        self.streams.iter().map(|(&handle, stats)| (stats.live, handle)).collect()
    }

    /// Resets the live peaks to the bytes live now.
    pub fn reset_live_peak(&mut self) {
        self.stats.live_peak = self.stats.live;
        self.streams.values_mut().for_each(|stream| stream.live_peak = stream.live);
    }

    /// Verifies that the ledger's sums and counts agree.
    pub fn check(&self) -> Result<()> {
        let live = self.stats.live;
        let blocks: u64 = self.blocks.values().map(|block| block.bytes).sum();
        let by_stream: u64 = self.streams.values().map(|stream| stream.live).sum();
        let by_framework: u64 = self.stats.live_by_framework.iter().sum();
        if [blocks, by_stream, by_framework] != [live; 3] {
            return Err(Error::invalid(format_args!(
                "{live} bytes live; the blocks have {blocks}, the streams {by_stream}, the frameworks {by_framework}"
            )));
        }
        if self.stats.allocations - self.stats.frees != self.blocks.len() as u64 {
            return Err(Error::invalid(format_args!(
                "{} blocks live; counted are {:?}",
                self.blocks.len(),
                self.stats
            )));
        }
        let mut free_from = self.span.start;
        for (&start, block) in &self.blocks {
            if start < free_from {
                return Err(Error::invalid(format_args!(
                    "the block at {start:#x} begins before {free_from:#x}, where the one before it ends"
                )));
            }
            free_from = start + block.bytes;
        }
        if free_from > self.span.end {
            return Err(Error::invalid(format_args!("blocks reach to {free_from:#x}, beyond {:#x}", self.span.end)));
        }
        match self.quarantine.iter().find(|at| self.around(**at).is_some()) {
            Some(at) => Err(Error::invalid(format_args!("{at} was freed, and is live"))),
            None => Ok(()),
        }
    }
}
