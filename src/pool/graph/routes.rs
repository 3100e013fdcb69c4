//! The routes of allocations to private pools.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::id::unknown;
use crate::error::Result;
use crate::pool::order::gpu::Gpu;
use crate::units::StreamHandle;

/// Returns whether a stream's allocations go to a private pool.
pub type Filter = Box<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// A private pool that takes allocations now.
struct Route {
    id: u128,
    takes: Filter,
}

/// The announced routes, newest last. Any thread.
pub(crate) struct Routes {
    gpu: Arc<Gpu>,
    list: RwLock<Vec<Route>>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.read().iter().map(|route| route.id)).finish()
    }
}

impl Routes {
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: Arc::clone(gpu), list: RwLock::default() }
    }

    /// Routes allocations on streams that `takes` accepts to a private pool, until [`Routes::end`].
    pub fn begin(&self, id: u128, takes: Filter) {
        self.list.write().push(Route { id, takes });
        self.gpu.capture_begins();
    }

    /// Ends the newest route to that pool.
    pub fn end(&self, id: u128) -> Result<()> {
        let route = {
            let mut list = self.list.write();
            let found = list.iter().rposition(|route| route.id == id).ok_or_else(|| unknown(id))?;
            list.remove(found)
        };
        self.gpu.capture_ends();
        // Dropping the filter runs its owner's code, so no lock is held.
        drop(route);
        Ok(())
    }

    /// Whether any pool takes allocations.
    pub fn is_any(&self) -> bool {
        !self.list.read().is_empty()
    }

    /// The private pool that takes this stream's allocations now.
    pub fn find(&self, stream: StreamHandle) -> Option<u128> {
        if !self.gpu.is_capturing() {
            return None;
        }
        self.list.read().iter().rev().find(|route| (route.takes)(stream)).map(|route| route.id)
    }
}
