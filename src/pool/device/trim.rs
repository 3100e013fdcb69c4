//! Giving memory back to the driver.

use parking_lot::MutexGuard;

use super::chunks::{held, release_spare};
use super::device_pool::DevicePool;
use super::reclaim::{clear_quarantine, poll, wait_for_pending};
use super::state::State;
use crate::driver::DriverError;
use crate::error::Result;
use crate::policy::budget::TimeBudget;
use crate::units::GRANULE;

/// Gives memory that is not live back to the driver until the pool holds at most `keep` bytes or has no more to give.
/// Waits on the host for work that still uses freed memory. Returns the bytes given back.
///
/// # Errors
/// The driver's error; what was given back before it stays given back.
pub(crate) fn trim(pool: &DevicePool, keep: u64) -> Result<u64> {
    if wait_for_pending(pool) {
        // The fence that was pending covers only earlier frees; the second wait covers the others.
        wait_for_pending(pool);
    }
    clear_quarantine(pool);
    let mut state = pool.state.lock();
    poll(pool, &mut state, |_| true);
    let before = held(&pool.backing, &state);
    let released: std::result::Result<(), DriverError> = release_spare(&pool.backing, &mut state, keep);
    note_release(pool, &mut state);
    released?;
    Ok(before - held(&pool.backing, &state))
}

/// Gives memory back that is already proven unused, `part` bytes at a time, and unlocks the arena between the parts.
/// The scavenger calls it, at a moment that no user chose. Does nothing while an announced capture is active: a fence
/// recorded from this thread would become part of the capture.
pub(crate) fn release_in_parts(pool: &DevicePool, keep: u64, part: u64) -> u64 {
    let mut state = pool.state.lock();
    if state.graphs.is_any_active() {
        return 0;
    }
    // Only an event behind all work of the device could cover an unfenced block, and it could break a capture.
    poll(pool, &mut state, |stream| stream.is_durable() || stream.cache_state.lock().unfenced.is_none());
    let begun = held(&pool.backing, &state);
    // Requests may take memory between the parts, so the loop is bounded.
    for _ in 0..=begun / part {
        let before = held(&pool.backing, &state);
        let released = release_spare(&pool.backing, &mut state, keep.max(before.saturating_sub(part)));
        if released.is_err() || held(&pool.backing, &state) == before {
            break;
        }
        MutexGuard::unlocked(&mut state, std::thread::yield_now);
    }
    let gone = begun.saturating_sub(held(&pool.backing, &state));
    if gone > 0 {
        note_release(pool, &mut state);
    }
    gone
}

fn note_release(pool: &DevicePool, state: &mut State) {
    let (left, live) = (held(&pool.backing, state), state.memory.arena.live_granules() * GRANULE);
    if state.history.gave_back(live, left) {
        // Growth after this may cost as much as in a new pool.
        state.budget = TimeBudget::new(pool.gpu.driver.now());
    }
}
