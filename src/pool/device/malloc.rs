//! Requests that the fast path declined.

use std::sync::Arc;

use super::device_pool::DevicePool;
use super::need::{Failure, Need};
use super::slow_path::{self, slow_path};
use crate::block::Header;
use crate::driver::{self, Capture};
use crate::error::Error;
use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::StreamCache;
use crate::pool::graph::id::captured_id;
use crate::units::Address;

/// The best fit among the free memory that `stream` may use. Called with the stream's cache locked, against the lock
/// order, so it only tries the state's lock. Checks first that a registered stream is not captured, as the slow path
/// does.
#[inline(never)]
pub(crate) fn refill(pool: &DevicePool, stream: &Stream, granules: u64) -> Option<u64> {
    if granules == 0 || is_captured(stream).ok()? {
        return None;
    }
    let mut state = pool.state.try_lock()?;
    let start = state.memory.arena.take(stream.owner, granules)?;
    state.counts.misses += 1;
    Some(start)
}

/// Gives out `granules` on `stream`, charged to framework `tag`.
pub(crate) fn allocate(
    pool: &DevicePool,
    stream: &Arc<Stream>,
    granules: u64,
    tag: u8,
    captured: bool,
) -> Result<Address, Failure> {
    if let Some(id) = pool.routes.find(stream.handle) {
        return allocate_private(pool, id, stream, granules, tag);
    }
    if captured {
        return Err(refuse_capture(stream).into());
    }
    if !stream.is_durable() {
        stream.order_reused_handle()?;
    }
    let cached = stream.cache_state.lock().pop(granules);
    let start = match cached {
        Some(start) => start,
        None => {
            // The fast path makes no driver call; here one more costs little.
            if is_captured(stream)? {
                return Err(refuse_capture(stream).into());
            }
            let transferred =
                StreamCache::is_long(granules).then(|| slow_path::take_from_other_stream(pool, stream, granules));
            match transferred.flatten() {
                Some(start) => start,
                None => slow_path(pool, Need::of(stream, granules))?,
            }
        }
    };
    Ok(give_out(pool, stream, start, Header::live(granules, stream.slot, tag, false), cached.is_some()))
}

/// Allocates memory whose every use is proven to be over.
pub(crate) fn allocate_ready(
    pool: &DevicePool,
    stream: &Arc<Stream>,
    granules: u64,
    tag: u8,
    captured: bool,
) -> Result<Address, Failure> {
    if captured {
        return Err(refuse_capture(stream).into());
    }
    let cached = pop_passed(stream, granules);
    let start = match cached {
        Some(start) => start,
        None => slow_path(pool, Need::ready(stream, granules))?,
    };
    Ok(give_out(pool, stream, start, Header::live(granules, stream.slot, tag, false), cached.is_some()))
}

/// A block from the stream's cache, if all blocks there are proven unused. A fence is recorded before a block enters
/// the cache, or the block is unfenced; so under the lock a fence that has passed covers all blocks.
fn pop_passed(stream: &Stream, granules: u64) -> Option<u64> {
    let fences = stream.own_fences()?;
    let mut cache_state = stream.cache_state.lock();
    if cache_state.unfenced.is_none() && fences.passed() { cache_state.cache.pop(granules) } else { None }
}

/// Allocates from a private pool.
pub(crate) fn allocate_private(
    pool: &DevicePool,
    id: u128,
    stream: &Arc<Stream>,
    granules: u64,
    tag: u8,
) -> Result<Address, Failure> {
    let owner = {
        let state = &mut *pool.state.lock();
        state.graphs.owner(id, stream.slot, &mut state.memory.arena)?
    };
    let start = slow_path(pool, Need { stream, owner, private: true, granules })?;
    pool.state.lock().graphs.add_block(start, id);
    Ok(give_out(pool, stream, start, Header::live(granules, stream.slot, tag, true), false))
}

/// Allocates for a capture that was not announced: the framework captures graphs without telling its allocator. Each
/// such capture gets its own private pool, named by the driver's number of the capture. The end of its graph is not
/// reported, so the memory stays in that pool until the user releases it.
pub(crate) fn allocate_captured(
    pool: &DevicePool,
    stream: &Arc<Stream>,
    granules: u64,
    tag: u8,
) -> Result<Address, Failure> {
    let Capture::Active(number) = pool.gpu.driver.stream_capture(pool.gpu.device, stream.handle)? else {
        return allocate(pool, stream, granules, tag, false);
    };
    let id = captured_id(number);
    pool.state.lock().graphs.begin_unannounced(id);
    // Until the end, no event is recorded that would break the capture.
    pool.gpu.capture_begins();
    let result = allocate_private(pool, id, stream, granules, tag);
    pool.gpu.capture_ends();
    result
}

/// Whether a registered stream is being captured; for others that was checked when the stream was identified.
fn is_captured(stream: &Stream) -> driver::Result<bool> {
    let gpu = &stream.gpu;
    Ok(stream.is_registered() && gpu.driver.stream_capture(gpu.device, stream.handle)? != Capture::None)
}

/// Writes the header of the block at `start` and counts it as live. `hit`: the block came from the cache.
fn give_out(pool: &DevicePool, stream: &Stream, start: u64, header: Header, hit: bool) -> Address {
    pool.layout.table.write(start, header);
    count_live(pool, stream, header.granules(), header.tag(), hit);
    pool.layout.address(start)
}

/// Counts a block as live. `hit`: the block came from the cache.
pub(crate) fn count_live(pool: &DevicePool, stream: &Stream, granules: u64, tag: u8, hit: bool) {
    let peak = {
        let mut cache_state = stream.cache_state.lock();
        cache_state.counts.missed += u64::from(!hit);
        stream.charge(&mut cache_state.counts, granules, tag)
    };
    if peak {
        pool.live_peak.exceeded_mark(&pool.streams, stream);
    }
}

/// The memory of a graph must not go back to a stream.
fn refuse_capture(stream: &Stream) -> Error {
    Error::Capturing(
        format!(
            "stream {} is being captured: memory for a graph must come from a private pool, begun with \
             forebay_pool_private_begin before the capture",
            stream.handle
        )
        .into(),
    )
}
