//! The time that the slow path may take: one budget for moves and for new chunks.
//!
//! It is a share of the time that passes, saved up to a bound. What is done is charged at what its driver calls were measured to cost, not
//! at the time that it took: on a busy machine a thread loses its core in the middle, and that time would count as work.
//!
//! Moves keep the pool small: a program whose sizes vary from step to step needs a few thousand of them, and one that allocates and frees
//! blocks of any size as fast as it can would do nothing else. Small chunks keep it small, too, and each costs as much as a large one.

use std::time::Duration;

/// A chunk is mapped at its new place, made accessible, and unmapped at its old one; the plan and its fence are small beside that. H200.
const MOVE: Duration = Duration::from_micros(45);
/// A chunk is created, mapped and made accessible. H200, 2 to 32 MiB.
const GROW: Duration = Duration::from_micros(40);
/// A page of 2 MiB of the host is created, that is pinned. H200.
const PIN_2_MIB: Duration = Duration::from_micros(580);

/// One part in so many of all time: what nobody notices.
const SHARE: u32 = 100;
/// What a new pool may use at once: a program's first steps are when most is moved and made.
const AT_FIRST: Duration = Duration::from_millis(500);
/// The most that can be saved up, so that a service that was idle for an hour does not spend half a minute.
const MOST: Duration = Duration::from_millis(1000);
/// So much may be owed for moves without which the pool would grow beyond what it needs.
const DEBT: Duration = Duration::from_millis(1000);

/// The rate of exchange between memory and time (see `chunk`), where nothing is left and where a new pool begins; it grows evenly in its
/// powers between, and beyond.
const CHEAP: f64 = 20.0;
const AT_START: f64 = 45.0;
/// More saves next to nothing.
const DEAR: f64 = 160.0;

/// How much is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Enough for any move.
    Some,
    /// Only for moves that keep the pool from growing beyond what it needs.
    ForNeed,
    /// Nothing.
    Nothing,
}

/// What may still be spent.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    /// In nanoseconds; below 0 where it is owed.
    level: i64,
    /// When it was looked at last, on the driver's clock.
    since: Duration,
}

/// That many nanoseconds, as a number that can be a debt.
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn times(price: Duration, count: u64) -> i64 {
    nanos(price.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)))
}

impl TimeBudget {
    /// `now`: on the driver's clock, here and below.
    pub fn new(now: Duration) -> Self {
        Self { level: nanos(AT_FIRST), since: now }
    }

    /// How much is left now.
    pub fn left(&mut self, now: Duration) -> Left {
        let earned = nanos(now.saturating_sub(self.since) / SHARE);
        self.level = self.level.max(self.level.saturating_add(earned).min(nanos(MOST)));
        self.since = now;
        match self.level {
            1.. => Left::Some,
            owed if owed > -nanos(DEBT) => Left::ForNeed,
            _ => Left::Nothing,
        }
    }

    /// The rate of exchange that it allows.
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let part = self.level.max(0) as f64 / nanos(AT_FIRST) as f64;
        (CHEAP * (AT_START / CHEAP).powf(part)).min(DEAR)
    }

    /// Charges chunks that were moved and made.
    pub fn spend(&mut self, moves: u64, new_chunks: u64) {
        self.level = self.level.saturating_sub(times(MOVE, moves)).saturating_sub(times(GROW, new_chunks));
    }

    /// So many bytes of the host were pinned, which costs far more than a move: as much may go into moves, to save the next.
    pub fn pinned(&mut self, bytes: u64) {
        self.level = self.level.saturating_add(times(PIN_2_MIB, bytes >> 21));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(7);

    /// So many moves cost as much as that takes.
    fn moves(time: Duration) -> u64 {
        time.as_nanos().div_ceil(MOVE.as_nanos()) as u64
    }

    #[test]
    fn a_share_of_the_time_and_no_more_than_can_be_saved_up() {
        let mut budget = TimeBudget::new(START);
        assert_eq!(budget.left(START), Left::Some);
        budget.spend(moves(AT_FIRST), 0);
        assert_eq!(budget.left(START), Left::ForNeed);
        assert_eq!(budget.left(START + Duration::from_secs(1)), Left::Some);
        let much_later = START + Duration::from_secs(36_000);
        assert_eq!(budget.left(much_later), Left::Some);
        budget.spend(moves(MOST), 0);
        assert_eq!(budget.left(much_later), Left::ForNeed, "ten hours are worth no more than what can be saved up");
    }

    #[test]
    fn what_is_owed_has_a_bound() {
        let mut budget = TimeBudget::new(START);
        budget.spend(moves(AT_FIRST + DEBT), 0);
        assert_eq!(budget.left(START), Left::Nothing);
        assert_eq!(budget.left(START + Duration::from_secs(2)), Left::ForNeed);
    }

    #[test]
    fn the_rate_falls_with_what_is_left() {
        let mut budget = TimeBudget::new(START);
        assert!((budget.rate() - AT_START).abs() < 0.01);
        budget.spend(0, 1000);
        let after = budget.rate();
        assert!(CHEAP < after && after < AT_START, "{after}");
        budget.spend(0, 1_000_000);
        assert!((budget.rate() - CHEAP).abs() < 0.01);
        budget.left(START + Duration::from_secs(1_000_000));
        assert!(AT_START < budget.rate() && budget.rate() <= DEAR);
    }

    #[test]
    fn pinning_pays_for_moves() {
        let mut budget = TimeBudget::new(START);
        budget.spend(moves(AT_FIRST), 0);
        budget.pinned(1 << 30);
        assert_eq!(budget.left(START), Left::Some);
        budget.spend(moves(PIN_2_MIB * 512), 0);
        assert_eq!(budget.left(START), Left::ForNeed);
    }
}
