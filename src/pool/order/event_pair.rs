//! The event pair: the two fences of a stream that is not registered.
//!
//! Its handle may be dead by the time its memory is needed, so the stream's frees record an event. A single event that
//! every free records again would not pass as long as the stream works. So there are two. Frees record one of them
//! until another stream needs the memory; from then on they record the other, and the first can pass.
//!
//! Invariants, on which the arena's epochs rely:
//! - The pair turns under the locks of the arena and the stream, and only once the fence before has passed, or behind
//!   an event of its own turn. That event is later in the same stream, so the one before it is no longer needed.
//! - An event counts only if the pair did not turn while it was recorded.
//!
//! Memory that the arena gets before the pair turns has an event of that turn or an earlier one, even if the free was
//! slow to arrive. So it is unused once the fence of that turn has passed; and everything ever freed is unused once
//! both have passed.

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

    /// The fence that the frees of a turn record.
    pub fn of(&self, turn: Turn) -> &Arc<Fence> {
        &self.fences[(turn % 2) as usize]
    }

    pub fn both(&self) -> &[Arc<Fence>; 2] {
        &self.fences
    }

    /// Whether the work that the stream had at its last free is done.
    pub fn passed(&self) -> bool {
        self.fences.iter().all(|fence| fence.passed())
    }

    /// Makes another stream wait for both fences; the host does not wait.
    pub fn make_stream_wait(&self, stream: StreamHandle) -> Result<()> {
        self.fences.iter().try_for_each(|fence| fence.make_stream_wait(stream))
    }
}
