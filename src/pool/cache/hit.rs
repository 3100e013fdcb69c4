//! The hit: a request that the stream's front cache serves, and a free that it takes.
//!
//! No driver call, no search in a hash table, one lock that only this stream's users take; memory of the host only when a full bin of the front
//! doubles its room. (A stream that was not registered
//! costs two short calls, which tell that its handle still names it, and every second free in a row an event: `bare.rs`.) A request
//! that the front lacks and free memory can serve goes the same way: it tries for the arena's lock, and asks the driver whether
//! a registered stream is captured. Everything out of the ordinary answers "not here", and the long way round (`pool.rs`) is taken.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lock::Seat;
use super::stream::Stream;
use super::stream_cache::{Cached, Front};
use super::thread_cache::{self, Door};
use crate::block::{Header, Place, block_grains};
use crate::driver::{Capture, process};
use crate::pool::block_info::unasked;
use crate::pool::device::DevicePool;
use crate::pool::pool::Pool;
use crate::pool::streams::registry::Standing;
use crate::units::{Address, DeviceId, GRAIN, StreamHandle};

/// A stream that this thread used lately, and its device.
pub(crate) struct Recent {
    pub pool: u64,
    pub device: DeviceId,
    pub handle: StreamHandle,
    pub home: Arc<DevicePool>,
    pub stream: Arc<Stream>,
}

/// How many of them a thread remembers.
const MOST: usize = 4;

/// Owns what this thread's doors lead to.
struct Recents(RefCell<Vec<Recent>>);

impl Recents {
    /// Calls `edit` with the list while no door is open. Not possible inside of a callback of this list's own drop.
    fn change(&self, edit: impl FnOnce(&mut Vec<Recent>)) {
        let Ok(mut recent) = self.0.try_borrow_mut() else { return };
        recent.iter().for_each(|recent| thread_cache::shut(recent.handle));
        edit(&mut recent);
        for Recent { pool, device, handle, home, stream } in recent.iter() {
            // SAFETY: the list keeps both alive, and shuts their doors before it changes, or ends with this thread.
            unsafe { thread_cache::open(*pool, *device, *handle, Arc::as_ptr(home), Arc::as_ptr(stream)) };
        }
    }
}

impl Drop for Recents {
    fn drop(&mut self) {
        if process::is_forked() {
            // What they lead to is the parent's: if these are the last who have it, it stays.
            std::mem::forget(self.0.take());
            return;
        }
        self.change(Vec::clear);
    }
}

thread_local! {
    static RECENT: Recents = const { Recents(RefCell::new(Vec::new())) };
}

/// Changes this thread's list. While the thread ends nothing is remembered.
fn change(edit: impl FnOnce(&mut Vec<Recent>)) {
    let _ = RECENT.try_with(|recent| recent.change(edit));
}

/// Remembers a stream for this thread; the oldest makes room.
#[cold]
pub(crate) fn remember(fresh: Recent) {
    change(|recent| {
        recent.retain(|entry| (entry.pool, entry.device, entry.handle) != (fresh.pool, fresh.device, fresh.handle));
        if recent.len() == MOST {
            recent.remove(0);
        }
        recent.push(fresh);
    });
}

/// Forgets everything of a pool on this thread.
pub(crate) fn forget(pool: u64) {
    change(|recent| recent.retain(|entry| entry.pool != pool));
}

/// Calls `work` with the remembered device and stream, if this thread used them lately. While it runs nothing is
/// remembered or forgotten on this thread, so it may call back into the pool.
pub(crate) fn recall<T>(
    pool: u64,
    device: i32,
    handle: StreamHandle,
    work: impl FnOnce(&DevicePool, &Arc<Stream>) -> Option<T>,
) -> Option<T> {
    RECENT
        .try_with(|Recents(recent)| {
            let recent = recent.try_borrow().ok()?;
            let fits =
                |entry: &&Recent| entry.handle == handle && entry.pool == pool && entry.device.0 as i32 == device;
            let entry = recent.iter().find(fits)?;
            work(&entry.home, &entry.stream)
        })
        .ok()
        .flatten()
}

/// What is known to come after the uses of a block that is freed on a stream that was not registered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// An event that the caller recorded.
    Event,
    /// Nothing: the block may only be bare.
    Bare,
}

/// A device's pool and a stream of it, as this thread remembers them. Not to be kept past the call.
#[derive(Clone, Copy)]
pub(crate) struct Near<'a> {
    pub home: &'a DevicePool,
    pub stream: &'a Stream,
    /// Of the door to them.
    pub seat: &'static Seat,
}

