//! A freed block that waits for fences.

use std::sync::Arc;

use super::fence::Fence;
use crate::arena::Owner;

#[derive(Debug)]
pub(crate) struct Deferred {
    pub start: u64,
    /// The owner that gets the block.
    pub owner: Owner,
    /// The slot of the stream in whose order it is freed.
    pub slot: u16,
    pub fences: Vec<Arc<Fence>>,
}

impl Deferred {
    /// Whether all its fences have passed.
    pub fn is_over(&self) -> bool {
        self.fences.iter().all(|fence| fence.passed())
    }
}
