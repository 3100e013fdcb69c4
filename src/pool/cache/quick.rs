//! The shortest way of a hit: a registered or default stream, its front held by this thread (`biased.rs`), a block of the very
//! length in the front, no figure to be looked at.
//!
//! Nothing here waits, calls out of the pool or can panic, so callers need no guard around it. Whatever it does not do, `hit.rs`
//! does, with the same outcome.

use super::lock::Seat;
use super::stream::Stream;
use super::stream_cache::{Cached, Front};
use super::thread_cache;
use crate::block::{Header, Place, Table};
use crate::pool::block_info::{Account, unasked};
use crate::pool::device::SMALL;
use crate::pool::pool::Pool;
use crate::units::{Address, GRAIN, StreamHandle};

const _: () = assert!(Table::short(SMALL / GRAIN) == Front::SHORT, "a hit knows by one look where block and cell are");

impl Pool {
    /// As [`Pool::malloc`], from the front cache; or does nothing.
    #[inline(always)]
    pub fn malloc_quick(&self, bytes: u64, device: i32, handle: StreamHandle, tag: u8) -> Option<Address> {
        let door = thread_cache::nearest(self.id(), Some(device), handle)?;
        door.behind().1.malloc_quick(&door.seat, bytes, tag)
    }

    /// As [`Pool::free`], into the front cache. Returns whether it did that; else nothing happened.
    #[inline(always)]
    pub fn free_quick(&self, at: Address, handle: StreamHandle) -> bool {
        let Some(door) = thread_cache::nearest(self.id(), None, handle) else { return false };
        door.behind().1.free_quick(&door.seat, at, |_, _| Some(())).is_some()
    }

    /// As [`Pool::free_while`], likewise.
    #[inline(always)]
    pub fn free_while_quick(&self, at: Address, current: StreamHandle, tag: u8) -> Option<Account> {
        let door = thread_cache::nearest(self.id(), None, current)?;
        let (home, stream) = door.behind();
        stream.free_quick(&door.seat, at, |place, header| Account::of_tag(tag)(home, place, header))
    }
}

/// `seat`: of the calling thread's door to the stream.
impl Stream {
    #[inline(always)]
    fn malloc_quick(&self, seat: &'static Seat, bytes: u64, tag: u8) -> Option<Address> {
        self.beginning.of_some()?;
        // Sizes beyond all reason wrap to one that no front has.
        let grains = bytes.wrapping_add(GRAIN - 1) / GRAIN;
        let mut held = self.hot.enter_as(seat)?;
        let hot = &mut *held;
        let (newest, grains, place) = if grains.wrapping_sub(1) < Front::SHORT {
            let newest = hot.front.newest_short(grains)?;
            let place = hot.last_leaf.place(newest.start)?;
            (newest, grains, place)
        } else {
            let (newest, grains) = hot.front.newest_longer(grains)?;
            let place = self.layout.table.place_in_windows(newest.start)?;
            (newest, grains, place)
        };
        if self.would_peak(grains) {
            return None;
        }
        let start = newest.take();
        place.set_unasked(unasked(grains, bytes));
        // It may have been shut by now: then as if it had been after this.
        place.write(self.header.with(grains, tag));
        // Summed again: kept, the sum would cost a register more than there are.
        self.charge(hot, grains, tag);
        Some(self.layout.base.plus(start * GRAIN))
    }

    #[inline(always)]
    fn free_quick<T>(
        &self,
        seat: &'static Seat,
        at: Address,
        look: impl FnOnce(Place<'_>, Header) -> Option<T>,
    ) -> Option<T> {
        let offset = at.0.wrapping_sub(self.layout.base.0);
        if !offset.is_multiple_of(GRAIN) {
            return None;
        }
        let start = offset / GRAIN;
        let mut held = self.hot.enter_as(seat)?;
        let hot = &mut *held;
        // Nowhere, for what is not in the arena.
        let place = self.layout.table.place_near(start, &hot.last_leaf)?;
        let header = place.read_like(self.beginning.get())?;
        let seen = look(place, header)?;
        if !hot.front.push_if_room(Cached { start, grains: header.grains() }) {
            return None;
        }
        place.write_cached(header);
        self.credit(hot, header.grains(), header.tag());
        Some(seen)
    }
}
