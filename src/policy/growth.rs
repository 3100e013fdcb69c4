//! Whether chunks are moved to make room, or new memory is taken.
//!
//! Moves keep the pool small and cost time, so they have a share of it (`allowance.rs`). When that is used up the pool grows: freely to a
//! fifth more than was ever live at once, beyond that only when moves have used up a larger share too, and never to more than twice what
//! is live now. A pool that gave nearly everything back begins anew. The fifth is from replays of trainings that had no time for moves
//! left (`docs/performance.md`).
//!
//! A stream that has nothing else to do, or streams that are made to wait for each other again and again, get a little more memory
//! instead, so that they overlap. A wait of a stream that is behind itself, now and then, is cheaper than memory.
//!
//! Pinning a page takes three times as long as a move. So in pools of pinned memory it pays for moves, too: they may take as long as
//! it did, in all, before the pool grows to save them.

use std::time::Duration;

use super::time_budget::Allowance;

/// Beyond so many times what is live, no memory is taken to save moves.
const MOST: u64 = 2;
/// One part in so many of the most that was live: what is taken before the larger share is touched.
const FREELY: u64 = 5;
/// Streams that were made to wait for each other so often, while the pool did not grow, are at it all the time.
const WAITS: u32 = 16;
/// To so little more than was ever live, one part in so many, it grows rather than let streams stand idle.
const RATHER_THAN_WAIT: u64 = 32;
/// One part in so many of the most that was live is next to nothing.
const NEXT_TO_NOTHING: u64 = 16;

/// What moves may cost, and what was seen of the pool's need.
#[derive(Debug)]
pub(crate) struct Growth {
    usual: Allowance,
    /// For moves that keep the pool from growing beyond the fifth.
    larger: Allowance,
    /// The most that was live when room was made, since memory was given back last. Bytes.
    peak: u64,
    /// How often one stream was made to wait for another since the pool grew last.
    waits: u32,
}

impl Growth {
    pub fn new(now: Duration) -> Self {
        Self { usual: Allowance::for_moves(now), larger: Allowance::for_needed_moves(now), peak: 0, waits: 0 }
    }

    /// Room is to be made for a request, with so many bytes live then: whether chunks may move.
    pub fn may_move(&mut self, now: Duration, live: u64) -> bool {
        self.peak = self.peak.max(live);
        self.usual.is_left(now)
    }

    /// Whether the pool may come to hold so many bytes rather than move chunks.
    pub fn may_grow(&mut self, now: Duration, held: u64, live: u64) -> bool {
        held <= live.saturating_mul(MOST)
            && (held <= self.peak.saturating_add(self.peak / FREELY) || !self.larger.is_left(now))
    }

    /// Whether the pool may come to hold so many bytes rather than make a stream wait once more. `stands_idle`: it has nothing to do
    /// until then, so that it would be late by all of the wait. Two or three blocks that are in use in turns let streams overlap that
    /// would else take turns themselves.
    pub fn may_spare_a_wait(&self, held: u64, stands_idle: impl FnOnce() -> bool) -> bool {
        held <= self.peak.saturating_add(self.peak / RATHER_THAN_WAIT) && (self.waits >= WAITS || stands_idle())
    }

    /// One stream was made to wait for another.
    pub fn waited(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// The pool grew.
    pub fn grew(&mut self) {
        self.waits = 0;
    }

    /// Memory was pinned, at that price: moves may cost as much.
    pub fn pinned(&mut self, price: Duration) {
        self.usual.gets(price);
    }

    /// Charges moves at their price; `needed` are those that [`Growth::may_move`] had not allowed.
    pub fn moved(&mut self, price: Duration, needed: bool) {
        if needed { self.larger.took(price) } else { self.usual.took(price) }
    }

    /// Memory was given back, with so many bytes live: what was needed before says nothing any more. Where next to nothing is held
    /// now, something else begins, and may move as much as in a new pool.
    pub fn gave_back(&mut self, now: Duration, live: u64, held: u64) {
        if held <= self.peak / NEXT_TO_NOTHING {
            *self = Self::new(now);
        }
        self.peak = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn moves_then_a_fifth_then_moves_then_twice_what_is_live() {
        let now = Duration::ZERO;
        let mut growth = Growth::new(now);
        assert!(growth.may_move(now, 800));
        growth.moved(SECOND, false);
        assert!(!growth.may_move(now, 400));
        assert!(growth.may_grow(now, 800, 400) && growth.may_grow(now, 960, 800));
        assert!(!growth.may_grow(now, 961, 800), "more than a fifth above 800");
        assert!(!growth.may_grow(now, 801, 400), "more than twice of what is live");
        growth.moved(SECOND, true);
        assert!(growth.may_grow(now, 961, 800), "nothing is left of the larger share either");
        assert!(!growth.may_grow(now, 801, 400));
        let later = now + 30 * SECOND;
        assert!(!growth.may_grow(later, 961, 800), "the larger share is back first");
        assert!(!growth.may_move(later, 800));
    }

    #[test]
    fn only_waits_again_and_again_or_of_an_idle_stream_are_worth_memory() {
        let now = Duration::ZERO;
        let mut growth = Growth::new(now);
        growth.may_move(now, 3200);
        let spares =
            |growth: &Growth, held| (growth.may_spare_a_wait(held, || false), growth.may_spare_a_wait(held, || true));
        (1..WAITS).for_each(|_| growth.waited());
        assert_eq!(spares(&growth, 3300), (false, true));
        assert_eq!(spares(&growth, 3301), (false, false), "more than a 32nd of 3200");
        growth.waited();
        assert_eq!((spares(&growth, 3300), spares(&growth, 3301)), ((true, true), (false, false)));
        growth.grew();
        assert_eq!(spares(&growth, 3200), (false, true), "it may have been enough");
    }

    #[test]
    fn pinning_pays_for_moves() {
        let now = Duration::ZERO;
        let mut growth = Growth::new(now);
        growth.pinned(3 * SECOND);
        assert!(growth.may_move(now, 800));
        growth.moved(SECOND, false);
        growth.moved(2 * SECOND, false);
        assert!(growth.may_move(now, 800), "a quarter of a second is left, which a new pool has");
        growth.moved(SECOND / 4, false);
        assert!(!growth.may_move(now, 800));
    }

    #[test]
    fn what_was_given_back_is_not_needed() {
        let now = Duration::ZERO;
        let mut growth = Growth::new(now);
        growth.may_move(now, 800);
        growth.gave_back(now, 80, 800);
        assert!(growth.may_grow(now, 96, 80));
        assert!(!growth.may_grow(now, 97, 80));
    }

    #[test]
    fn an_empty_pool_is_as_new() {
        let now = Duration::ZERO;
        let mut growth = Growth::new(now);
        growth.may_move(now, 1600);
        growth.moved(SECOND, false);
        growth.moved(SECOND, true);
        growth.gave_back(now, 0, 101);
        assert!(!growth.may_move(now, 1600), "it was not empty");
        growth.gave_back(now, 0, 100);
        assert!(growth.may_move(now, 1600));
        growth.moved(SECOND, false);
        assert!(!growth.may_grow(now, 1921, 1600), "the larger share is as new, too");
    }
}
