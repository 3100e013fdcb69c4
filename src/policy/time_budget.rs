//! How much time may go into something: a share of the time that passes, saved up to a bound.
//!
//! What is done is charged at what its driver calls were measured to cost, not at the time that it took: on a busy machine a thread
//! loses its core in the middle, and that time would count as work.
//!
//! A move of a chunk keeps the pool small and costs 40 to 60 µs of driver calls. A program whose sizes vary from step to step needs
//! a few thousand of them; one that allocates and frees blocks of any size as fast as it can would do nothing else. So
//! moves get a share of the time that passes, and when that is used up new memory is taken instead, within bounds. Chunks of a page, where
//! larger ones would do at some loss, have a share of their own.

use std::time::Duration;

/// What a new pool's moves may use at once, and the most that can be saved up: a program's first steps are when most is moved.
const MOVES: Duration = Duration::from_millis(250);
/// A training that takes its first memory should not wait for more chunks than it needs.
const CHUNKS_AT_FIRST: Duration = Duration::from_millis(40);
const CHUNKS: Duration = Duration::from_millis(100);

/// A chunk is mapped at its new place, made accessible, and unmapped at its old one; the plan and its fence are small beside that. H200.
pub(crate) const MOVE: Duration = Duration::from_micros(45);
/// A chunk is created, mapped and made accessible. H200, 2 to 32 MiB.
pub(crate) const GROW: Duration = Duration::from_micros(40);
/// A page of 2 MiB of the host is created, that is pinned. H200.
const PIN_2_MIB: Duration = Duration::from_micros(580);

/// What so many of something cost.
pub(crate) fn times(price: Duration, count: u64) -> Duration {
    price.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// What it costs to pin so many bytes.
pub(crate) fn pinning(bytes: u64) -> Duration {
    times(PIN_2_MIB, bytes >> 21)
}

/// The time that may still be taken.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// In nanoseconds; below 0 where the last one took more than there was.
    left: i64,
    /// On the driver's clock.
    since: Duration,
    /// The most that can be saved up. Nanoseconds.
    most: i64,
    /// One part in so many of all time.
    share: u32,
}

/// That many nanoseconds, as a number that can be a debt.
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Allowance {
    /// For moving chunks.
    pub fn for_moves(now: Duration) -> Self {
        Self { left: nanos(MOVES), since: now, most: nanos(MOVES), share: 100 }
    }

    /// For moves beyond those, which keep a pool from holding much more than it ever needed.
    pub fn for_needed_moves(now: Duration) -> Self {
        Self { share: 25, ..Self::for_moves(now) }
    }

    /// For everything that makes room, while chunks of a page are taken.
    pub fn for_small_chunks(now: Duration) -> Self {
        Self { left: nanos(CHUNKS_AT_FIRST), since: now, most: nanos(CHUNKS), share: 64 }
    }

    /// Whether anything is left.
    pub fn is_left(&mut self, now: Duration) -> bool {
        let earned = nanos(now.saturating_sub(self.since) / self.share);
        self.left = self.left.max(self.left.saturating_add(earned).min(self.most));
        self.since = now;
        self.left > 0
    }

    /// So much more may be taken, beyond what can be saved up of the time.
    pub fn gets(&mut self, time: Duration) {
        self.left = self.left.saturating_add(nanos(time));
    }

    /// Charges what was done, at its price.
    pub fn took(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(nanos(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_and_no_more_than_can_be_saved_up() {
        let start = Duration::ZERO;
        let mut moves = Allowance::for_moves(start);
        assert!(moves.is_left(start));
        moves.took(MOVES);
        assert!(!moves.is_left(start));
        let later = start + Duration::from_secs(1);
        assert!(moves.is_left(later));
        moves.took(Duration::from_secs(2) / 100);
        assert!(!moves.is_left(later));
        assert!(!moves.is_left(later + Duration::from_secs(1)), "the last one was too long");
        let much_later = later + Duration::from_secs(3600);
        assert!(moves.is_left(much_later));
        moves.took(MOVES);
        assert!(!moves.is_left(much_later));
    }

    #[test]
    fn what_is_given_is_not_lost_to_the_bound() {
        let start = Duration::ZERO;
        let mut moves = Allowance::for_moves(start);
        moves.gets(3 * MOVES);
        assert!(moves.is_left(start + Duration::from_secs(3600)));
        moves.took(3 * MOVES);
        assert!(moves.is_left(start + Duration::from_secs(3600)));
        moves.took(MOVES);
        assert!(!moves.is_left(start + Duration::from_secs(3600)));
    }

    #[test]
    fn small_chunks_have_little_at_first() {
        let start = Duration::ZERO;
        let mut chunks = Allowance::for_small_chunks(start);
        assert!(chunks.is_left(start));
        chunks.took(CHUNKS_AT_FIRST);
        assert!(!chunks.is_left(start));
        assert!(chunks.is_left(start + Duration::from_secs(1)));
    }
}
