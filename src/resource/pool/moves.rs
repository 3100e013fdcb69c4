//! How much time may go into moving chunks.
//!
//! A move keeps the pool small and costs 40 to 60 µs of driver calls. A program whose sizes vary from step to step needs
//! a few thousand of them; one that allocates and frees blocks of any size as fast as it can would do nothing else. So
//! moves get a share of the time that passes, and when that is used up new memory is taken instead, within bounds.

use std::time::{Duration, Instant};

/// One part in so many of all time.
const SHARE: u32 = 100;
/// What a new pool may use at once, and the most that can be saved up: a program's first steps are when most is moved.
const MOST: Duration = Duration::from_millis(250);
/// Beyond so many times what is live, no memory is taken to save moves.
const GROWTH: u64 = 2;

/// The time that moves may still take.
#[derive(Debug)]
pub(super) struct Moves {
    /// In nanoseconds; below 0 where the last move took more than there was.
    left: i64,
    since: Instant,
}

/// That many nanoseconds, as a number that can be a debt.
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Moves {
    pub fn new(now: Instant) -> Self {
        Self { left: nanos(MOST), since: now }
    }

    /// Whether anything is left.
    pub fn allowed(&mut self, now: Instant) -> bool {
        let earned = nanos(now.saturating_duration_since(self.since) / SHARE);
        self.left = self.left.saturating_add(earned).min(nanos(MOST));
        self.since = now;
        self.left > 0
    }

    /// Whether at least half of what can be saved up is left: then many small chunks are not too many.
    pub fn plenty(&self) -> bool {
        self.left >= nanos(MOST) / 2
    }

    /// Whether memory may be taken instead. Bytes.
    pub fn may_grow(held: u64, live: u64) -> bool {
        held <= live.saturating_mul(GROWTH)
    }

    /// Books what a move took.
    pub fn took(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(nanos(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_and_no_more_than_can_be_saved_up() {
        let start = Instant::now();
        let mut moves = Moves::new(start);
        assert!(moves.allowed(start));
        assert!(moves.plenty());
        moves.took(MOST);
        assert!(!moves.allowed(start) && !moves.plenty());
        let later = start + Duration::from_secs(1);
        assert!(moves.allowed(later));
        moves.took(Duration::from_secs(2) / SHARE);
        assert!(!moves.allowed(later));
        assert!(!moves.allowed(later + Duration::from_secs(1)), "the last one was too long");
        let much_later = later + Duration::from_secs(3600);
        assert!(moves.allowed(much_later) && moves.plenty());
        moves.took(MOST);
        assert!(!moves.allowed(much_later));
    }
}