impl Pool {
    /// What a device and a handle name, if this thread used them lately and nothing is captured into a private pool.
    /// `known` tells whether a stream that was not registered is the one that its handle names.
    #[inline]
    pub(crate) fn near(
        &self,
        device: i32,
        handle: StreamHandle,
        known: impl FnOnce(&DevicePool, &Stream) -> bool,
    ) -> Option<Near<'_>> {
        let door = thread_cache::find(self.id(), handle.canonical(), |home| home.device().0 as i32 == device)?;
        let near = Near::behind(door);
        let plain = near.home.routing.load(Ordering::Acquire) == 0;
        (plain && (near.stream.is_durable() || known(near.home, near.stream))).then_some(near)
    }

    /// The same for a block that comes back.
    #[inline]
    pub(crate) fn near_block(
        &self,
        at: Address,
        handle: StreamHandle,
        known: impl FnOnce(&DevicePool, &Stream) -> bool,
    ) -> Option<Near<'_>> {
        let near = Near::behind(thread_cache::find(self.id(), handle.canonical(), |home| home.spans(at))?);
        let sound = at.0.is_multiple_of(GRAIN) && (near.stream.is_durable() || known(near.home, near.stream));
        sound.then_some(near)
    }

    /// Serves a request from the front cache or from free memory that the stream may use as it is, if it is as simple
    /// as that: nothing that waits, and no lock under which anybody waits for the GPU or calls back.
    #[inline]
    pub fn malloc_hit(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        self.near(device, handle, DevicePool::is_as_known)?.malloc(bytes, tag)
    }

    /// Takes a block into the front cache, if it is as simple as that, as [`Pool::malloc_hit`] is. Returns whether it did.
    /// Never where that needs an event, which might have to wait for room in the stream's queue.
    #[inline]
    pub fn free_hit(&self, at: Address, handle: StreamHandle) -> bool {
        let near = self.near_block(at, handle, DevicePool::is_as_known);
        near.and_then(|near| near.free(at, |_, _, _| Some(()), Cover::Bare)).is_some()
    }
}

impl Near<'_> {
    #[inline]
    fn behind(door: &'static Door) -> Self {
        let (home, stream) = door.behind();
        Self { home, stream, seat: &door.seat }
    }

    /// What [`Pool::malloc_hit`] does, without looking for the stream.
    #[inline]
    pub fn malloc(self, bytes: u64, tag: u8) -> Option<Address> {
        let Self { home, stream, seat } = self;
        let grains = block_grains(bytes);
        let mut held = stream.hot.enter(Some(seat));
        let hot = &mut *held;
        let start = match hot.pop(grains) {
            Some(start) => start,
            None => {
                let start = home.take_now(stream, grains, seat)?;
                hot.counts.missed += 1;
                start
            }
        };
        home.table.give_out(start, Header::live(grains, stream.slot, tag, false), unasked(grains, bytes));
        if grains <= Front::SHORT {
            home.table.come_near(start, &mut hot.last_leaf);
        }
        let peak = stream.charge(hot, grains, tag);
        drop(held);
        if peak {
            home.rose(stream);
        }
        Some(home.address(start))
    }

    /// Takes a block into the front cache, behind an event of the stream's where it needs one. `look` sees it before, and
    /// refuses with `None`; its answer comes back where the block was taken.
    #[inline]
    pub fn free_fenced<T>(self, at: Address, look: impl Fn(&DevicePool, Place<'_>, Header) -> Option<T>) -> Option<T> {
        self.free(at, &look, Cover::Bare).or_else(|| {
            let fenced = !self.stream.is_durable() && self.home.raise_own(self.stream, false).is_ok();
            if fenced { self.free(at, look, Cover::Event) } else { None }
        })
    }

    /// Takes a block into the front cache. Likewise.
    #[inline]
    fn free<T>(
        self,
        at: Address,
        look: impl FnOnce(&DevicePool, Place<'_>, Header) -> Option<T>,
        cover: Cover,
    ) -> Option<T> {
        let Self { home, stream, seat } = self;
        let start = (at.0 - home.base.0) / GRAIN;
        let place = home.table.place(start)?;
        // Every change of a live block's header happens under this lock, of the stream it is charged to.
        let mut hot = stream.hot.enter(Some(seat));
        let header = place.read_like(stream.header)?;
        let bare = cover == Cover::Bare && !stream.is_durable();
        if bare && !hot.bare.allows() {
            return None;
        }
        let seen = look(home, place, header)?;
        if bare {
            hot.bare.put(start);
        }
        place.write_cached(header);
        stream.credit(&mut hot, header.grains(), header.tag());
        let left = hot.push(Cached { start, grains: header.grains() });
        if let Some(left) = left {
            drop(hot);
            home.give_back(stream, left, Some(seat));
        }
        Some(seen)
    }
}

impl DevicePool {
    /// Whether a stream that was not registered is certainly the one that its handle names, and not captured.
    #[inline(never)]
    pub(crate) fn is_as_known(&self, stream: &Stream) -> bool {
        self.capabilities.stream_identity && self.standing(stream) == Standing::Current
    }

    /// The best fit of what `stream` may use as it is. Called with the stream's front locked, against the order of the
    /// locks: so it only tries the arena's. A registered stream is asked whether it is captured, as a longer way would.
    #[inline(never)]
    fn take_now(&self, stream: &Stream, grains: u64, seat: &'static Seat) -> Option<u64> {
        // Others were asked when they were recognised.
        let may_be_captured = stream.is_durable() && !Self::lives_forever(stream.handle);
        if grains == 0
            || may_be_captured && self.driver.stream_capture(self.device, stream.handle).ok()? != Capture::None
        {
            return None;
        }
        let mut inner = self.inner.try_enter(Some(seat))?;
        let start = inner.arena.take(stream.owner, grains)?;
        inner.figures.misses += 1;
        Some(start)
    }
}
