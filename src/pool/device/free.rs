//! Taking blocks back where the fast path declined.

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
use crate::pool::streams::polling::expect_transfer;
use crate::units::Address;

/// Which work a block that comes back may still be used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// What the freeing stream has now.
    Stream,
    /// Also what the stream of the allocation has, whether that is alive or not.
    Allocation,
    /// Also what every other stream of the device has.
    Everything,
}

/// Takes a block back in the order of `stream`, which is `captured` or not, and behind what else may use it.
pub(crate) fn free(pool: &DevicePool, stream: &Stream, at: Address, behind: Behind, captured: bool) -> Result<()> {
    let mut again = false;
    loop {
        let (start, header) = pool.find_live(at)?;
        // Another thread freed the block, and somebody else may have it by now.
        if again && !header.is_special() {
            return Err(pool.bad_free(at));
        }
        let own = header.stream() == stream.slot;
        let simple = match behind {
            Behind::Stream => true,
            Behind::Allocation => own,
            Behind::Everything => false,
        };
        let taken = if simple && !header.is_special() {
            free_in_order(pool, stream, start, header, captured)
        } else {
            free_special(pool, stream, start, header, behind, captured)
        };
        if taken {
            return Ok(());
        }
        // Another thread changed the header under us: it freed the block, or recorded a further use of it.
        again = true;
    }
}

/// Takes a block that the cache of a stream did not keep.
#[inline(never)]
pub(crate) fn give_back(pool: &DevicePool, stream: &Stream, block: Cached) {
    pool.state.lock().memory.give(block.start, stream.slot, stream.owner);
}

/// Takes back a block that only `stream` uses. Returns whether its header still said so.
fn free_in_order(pool: &DevicePool, stream: &Stream, start: u64, header: Header, captured: bool) -> bool {
    let own = header.stream() == stream.slot;
    if !if own { take_charged(pool, stream, start, header) } else { take(pool, start, header) } {
        return false;
    }
    if let Err(error) = stream.record_own(captured) {
        tracing::debug!(device = %pool.gpu.device, %error, "a free could not be fenced; its block waits for the device");
        pool.state.lock().quarantine.push((start, stream.owner));
        return true;
    }
    let block = Cached { start, granules: header.granules() };
    if !own && StreamCache::is_long(block.granules) {
        // Where one stream asks and another frees, again and again, the block is better off in the arena.
        let mut state = pool.state.lock();
        state.memory.give(block.start, stream.slot, stream.owner);
        hand_over(&mut state, stream);
        return true;
    }
    let left = stream.cache_state.lock().push(block);
    if let Some(block) = left {
        give_back(pool, stream, block);
    }
    true
}

/// A long block that another stream was given came back, or will as soon as its other uses are over. Those before it may have come
/// since.
fn hand_over(state: &mut State, stream: &Stream) {
    state.give_first_deferred();
    expect_transfer(&mut state.memory, stream);
}

/// Ends a live block's life for its users, if its header still says so.
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

/// Sends a live block's free the slow way, if its header still says `old`. Under the lock of the stream the block is
/// charged to, as the fast path does it: of two that want to change it, one gets `true`.
pub(crate) fn make_special(pool: &DevicePool, start: u64, old: Header) -> bool {
    let streams = pool.streams.read();
    let _hot = streams.by_slot(old.stream()).map(|stream| stream.cache_state.lock());
    pool.layout.table.swap(start, old, old.special())
}

/// Notes that a live block is used on a further stream, which must live until the block is freed.
pub(crate) fn record_use(pool: &DevicePool, stream: &Arc<Stream>, at: Address) -> Result<()> {
    loop {
        let (start, header) = pool.find_live(at)?;
        let mut state = pool.state.lock();
        if !make_special(pool, start, header) {
            // Another thread recorded a use just now, or freed the block: that shows in the next turn.
            continue;
        }
        // Also where it is the stream of the allocation: the block may be freed on another one.
        let uses = state.uses.entry(start).or_default();
        if !uses.iter().any(|known| known.slot == stream.slot) {
            uses.push(Arc::clone(stream));
        }
        return Ok(());
    }
}

/// Takes back a block that is private, exported, or used on further streams: those recorded, and where asked for
/// the one it was allocated on. Returns whether its header still said so.
#[cold]
fn free_special(
    pool: &DevicePool,
    stream: &Stream,
    start: u64,
    header: Header,
    behind: Behind,
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
    let home = header.stream();
    if let Some(id) = state.graphs.take(start) {
        // It goes back to the stream of its allocation, and only that stream's uses are in that order.
        let users = uses.iter().map(|user| &**user).chain([stream]).filter(|user| user.slot != home);
        let everything = (behind == Behind::Everything).then(|| Fence::after_everything(&pool.gpu));
        let fences = users.map(fence_for_user).chain(everything).collect();
        match state.graphs.free(id, start, home, fences) {
            Freed::Give(owner) => state.memory.arena.give(start, owner, 0),
            Freed::Defer(block) => state.deferred.push(block),
            Freed::Hold => {}
            Freed::Quarantine => state.quarantine.push((start, IDLE)),
        }
        return true;
    }
    let fences = stream.record_own(captured).and_then(|()| {
        // What the freeing stream itself has queued comes first anyway.
        let recorded = uses.iter().filter(|user| user.slot != stream.slot).map(|user| fence_for_user(user));
        let further = match behind {
            Behind::Stream => None,
            Behind::Allocation if home == stream.slot => None,
            Behind::Allocation => Some(fence_behind(pool, home)),
            Behind::Everything => Some(Fence::after_everything(&pool.gpu)),
        };
        recorded.chain(further).collect::<driver::Result<Vec<_>>>()
    });
    match fences {
        Ok(fences) if fences.is_empty() => state.memory.give(start, stream.slot, stream.owner),
        Ok(fences) => state.deferred.push(Deferred { start, owner: stream.owner, slot: stream.slot, fences }),
        // Being captured, or gone: only a wait for the whole device will tell.
        Err(_) => state.quarantine.push((start, stream.owner)),
    }
    if home != stream.slot && StreamCache::is_long(header.granules()) {
        hand_over(&mut state, stream);
    }
    true
}

/// A fence behind all work of a stream that was recorded as a user.
fn fence_for_user(user: &Stream) -> driver::Result<Arc<Fence>> {
    let why = match user.standing() {
        Standing::Current => return Fence::after_uncaptured(&user.gpu, user.handle),
        Standing::Captured => format!("stream {} is being captured", user.handle),
        // On this thread the handle names another stream: an event on it would stand for that one's work.
        Standing::Stale => format!("stream {} is another thread's", user.handle),
    };
    Err(driver::DriverError::new(driver::ErrorKind::Invalid, "record_use", why))
}

/// A fence behind all work of the stream in a slot, without touching a handle that may be dead.
fn fence_behind(pool: &DevicePool, slot: u16) -> driver::Result<Arc<Fence>> {
    match pool.streams.by_slot(slot).filter(|stream| stream.is_durable()) {
        Some(stream) => Fence::after_uncaptured(&pool.gpu, stream.handle),
        None => Fence::after_everything(&pool.gpu),
    }
}
