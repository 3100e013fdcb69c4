//! Memory that a resource gave as a bare pointer, and not as a buffer.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::units::{Address, StreamHandle};

/// The live pointers of a resource, each with the stream of its allocation. What is not here is not a caller's to give back:
/// it is a buffer's, or nobody's. So buffers, which are made far more often, need no book of their own.
#[derive(Debug, Default)]
pub struct Pointers(Mutex<HashMap<Address, StreamHandle>>);

impl Pointers {
    pub(super) fn add(&self, at: Address, stream: StreamHandle) {
        self.0.lock().insert(at, stream);
    }

    /// Takes a pointer out: of two who give it back one gets it. Its stream; `None` for one that is not here.
    pub(super) fn take(&self, at: Address) -> Option<StreamHandle> {
        self.0.lock().remove(&at)
    }
}
