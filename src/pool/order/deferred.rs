//! A freed block that waits for fences.

use std::sync::Arc;

use super::fence::Fence;
use crate::arena::Owner;

#[derive(Debug)]
pub(crate) struct Deferred {
    pub start: u64,
    /// Whose it is then.
    pub owner: Owner,
    /// The slot of the stream in whose order it is freed.
    pub slot: u16,
    pub fences: Vec<Arc<Fence>>,
}

impl Deferred {
    /// Whether all that it waits for is done.
    pub fn is_over(&self) -> bool {
        self.fences.iter().all(|fence| fence.passed())
    }
}
