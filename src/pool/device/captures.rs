//! Private pools as their users see them: captures begin and end, pools are released, blocks put back as they were.

use std::sync::Arc;

use super::device_pool::DevicePool;
use super::malloc::book;
use super::reclaim::{clear_quarantine, poll};
use crate::block::{Header, block_granules};
use crate::error::{Error, Result};
use crate::pool::cache::fast::slack;
use crate::pool::cache::stream::Stream;
use crate::pool::graph::routes::Filter;
use crate::units::{Address, GRANULE};

/// From now on, allocations on streams that `takes` accepts come from private pool `id`, until [`end`]. Holds the pool until
/// [`release`].
pub(crate) fn begin(pool: &DevicePool, id: u128, takes: Filter) {
    {
        let mut state = pool.state.lock();
        // A capture wants idle memory: what is proven idle by now can serve it.
        poll(pool, &mut state, |_| true);
        state.graphs.begin(id);
    }
    pool.routes.begin(id, takes);
    pool.streams.open_or_shut(|| pool.routes.is_any());
}

/// Ends the newest [`begin`] of this id.
pub(crate) fn end(pool: &DevicePool, id: u128) -> Result<()> {
    pool.routes.end(id)?;
    pool.streams.open_or_shut(|| pool.routes.is_any());
    let mut state = pool.state.lock();
    let held = state.graphs.end(id);
    if !held.is_empty() {
        state.deferred.extend(held);
        state.give_deferred();
    }
    Ok(())
}

/// Lets go of one hold on private pool `id`. With the last, its free memory goes back to everybody, once
/// the device is done with it.
pub(crate) fn release(pool: &DevicePool, id: u128) -> Result<()> {
    {
        let mut state = pool.state.lock();
        let Some(left) = state.graphs.release(id)? else { return Ok(()) };
        // The wait for the device proves what their fences would.
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

/// Releases the pools of captures that nobody had announced; returns how many.
pub(crate) fn release_unannounced(pool: &DevicePool) -> Result<u64> {
    let ids = pool.state.lock().graphs.unannounced();
    ids.iter().try_for_each(|&id| release(pool, id))?;
    Ok(ids.len() as u64)
}

/// Makes a block live again that private pool `id` gave out on `stream` before, at its own address.
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
    let home = {
        let state = &mut *pool.state.lock();
        let (waiting, arena) = (&mut state.deferred, &mut state.memory.arena);
        let home = state.graphs.restore(id, (start, granules, stream.slot), waiting, arena, table)?;
        let home = home.ok_or_else(|| {
            let why = "free what lies there before";
            Error::Busy(format!("{bytes} bytes at {at} are not free in this private pool: {why}").into())
        })?;
        let home = pool.streams.by_slot(home).unwrap_or_else(|| Arc::clone(stream));
        table.write(start, Header::live(granules, home.slot, tag, true));
        home
    };
    book(pool, &home, granules, tag, false);
    pool.set_asked(at, |granules| slack(granules, bytes));
    Ok(())
}
