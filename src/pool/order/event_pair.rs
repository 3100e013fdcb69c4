//! The fences of a stream that was not registered.
//!
//! Its handle may be dead when somebody looks at it, so an event is recorded when it frees. One event, moved on by every free,
//! would not pass as long as the stream is at work. So there are two, and rounds: frees of one round move one of them, and when
//! somebody wants the stream's memory the next round begins, which moves the other. The first stands still then, until it has passed.
//!
//! Invariants, which let the epochs of the arena do the rest:
//! - A round ends under the arena's lock and the stream's, and only once what the round before covered is done, or behind an event
//!   of its own: that one is later in the same stream, so nobody has to look at the one before it any more.
//! - An event counts only if its round was still on when it had been recorded.
//!
//! What is handed to the arena before a round ends has its event from that round or from one before, though it may have
//! been on its way for long. So it is done when that round's fence has passed; and all that was ever freed is when both have.

use std::sync::Arc;

use super::fence::{Events, Fence};
use crate::driver::Result;
use crate::pool::cache::stream::Stream;
use crate::pool::device::state::Inner;
use crate::units::StreamHandle;

/// The number of a round.
pub(crate) type Round = u64;

#[derive(Debug)]
pub(crate) struct Rounds {
    fences: [Arc<Fence>; 2],
}

impl Rounds {
    pub fn new(events: &Arc<Events>) -> Result<Self> {
        Ok(Self { fences: [Arc::new(Fence::new(events)?), Arc::new(Fence::new(events)?)] })
    }

    /// The fence that the frees of a round move.
    pub fn of(&self, round: Round) -> &Arc<Fence> {
        &self.fences[(round % 2) as usize]
    }

    pub fn both(&self) -> &[Arc<Fence>; 2] {
        &self.fences
    }

    /// Whether all work is done that the stream had when it freed last.
    pub fn passed(&self) -> bool {
        self.fences.iter().all(|fence| fence.passed())
    }

    /// Makes another stream wait for that; the host goes on.
    pub fn hold_back(&self, stream: StreamHandle) -> Result<()> {
        self.fences.iter().try_for_each(|fence| fence.hold_back(stream))
    }
}

impl Inner {
    /// What a stream that was not registered freed up to now has its fence, which no later free moves, if that can be.
    pub fn end_round(&mut self, stream: &Stream, rounds: &Rounds) -> bool {
        let is_pending = self.fence(stream.slot).is_some();
        let round = {
            let mut hot = stream.hot.enter(None);
            if !hot.bare.is_none() || is_pending && !hot.has_own_event {
                return false;
            }
            hot.has_own_event = false;
            hot.round += 1;
            hot.round - 1
        };
        self.raised_for_others(stream, Arc::clone(rounds.of(round)));
        true
    }
}
