//! The live allocations that a resource gave as pointers, not as buffers.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::units::{Address, StreamHandle};

/// The live pointers of a resource, each with the stream of its allocation. A caller may free only these by pointer.
/// Buffers, which are far more frequent, need no entry.
#[derive(Debug, Default)]
pub struct Pointers(Mutex<HashMap<Address, StreamHandle>>);

impl Pointers {
    pub(super) fn add(&self, at: Address, stream: StreamHandle) {
        self.0.lock().insert(at, stream);
    }

    /// Removes a pointer and returns its stream; `None` for an unknown one. Of two threads that free the same pointer
    /// one gets it.
    pub(super) fn take(&self, at: Address) -> Option<StreamHandle> {
        self.0.lock().remove(&at)
    }
}
