//! Statistics, read without stopping other threads: each value is exact, but they may be of different moments.

use std::sync::atomic::Ordering;

use crate::pool::cache::stream::{Stream, TAGS};
use crate::pool::device::chunks::held;
use crate::pool::device::device_pool::DevicePool;
use crate::units::GRANULE;

/// A device's statistics: bytes, and counts since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live bytes, in blocks of whole 512 bytes.
    pub live: u64,
    /// The most bytes live at once: exact if one stream allocates, up to 1 MiB low per stream if several do.
    pub live_peak: u64,
    /// Bytes of device memory held.
    pub physical: u64,
    /// The most bytes held at once.
    pub physical_peak: u64,
    /// The most bytes that may be held; 0 for no limit.
    pub limit: u64,
    /// Bytes held and not live.
    pub free: u64,
    /// The longest free block.
    pub largest_free: u64,
    /// Free blocks, those in stream caches included.
    pub free_blocks: u64,
    /// Free bytes that belong to private pools.
    pub private_free: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Requests served by a stream cache.
    pub hits: u64,
    /// Requests that the arena served.
    pub misses: u64,
    /// Chunks moved.
    pub steals: u64,
    /// Chunks created.
    pub growths: u64,
    /// Times that a stream was made to wait for another stream's fence.
    pub waits: u64,
    /// Chunks released.
    pub releases: u64,
    /// Requests that found no memory.
    pub out_of_memory: u64,
    /// Live bytes by framework.
    pub live_by_framework: [u64; TAGS],
    /// Known streams.
    pub streams: u64,
    /// Driver calls, if the driver keeps a ledger.
    pub driver_calls: u64,
    /// What these calls would have cost on the GPU whose prices the ledger uses.
    pub driver_ns: u64,
    /// Nanoseconds that requests spent searching for memory and in driver calls.
    pub making_ns: u64,
    /// Nanoseconds that requests waited for the GPU and for other pools and callbacks to give memory back.
    pub waiting_ns: u64,
}

/// One stream's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Live bytes that were allocated on the stream.
    pub live: u64,
    /// The most of them at once.
    pub live_peak: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks freed that were allocated on the stream.
    pub frees: u64,
    /// Requests served by its stream cache.
    pub hits: u64,
}

/// One stream's statistics.
pub(crate) fn stream_stats(stream: &Stream) -> StreamStats {
    let counts = stream.cache_state.lock().counts;
    StreamStats {
        live: stream.live.load(Ordering::Relaxed),
        live_peak: counts.live_peak,
        allocations: counts.allocations,
        frees: counts.frees,
        hits: counts.hits(),
    }
}

/// A device's statistics.
pub(crate) fn stats(pool: &DevicePool) -> Stats {
    let (live, live_peak) = pool.live_peak.get(&pool.streams);
    let mut stats = Stats { live, live_peak, ..Stats::default() };
    {
        let state = pool.state.lock();
        let (counts, arena) = (state.counts, &state.memory.arena);
        stats.physical = held(&pool.backing, &state);
        stats.physical_peak = counts.physical_peak;
        stats.largest_free = arena.largest_free() * GRANULE;
        stats.free_blocks = arena.free_blocks();
        stats.private_free = arena.private_free() * GRANULE;
        (stats.misses, stats.steals, stats.growths) = (counts.misses, counts.steals, counts.growths);
        (stats.waits, stats.releases, stats.out_of_memory) = (counts.waits, counts.releases, counts.out_of_memory);
    }
    stats.free = stats.physical.saturating_sub(live);
    let limit = pool.limit.load(Ordering::Relaxed);
    stats.limit = if limit == u64::MAX { 0 } else { limit };
    let streams = pool.streams.read();
    let past = streams.past();
    (stats.allocations, stats.frees, stats.hits) = (past.allocations, past.frees, past.hits());
    for stream in streams.all() {
        let (counts, cached) = {
            let cache_state = stream.cache_state.lock();
            (cache_state.counts, cache_state.cache.blocks())
        };
        stats.free_blocks += cached;
        stats.streams += 1;
        stats.allocations += counts.allocations;
        stats.frees += counts.frees;
        stats.hits += counts.hits();
        for (sum, bytes) in stats.live_by_framework.iter_mut().zip(counts.live_by_tag) {
            *sum += bytes;
        }
    }
    stats.making_ns = pool.times.making.load(Ordering::Relaxed);
    stats.waiting_ns = pool.times.waiting.load(Ordering::Relaxed);
    if let Some(ledger) = pool.gpu.driver.ledger() {
        (stats.driver_calls, stats.driver_ns) = (ledger.calls, ledger.nanoseconds);
    }
    stats
}

/// Verifies every equation of the arena, and those between the arena and the streams.
pub(crate) fn check(pool: &DevicePool) -> Result<(), String> {
    let state = pool.state.lock();
    let totals = state.memory.arena.check()?;
    let mut cached = 0;
    let mut live = 0;
    for stream in pool.streams.read().all() {
        let cache_state = stream.cache_state.lock();
        let (own, by_tag) = (stream.live.load(Ordering::Relaxed), cache_state.counts.live_by_tag.iter().sum::<u64>());
        if own != by_tag {
            return Err(format!("stream {} has {own} bytes live, its frameworks {by_tag}", stream.handle));
        }
        live += own / GRANULE;
        cached += cache_state.cache.granules();
    }
    let waiting = state.deferred.iter().map(|block| block.start);
    let quarantined = state.quarantine.iter().map(|&(start, _)| start);
    let waiting = waiting.chain(quarantined).chain(state.graphs.held().map(|(_, start)| start));
    let waiting: u64 = waiting.map(|start| pool.layout.table.read(start).granules()).sum();
    if live + cached + waiting + totals.padding != totals.live {
        return Err(format!(
            "streams have {live} granules live, caches {cached}, waiting {waiting}; the arena gave out {}",
            totals.live - totals.padding
        ));
    }
    let physical = held(&pool.backing, &state);
    if physical > state.counts.physical_peak {
        return Err(format!("{physical} bytes held, more than the peak {}", state.counts.physical_peak));
    }
    Ok(())
}
