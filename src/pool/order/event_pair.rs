//! The two fences of a stream that was not registered.
//!
//! Its handle may be dead when somebody looks at it, so an event is recorded when it frees. One event, moved on by every free,
//! would not pass as long as the stream is at work. So there are two, and the frees move one of them, until somebody wants the
//! stream's memory: from then on they move the other, and the first stands still until it has passed.
//!
//! Invariants, which let the epochs of the arena do the rest:
//! - The pair turns under the arena's lock and the stream's, and only once what the fence before covered is done, or behind an
//!   event of its own: that one is later in the same stream, so nobody has to look at the one before it any more.
//! - An event counts only if the pair had not turned by when it had been recorded.
//!
//! What is handed to the arena before the pair turns has its event from that turn or from one before, though it may have
//! been on its way for long. So it is done when that turn's fence has passed; and all that was ever freed is when both have.

use std::sync::Arc;

use super::fence::Fence;
use super::gpu::Gpu;
use crate::driver::Result;
use crate::units::StreamHandle;

/// How often the pair has turned.
pub(crate) type Turn = u64;

#[derive(Debug)]
pub(crate) struct EventPair {
    fences: [Arc<Fence>; 2],
}

impl EventPair {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        Ok(Self { fences: [Arc::new(Fence::new(gpu)?), Arc::new(Fence::new(gpu)?)] })
    }

    /// The fence that the frees of a turn move.
    pub fn of(&self, turn: Turn) -> &Arc<Fence> {
        &self.fences[(turn % 2) as usize]
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
