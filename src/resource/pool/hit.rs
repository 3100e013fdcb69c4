//! The hit: a request that the stream's front cache serves, and a free that it takes.
//!
//! No driver call, no allocation, no hashing, one lock that only this stream's users take. Everything out of
//! the ordinary answers "not here", and the long way round (`pool.rs`) is taken instead.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::DevicePool;
use super::pool::Pool;
use super::stream::Stream;
use crate::driver::process::is_forked;
use crate::pool::{Cached, Header, State};
use crate::units::{Address, DeviceId, GRAIN, StreamHandle};

/// A stream that this thread used lately, and its device.
pub(super) struct Recent {
    pub pool: u64,
    pub device: DeviceId,
    pub handle: StreamHandle,
    pub home: Arc<DevicePool>,
    pub stream: Arc<Stream>,
}

/// How many of them a thread remembers.
const MOST: usize = 4;

/// What a hit needs of a [`Recent`], without counting references.
#[derive(Clone, Copy)]
struct Shortcut {
    pool: u64,
    device: i32,
    handle: StreamHandle,
    home: *const DevicePool,
    stream: *const Stream,
}

impl Shortcut {
    /// Pool ids begin at 1.
    const NONE: Self =
        Self { pool: 0, device: 0, handle: StreamHandle::LEGACY, home: std::ptr::null(), stream: std::ptr::null() };
}

/// Owns what the shortcuts point to.
struct Recents(RefCell<Vec<Recent>>);

impl Drop for Recents {
    fn drop(&mut self) {
        SHORTCUTS.with(|shortcuts| shortcuts.iter().for_each(|shortcut| shortcut.set(Shortcut::NONE)));
    }
}

thread_local! {
    static RECENT: Recents = const { Recents(RefCell::new(Vec::new())) };
    /// One for each entry of `RECENT`, in its order. Needs no destructor, so reading it is a plain load.
    static SHORTCUTS: [Cell<Shortcut>; MOST] = const { [const { Cell::new(Shortcut::NONE) }; MOST] };
}

/// Changes this thread's list. Not possible inside a callback of this list's own drop, nor while the
/// thread ends: then nothing is remembered.
fn change(edit: impl FnOnce(&mut Vec<Recent>)) {
    let _ = RECENT.try_with(|Recents(recent)| {
        let Ok(mut recent) = recent.try_borrow_mut() else { return };
        edit(&mut recent);
        SHORTCUTS.with(|shortcuts| {
            for (index, shortcut) in shortcuts.iter().enumerate() {
                shortcut.set(recent.get(index).map_or(Shortcut::NONE, |entry| Shortcut {
                    pool: entry.pool,
                    device: entry.device.0 as i32,
                    handle: entry.handle,
                    home: Arc::as_ptr(&entry.home),
                    stream: Arc::as_ptr(&entry.stream),
                }));
            }
        });
    });
}

/// Remembers a stream for this thread; the oldest makes room.
#[cold]
pub(super) fn remember(fresh: Recent) {
    change(|recent| {
        recent.retain(|entry| (entry.pool, entry.device, entry.handle) != (fresh.pool, fresh.device, fresh.handle));
        if recent.len() == MOST {
            recent.remove(0);
        }
        recent.push(fresh);
    });
}

/// Forgets everything of a pool on this thread.
pub(super) fn forget(pool: u64) {
    change(|recent| recent.retain(|entry| entry.pool != pool));
}

/// Calls `work` with the remembered device and stream, if this thread used them lately. While it runs nothing is
/// remembered or forgotten on this thread, so it may call back into the pool.
pub(super) fn recall<T>(
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

/// Calls `work` with the first remembered device and stream that fit.
#[inline]
fn with<T>(fits: impl Fn(&Shortcut) -> bool, work: impl FnOnce(&DevicePool, &Stream) -> Option<T>) -> Option<T> {
    SHORTCUTS.with(|shortcuts| {
        let found = shortcuts.iter().map(Cell::get).find(fits)?;
        // SAFETY: a shortcut is set only beside the `Arc`s in this thread's `RECENT` that keep both alive, and
        // cleared with them; `work` does not reach anything that changes that list.
        let (home, stream) = unsafe { (found.home.as_ref()?, found.stream.as_ref()?) };
        work(home, stream)
    })
}

impl Pool {
    /// Serves a request from the front cache, if it is as simple as that: no driver call, and no lock under which anybody
    /// waits for the GPU or calls back.
    #[inline]
    pub fn malloc_hit(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        let handle = handle.canonical();
        let fits =
            |shortcut: &Shortcut| shortcut.handle == handle && shortcut.pool == self.id() && shortcut.device == device;
        with(fits, |home, stream| {
            if !stream.is_durable() || home.routing.load(Ordering::Acquire) != 0 || is_forked() {
                return None;
            }
            let grains = bytes.div_ceil(GRAIN);
            let mut hot = stream.hot.lock();
            let start = hot.front.pop(grains)?;
            home.table.write(start, Header::live(grains, stream.slot, tag, false));
            hot.counts.hits += 1;
            let peak = stream.charge(&mut hot, grains, tag);
            drop(hot);
            if peak {
                home.look_at_peak();
            }
            Some(home.address(start))
        })
    }

    /// Takes a block into the front cache, if it is as simple as that, as [`Pool::malloc_hit`] is. Returns whether it did.
    #[inline]
    pub fn free_hit(&self, at: Address, handle: StreamHandle) -> bool {
        let handle = handle.canonical();
        let fits = |shortcut: &Shortcut| {
            // SAFETY: as in `with`.
            let home = unsafe { shortcut.home.as_ref() };
            shortcut.handle == handle && shortcut.pool == self.id() && home.is_some_and(|home| home.spans(at))
        };
        let done = with(fits, |home, stream| {
            if !stream.is_durable() || !at.0.is_multiple_of(GRAIN) || is_forked() {
                return None;
            }
            let start = (at.0 - home.base.0) / GRAIN;
            // Every change of a live block's header happens under this lock, of the stream it is charged to.
            let mut hot = stream.hot.lock();
            let header = home.table.read(start);
            if header.state() != State::Live || header.is_special() || header.stream() != stream.slot {
                return None;
            }
            home.table.write(start, header.cached());
            stream.credit(&mut hot, header.grains(), header.tag());
            let left = hot.front.push(Cached { start, grains: header.grains() });
            drop(hot);
            if let Some(left) = left {
                home.give_back(stream, left);
            }
            Some(())
        });
        done.is_some()
    }
}
