//! The shortest way of a hit: a registered or default stream, its front held by this thread (`biased.rs`), a block of the very
//! length in the front, no figure to be looked at.
//!
//! Nothing here waits, calls out of the pool or can panic, so callers need no guard around it. Whatever it does not do, `hit.rs`
//! does, with the same outcome.

use super::account::{Account, unasked};
use super::device::DevicePool;
use super::hit::{Near, this_thread};
use super::pool::Pool;
use crate::pool::{Cached, Header, Place, State};
use crate::units::{Address, GRAIN, StreamHandle};

impl Pool {
    /// As [`Pool::malloc`], from the front cache; or does nothing.
    #[inline(always)]
    pub fn malloc_quick(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        self.near(device, handle, |_, _| false)?.malloc_quick(bytes, tag)
    }

    /// As [`Pool::free`], into the front cache. Returns whether it did that; else nothing happened.
    #[inline(always)]
    pub fn free_quick(&self, at: Address, handle: StreamHandle) -> bool {
        self.near_block(at, handle, |_, _| false).and_then(|near| near.free_quick(at, |_, _, _| Some(()))).is_some()
    }

    /// As [`Pool::free_while`], likewise.
    #[inline(always)]
    pub fn free_while_quick(&self, at: Address, current: StreamHandle, tag: u8) -> Option<Account> {
        self.near_block(at, current, |_, _| false)?.free_quick(at, Account::of_tag(tag))
    }
}

impl Near<'_> {
    #[inline(always)]
    fn malloc_quick(self, bytes: u64, tag: u8) -> Option<Address> {
        let Self { home, stream } = self;
        // Sizes beyond all reason wrap to one that no front has.
        let grains = bytes.wrapping_add(GRAIN - 1) / GRAIN;
        let mut held = stream.hot.enter_as(this_thread())?;
        if stream.would_peak(grains) {
            return None;
        }
        let hot = &mut *held;
        let start = hot.front.pop(grains)?;
        let Some(place) = home.table.place_near_for(start, grains, &mut hot.last_leaf) else {
            // Not so: its cell was written when it was first given out.
            hot.front.push_if_room(Cached { start, grains });
            return None;
        };
        place.set_unasked(unasked(bytes));
        place.write(Header::live(grains, stream.slot, tag, false));
        hot.counts.hits += 1;
        stream.charge(hot, grains, tag);
        Some(home.base.plus(start * GRAIN))
    }

    #[inline(always)]
    fn free_quick<T>(self, at: Address, look: impl FnOnce(&DevicePool, Place<'_>, Header) -> Option<T>) -> Option<T> {
        let Self { home, stream } = self;
        let start = (at.0 - home.base.0) / GRAIN;
        let mut held = stream.hot.enter_as(this_thread())?;
        let hot = &mut *held;
        let place = home.table.place_near(start, &mut hot.last_leaf)?;
        let header = place.read();
        if header.state() != State::Live || header.is_special() || header.stream() != stream.slot {
            return None;
        }
        let seen = look(home, place, header)?;
        if !hot.front.push_if_room(Cached { start, grains: header.grains() }) {
            return None;
        }
        place.write(header.cached());
        stream.credit(hot, header.grains(), header.tag());
        Some(seen)
    }
}
