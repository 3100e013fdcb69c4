//! The shortest way of a hit: a registered or default stream, its front held by this thread (`biased.rs`), a block of the very
//! length in the front, no figure to be looked at.
//!
//! Nothing here waits, calls out of the pool or can panic, so callers need no guard around it. Whatever it does not do, `hit.rs`
//! does, with the same outcome.

use std::sync::atomic::Ordering;

use super::account::unasked;
use super::device::DevicePool;
use super::hit::{Shortcut, shortcuts, this_thread};
use super::pool::Pool;
use crate::driver::process::is_forked;
use crate::pool::{Cached, Header, Place, State};
use crate::units::{Address, GRAIN, StreamHandle};

impl Pool {
    /// Serves a request from the front cache, or does nothing.
    #[inline(always)]
    pub fn malloc_quick(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        let (handle, id) = (handle.canonical(), self.id());
        let fits = |shortcut: &&Shortcut| shortcut.names(id, handle) && shortcut.device() == device;
        let (home, stream) = shortcuts().iter().find(fits)?.get()?;
        if !stream.is_durable() || home.routing.load(Ordering::Acquire) != 0 || is_forked() {
            return None;
        }
        // Sizes beyond all reason wrap to one that no front has.
        let grains = bytes.wrapping_add(GRAIN - 1) / GRAIN;
        let mut hot = stream.hot.enter_as(this_thread())?;
        if stream.would_peak(grains) {
            return None;
        }
        let place = home.table.place(hot.front.newest(grains)?)?;
        let start = hot.front.pop(grains)?;
        hot.counts.hits += 1;
        place.set_unasked(unasked(bytes));
        place.write(Header::live(grains, stream.slot, tag, false));
        stream.charge(&mut hot, grains, tag);
        Some(home.base.plus(start * GRAIN))
    }

    /// Takes a block into the front cache, or does nothing. `look` sees it before, and refuses with `None`; its answer comes
    /// back where the block was taken.
    #[inline(always)]
    pub fn free_quick<T>(
        &self,
        at: Address,
        handle: StreamHandle,
        look: impl FnOnce(&DevicePool, Place<'_>, Header) -> Option<T>,
    ) -> Option<T> {
        let (handle, id) = (handle.canonical(), self.id());
        let named = |shortcut: &&Shortcut| shortcut.names(id, handle);
        let mut found = shortcuts().iter().filter(named).filter_map(Shortcut::get);
        let (home, stream) = found.find(|(home, _)| home.spans(at))?;
        if !stream.is_durable() || !at.0.is_multiple_of(GRAIN) || is_forked() {
            return None;
        }
        let start = (at.0 - home.base.0) / GRAIN;
        let place = home.table.place(start)?;
        let mut hot = stream.hot.enter_as(this_thread())?;
        let header = place.read();
        if header.state() != State::Live || header.is_special() || header.stream() != stream.slot {
            return None;
        }
        let seen = look(home, place, header)?;
        if !hot.front.push_if_room(Cached { start, grains: header.grains() }) {
            return None;
        }
        place.write(header.cached());
        stream.credit(&mut hot, header.grains(), header.tag());
        Some(seen)
    }
}
