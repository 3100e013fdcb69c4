//! Frees that the fast path declined.

use std::sync::Arc;

use super::device_pool::DevicePool;
use super::state::State;
use crate::arena::IDLE;
use crate::block::Header;
use crate::driver;
use crate::error::Result;
use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::{Cached, StreamCache};
use crate::pool::cache::stream_fences::Standing;
use crate::pool::graph::private::Freed;
use crate::pool::order::deferred::Deferred;
use crate::pool::order::fence::Fence;
use crate::pool::streams::polling::record_early_fence;
use crate::units::Address;

/// The work that must be over before a freed block is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeAfter {
    /// The work queued on the freeing stream.
    Stream,
    /// Also the work of the stream of the allocation, whether it is still alive or not.
    BothStreams,
    /// Also the work of all other streams of the device.
    AllStreams,
}

/// Frees a block in the order of `stream`. It is reused after the work that `after` names. `captured`: `stream` is
/// being captured.
pub(crate) fn free(pool: &DevicePool, stream: &Stream, at: Address, after: FreeAfter, captured: bool) -> Result<()> {
    let mut again = false;
    loop {
        let (start, header) = pool.find_live(at)?;
        // Another thread freed the block in between; it may have been allocated again.
        if again && !header.is_special() {
            return Err(pool.bad_free(at));
        }
        let own = header.stream() == stream.slot;
        let simple = match after {
            FreeAfter::Stream => true,
            FreeAfter::BothStreams => own,
            FreeAfter::AllStreams => false,
        };
        let taken = if simple && !header.is_special() {
            free_in_order(pool, stream, start, header, captured)
        } else {
            free_special(pool, stream, start, header, after, captured)
        };
        if taken {
            return Ok(());
        }
        // The header changed in between: another thread freed the block or recorded a further use of it.
        again = true;
    }
}

/// Gives the arena a block that the stream's cache had no room for.
#[inline(never)]
pub(crate) fn give_back(pool: &DevicePool, stream: &Stream, block: Cached) {
    pool.state.lock().memory.give(block.start, stream.slot, stream.owner);
}

/// Frees a block that only `stream` uses. Returns false, and changes nothing, if its header is no longer `header`.
fn free_in_order(pool: &DevicePool, stream: &Stream, start: u64, header: Header, captured: bool) -> bool {
    let own = header.stream() == stream.slot;
    if !if own { take_charged(pool, stream, start, header) } else { take(pool, start, header) } {
        return false;
    }
    if let Err(error) = stream.record_own(captured) {
        tracing::debug!(device = %pool.gpu.device, %error, "no event could be recorded for a free; its block is quarantined");
        pool.state.lock().quarantine.push((start, stream.owner));
        return true;
    }
    let block = Cached { start, granules: header.granules() };
    if !own && StreamCache::is_long(block.granules) {
        // If one stream allocates and another frees repeatedly, the arena can transfer the block; the freeing stream's
        // cache could not.
        let mut state = pool.state.lock();
        state.memory.give(block.start, stream.slot, stream.owner);
        prepare_transfer(&mut state, stream);
        return true;
    }
    let left = stream.cache_state.lock().push(block);
    if let Some(block) = left {
        give_back(pool, stream, block);
    }
    true
}

/// Prepares the transfer of long blocks that are allocated on one stream and freed on another. `stream` freed such a
/// block, now or once its other uses are over. Earlier deferred blocks may be ready as well.
fn prepare_transfer(state: &mut State, stream: &Stream) {
    state.give_first_deferred();
    record_early_fence(&mut state.memory, stream);
}

/// Marks a live block as freed and credits its stream, if its header is still `header`.
fn take(pool: &DevicePool, start: u64, header: Header) -> bool {
    let streams = pool.streams.read();
    match streams.by_slot(header.stream()) {
        Some(charged) => take_charged(pool, charged, start, header),
        None => pool.layout.table.swap(start, header, header.cached()),
    }
}

fn take_charged(pool: &DevicePool, charged: &Stream, start: u64, header: Header) -> bool {
    let mut cache_state = charged.cache_state.lock();
    let ours = pool.layout.table.swap(start, header, header.cached());
    if ours {
        charged.credit(&mut cache_state.counts, header.granules(), header.tag());
    }
    ours
}

/// Marks a live block so that its free takes the slow path, if its header is still `old`. Takes the lock of the stream
/// that the block is charged to, as the fast path does: of two threads that change the header, one gets `true`.
pub(crate) fn make_special(pool: &DevicePool, start: u64, old: Header) -> bool {
    let streams = pool.streams.read();
    let _cache = streams.by_slot(old.stream()).map(|stream| stream.cache_state.lock());
    pool.layout.table.swap(start, old, old.special())
}

