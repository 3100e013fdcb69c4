//! The shortest way of a hit: a registered or default stream, its front held by this thread (`biased.rs`), a block of the very
//! length in the front, no figure to be looked at.
//!
//! Nothing here waits, calls out of the pool or can panic, so callers need no guard around it. Whatever it does not do, `hit.rs`
//! does, with the same outcome.

use super::account::{Account, unasked};
use super::device::DevicePool;
use super::doors::{self, Door, this_thread};
use super::hit::Near;
use super::pool::Pool;
use crate::pool::{Cached, Header, Place};
use crate::units::{Address, GRAIN, StreamHandle};

impl Pool {
    /// As [`Pool::malloc`], from the front cache; or does nothing.
    #[inline(always)]
    pub fn malloc_quick(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        let thread = this_thread();
        let door = doors::nearest(thread, self.id(), Some(device), handle)?;
        Near::behind(door).unless_routed()?.malloc_quick(thread, bytes, tag)
    }

    /// As [`Pool::free`], into the front cache. Returns whether it did that; else nothing happened.
    #[inline(always)]
    pub fn free_quick(&self, at: Address, handle: StreamHandle) -> bool {
        let thread = this_thread();
        let Some(door) = doors::nearest(thread, self.id(), None, handle) else { return false };
        Near::behind(door).free_quick(thread, at, |_, _, _| Some(())).is_some()
    }

    /// As [`Pool::free_while`], likewise.
    #[inline(always)]
    pub fn free_while_quick(&self, at: Address, current: StreamHandle, tag: u8) -> Option<Account> {
        let thread = this_thread();
        let door = doors::nearest(thread, self.id(), None, current)?;
        Near::behind(door).free_quick(thread, at, Account::of_tag(tag))
    }
}

/// `thread`: the caller's number.
impl Near<'_> {
    #[inline(always)]
    fn behind(door: &Door) -> Self {
        let (home, stream) = door.behind();
        Self { home, stream }
    }

    #[inline(always)]
    fn malloc_quick(self, thread: usize, bytes: u64, tag: u8) -> Option<Address> {
        let Self { home, stream } = self;
        if !stream.is_quick() {
            return None;
        }
        // Sizes beyond all reason wrap to one that no front has.
        let grains = bytes.wrapping_add(GRAIN - 1) / GRAIN;
        let mut held = stream.hot.enter_as(thread)?;
        let live = stream.with(grains)?;
        let hot = &mut *held;
        let start = hot.front.pop_newest(grains)?;
        let Some(place) = home.table.place_near_for(start, grains, &hot.last_leaf) else {
            hot.front.push_if_room(Cached { start, grains });
            return None;
        };
        place.set_unasked(unasked(bytes));
        place.write(stream.header.with(grains, tag));
        stream.book(hot, live, grains, tag);
        Some(home.base.plus(start * GRAIN))
    }

    #[inline(always)]
    fn free_quick<T>(
        self,
        thread: usize,
        at: Address,
        look: impl FnOnce(&DevicePool, Place<'_>, Header) -> Option<T>,
    ) -> Option<T> {
        let Self { home, stream } = self;
        let offset = at.0.wrapping_sub(home.base.0);
        if !stream.is_quick() || offset >= home.span || !offset.is_multiple_of(GRAIN) {
            return None;
        }
        let start = offset / GRAIN;
        let mut held = stream.hot.enter_as(thread)?;
        let hot = &mut *held;
        let place = home.table.place_near(start, &hot.last_leaf)?;
        let header = place.read_like(stream.header)?;
        let seen = look(home, place, header)?;
        if !hot.front.push_if_room(Cached { start, grains: header.grains() }) {
            return None;
        }
        place.write_cached(header);
        stream.credit(hot, header.grains(), header.tag());
        Some(seen)
    }
}
