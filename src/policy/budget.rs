//! The time that the slow path may take: one budget for moves and for new chunks.
//!
//! The budget is a share of the time that passes, saved up to a bound. Steps are charged at the measured cost of their
//! driver calls, not at the time they took: on a busy machine a thread may lose its core in between, which would count
//! as work.
//!
//! Moves keep the pool small. A program whose sizes vary from step to step needs a few thousand of them; one that
//! allocates and frees blocks of any size as fast as it can would do nothing else. Small chunks keep the pool small,
//! too, but each costs as much as a large one.

use std::time::Duration;

/// Mapping a chunk at its new place, granting access, and unmapping the old place; the plan and its fence cost little
/// beside that. H200.
const MOVE: Duration = Duration::from_micros(45);
/// Creating a chunk, mapping it, and granting access. H200, 2 to 32 MiB.
const GROW: Duration = Duration::from_micros(40);
/// Creating, that is pinning, 2 MiB of host memory. H200.
const PIN_2_MIB: Duration = Duration::from_micros(580);

/// The budget earns one `SHARE`th of all time: too little to notice.
const SHARE: u32 = 100;
/// The budget of a new pool: most moves and new chunks happen in a program's first steps.
const INITIAL: Duration = Duration::from_millis(500);
/// The most that is saved up, so that a service that was idle for an hour does not spend half a minute.
const MAX_SAVED: Duration = Duration::from_millis(1000);
/// The most that may be owed, for moves without which the pool would grow beyond its need.
const MAX_DEBT: Duration = Duration::from_millis(1000);

/// The rate of exchange between memory and time (see `chunk`): with an empty budget, and with that of a new pool.
/// Between the two and beyond, the rate grows exponentially with the budget.
const MIN_RATE: f64 = 20.0;
const INITIAL_RATE: f64 = 45.0;
/// A higher rate saves hardly any memory.
const MAX_RATE: f64 = 160.0;

/// What is left of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Enough for any move.
    Some,
    /// Enough only for moves that keep the pool from growing beyond its need.
    NeededOnly,
    /// Nothing.
    Nothing,
}

/// The time budget of the slow path.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    /// In nanoseconds; negative if time is owed.
    level: i64,
    /// The time of the last update, on the driver's clock.
    since: Duration,
}

/// A time as a number that can be negative.
fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn times(price: Duration, count: u64) -> i64 {
    nanos(price.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)))
}

impl TimeBudget {
    /// `now`: the time on the driver's clock, here and below.
    pub fn new(now: Duration) -> Self {
        Self { level: nanos(INITIAL), since: now }
    }

    /// Adds the time that has passed. Returns what is left.
    pub fn left(&mut self, now: Duration) -> Left {
        let earned = nanos(now.saturating_sub(self.since) / SHARE);
        self.level = self.level.max(self.level.saturating_add(earned).min(nanos(MAX_SAVED)));
        self.since = now;
        match self.level {
            1.. => Left::Some,
            owed if owed > -nanos(MAX_DEBT) => Left::NeededOnly,
            _ => Left::Nothing,
        }
    }

    /// The rate of exchange that the budget allows.
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let part = self.level.max(0) as f64 / nanos(INITIAL) as f64;
        (MIN_RATE * (INITIAL_RATE / MIN_RATE).powf(part)).min(MAX_RATE)
    }

    /// Charges moves and new chunks.
    pub fn spend(&mut self, moves: u64, new_chunks: u64) {
        self.level = self.level.saturating_sub(times(MOVE, moves)).saturating_sub(times(GROW, new_chunks));
    }

    /// Credits pinned host memory: pinning costs far more than a move, so as much time may go into moves that avoid the
    /// next.
    pub fn pinned(&mut self, bytes: u64) {
        self.level = self.level.saturating_add(times(PIN_2_MIB, bytes >> 21));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(7);

    /// The number of moves that cost this time.
    fn moves(time: Duration) -> u64 {
        time.as_nanos().div_ceil(MOVE.as_nanos()) as u64
    }

    #[test]
    fn the_budget_earns_a_share_of_the_time_up_to_a_bound() {
        let mut budget = TimeBudget::new(START);
        assert_eq!(budget.left(START), Left::Some);
        budget.spend(moves(INITIAL), 0);
        assert_eq!(budget.left(START), Left::NeededOnly);
        assert_eq!(budget.left(START + Duration::from_secs(1)), Left::Some);
        let much_later = START + Duration::from_secs(36_000);
        assert_eq!(budget.left(much_later), Left::Some);
        budget.spend(moves(MAX_SAVED), 0);
        assert_eq!(budget.left(much_later), Left::NeededOnly, "ten hours are worth no more than what can be saved up");
    }

    #[test]
    fn the_debt_has_a_bound() {
        let mut budget = TimeBudget::new(START);
        budget.spend(moves(INITIAL + MAX_DEBT), 0);
        assert_eq!(budget.left(START), Left::Nothing);
        assert_eq!(budget.left(START + Duration::from_secs(2)), Left::NeededOnly);
    }

    #[test]
    fn the_rate_falls_with_the_budget() {
        let mut budget = TimeBudget::new(START);
        assert!((budget.rate() - INITIAL_RATE).abs() < 0.01);
        budget.spend(0, 1000);
        let after = budget.rate();
        assert!(MIN_RATE < after && after < INITIAL_RATE, "{after}");
        budget.spend(0, 1_000_000);
        assert!((budget.rate() - MIN_RATE).abs() < 0.01);
        budget.left(START + Duration::from_secs(1_000_000));
        assert!(INITIAL_RATE < budget.rate() && budget.rate() <= MAX_RATE);
    }

    #[test]
    fn pinning_earns_time_for_moves() {
        let mut budget = TimeBudget::new(START);
        budget.spend(moves(INITIAL), 0);
        budget.pinned(1 << 30);
        assert_eq!(budget.left(START), Left::Some);
        budget.spend(moves(PIN_2_MIB * 512), 0);
        assert_eq!(budget.left(START), Left::NeededOnly);
    }
}