/// Records that a live block is used on a further stream, which must live until the block is freed.
pub(crate) fn record_use(pool: &DevicePool, stream: &Arc<Stream>, at: Address) -> Result<()> {
    loop {
        let (start, header) = pool.find_live(at)?;
        let mut state = pool.state.lock();
        if !make_special(pool, start, header) {
            // Another thread recorded a use, or freed the block; the next turn tells which.
            continue;
        }
        // Recorded even for the stream of the allocation: the block may be freed on another one.
        let uses = state.uses.entry(start).or_default();
        if !uses.iter().any(|known| known.slot == stream.slot) {
            uses.push(Arc::clone(stream));
        }
        return Ok(());
    }
}

/// Frees a block that is private, exported, or used on further streams. It is reused after the recorded uses and the
/// work that `after` names. Returns false, and changes nothing, if its header is no longer `header`.
#[cold]
fn free_special(
    pool: &DevicePool,
    stream: &Stream,
    start: u64,
    header: Header,
    after: FreeAfter,
    captured: bool,
) -> bool {
    let mut state = pool.state.lock();
    if !take(pool, start, header) {
        return false;
    }
    for export in state.exports.remove(&start).unwrap_or_default() {
        (export.on_free)();
    }
    let uses = state.uses.remove(&start).unwrap_or_default();
    let allocated_on = header.stream();
    if let Some(id) = state.graphs.remove_block(start) {
        // The block returns to the order of the stream that it was allocated on, so that stream's uses need no fence.
        let users = uses.iter().map(|user| &**user).chain([stream]).filter(|user| user.slot != allocated_on);
        let everything = (after == FreeAfter::AllStreams).then(|| Fence::after_everything(&pool.gpu));
        let fences = users.map(fence_for_user).chain(everything).collect();
        match state.graphs.free(id, start, allocated_on, fences) {
            Freed::Give(owner) => state.memory.arena.give(start, owner, 0),
            Freed::Defer(block) => state.deferred.push(block),
            Freed::Hold => {}
            Freed::Quarantine => state.quarantine.push((start, IDLE)),
        }
        return true;
    }
    let fences = stream.record_own(captured).and_then(|()| {
        // The block returns to the freeing stream's order, so that stream's uses need no fence.
        let recorded = uses.iter().filter(|user| user.slot != stream.slot).map(|user| fence_for_user(user));
        let further = match after {
            FreeAfter::Stream => None,
            FreeAfter::BothStreams if allocated_on == stream.slot => None,
            FreeAfter::BothStreams => Some(fence_behind(pool, allocated_on)),
            FreeAfter::AllStreams => Some(Fence::after_everything(&pool.gpu)),
        };
        recorded.chain(further).collect::<driver::Result<Vec<_>>>()
    });
    match fences {
        Ok(fences) if fences.is_empty() => state.memory.give(start, stream.slot, stream.owner),
        Ok(fences) => state.deferred.push(Deferred { start, owner: stream.owner, slot: stream.slot, fences }),
        // A stream is being captured or gone: only a wait for the whole device proves the uses over.
        Err(_) => state.quarantine.push((start, stream.owner)),
    }
    if allocated_on != stream.slot && StreamCache::is_long(header.granules()) {
        prepare_transfer(&mut state, stream);
    }
    true
}

/// A fence behind all work of a stream that was recorded as a user.
fn fence_for_user(user: &Stream) -> driver::Result<Arc<Fence>> {
    let why = match user.standing() {
        Standing::Current => return Fence::after_uncaptured(&user.gpu, user.handle),
        Standing::Captured => format!("stream {} is being captured", user.handle),
        // On this thread the handle names another stream, so an event would cover the wrong work.
        Standing::Stale => format!("stream {} is another thread's", user.handle),
    };
    Err(driver::DriverError::new(driver::ErrorKind::Invalid, "record_use", why))
}

/// A fence behind all work of the stream in `slot`, without using a handle that may be dead.
fn fence_behind(pool: &DevicePool, slot: u16) -> driver::Result<Arc<Fence>> {
    match pool.streams.by_slot(slot).filter(|stream| stream.is_durable()) {
        Some(stream) => Fence::after_uncaptured(&pool.gpu, stream.handle),
        None => Fence::after_everything(&pool.gpu),
    }
}
