//! Private pools for their users: begin and end captures, release pools, restore blocks.

use std::sync::Arc;

use super::device_pool::DevicePool;
use super::malloc::count_live;
use super::reclaim::{clear_quarantine, poll};
use crate::block::{Header, block_granules};
use crate::error::{Error, Result};
use crate::pool::cache::fast::slack;
use crate::pool::cache::stream::Stream;
use crate::pool::graph::routes::Filter;
use crate::units::{Address, GRANULE};

/// From now on, allocations on streams that `takes` accepts come from private pool `id`, until [`end`]. Holds the pool
/// until [`release`].
pub(crate) fn begin(pool: &DevicePool, id: u128, takes: Filter) {
    {
        let mut state = pool.state.lock();
        // A private pool needs unowned memory, and polling makes more of it.
        poll(pool, &mut state, |_| true);
        state.graphs.begin(id);
    }
    pool.routes.begin(id, takes);
    pool.streams.update_fast_path(|| pool.routes.is_any());
}

/// Ends the newest [`begin`] of this id.
pub(crate) fn end(pool: &DevicePool, id: u128) -> Result<()> {
    pool.routes.end(id)?;
    pool.streams.update_fast_path(|| pool.routes.is_any());
    let mut state = pool.state.lock();
    let held = state.graphs.end(id);
    if !held.is_empty() {
        state.deferred.extend(held);
        state.give_deferred();
    }
    Ok(())
}

/// Drops one reference to private pool `id`. With the last, its free memory becomes unowned once the device is idle.
pub(crate) fn release(pool: &DevicePool, id: u128) -> Result<()> {
    {
        let mut state = pool.state.lock();
        let Some(left) = state.graphs.release(id)? else { return Ok(()) };
        // The wait for the device covers the fences of these blocks.
        let deferred = std::mem::take(&mut state.deferred);
        let (of_this, others): (Vec<_>, Vec<_>) =
            deferred.into_iter().partition(|block| left.owners.contains(&block.owner));
        state.deferred = others;
        for block in left.held.into_iter().chain(of_this) {
            state.memory.arena.give(block.start, block.owner, 0);
        }
        state.released.extend(left.owners);
    }
    clear_quarantine(pool);
    Ok(())
}

/// Releases the private pools of captures that were not announced. Returns how many.
pub(crate) fn release_unannounced(pool: &DevicePool) -> Result<u64> {
    let ids = pool.state.lock().graphs.unannounced();
    ids.iter().try_for_each(|&id| release(pool, id))?;
    Ok(ids.len() as u64)
}

/// Makes a block live again at its own address; private pool `id` gave it out before on `stream`.
pub(crate) fn restore(
    pool: &DevicePool,
    id: u128,
    (at, bytes): (Address, u64),
    stream: &Arc<Stream>,
    tag: u8,
) -> Result<()> {
    let (granules, table) = (block_granules(bytes), &pool.layout.table);
    let start = pool.layout.granule(at).filter(|_| granules > 0 && at.0.is_multiple_of(GRANULE));
    let start = start.ok_or_else(|| pool.bad_free(at))?;
    let stream = {
        let state = &mut *pool.state.lock();
        let (waiting, arena) = (&mut state.deferred, &mut state.memory.arena);
        let slot = state.graphs.restore(id, (start, granules, stream.slot), waiting, arena, table)?;
        let slot = slot.ok_or_else(|| {
            let why = "free what lies there before";
            Error::Busy(format!("{bytes} bytes at {at} are not free in this private pool: {why}").into())
        })?;
        let stream = pool.streams.by_slot(slot).unwrap_or_else(|| Arc::clone(stream));
        table.write(start, Header::live(granules, stream.slot, tag, true));
        stream
    };
    count_live(pool, &stream, granules, tag, false);
    pool.set_slack(at, |granules| slack(granules, bytes));
    Ok(())
}
