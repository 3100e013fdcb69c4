//! The table of this process's exports by key. A process of the same user that knows a key may have the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::pieces::Exported;
use crate::driver::process::is_forked;
use crate::ticket::Key;

static OFFERS: Mutex<BTreeMap<Key, Arc<dyn Exported>>> = Mutex::new(BTreeMap::new());

/// Adds `what` under a new key.
pub(super) fn add(what: Arc<dyn Exported>) -> Key {
    let key = Key(Uuid::new_v4());
    OFFERS.lock().insert(key, what);
    key
}

/// Ends an offer: later requests for it fail with [`Error::NotFound`](crate::error::Error::NotFound). A second call
/// does nothing. An exchange that has begun goes on, so the exported object may be dropped on a thread of the service.
pub fn withdraw(key: Key) {
    if is_forked() {
        return;
    }
    // Dropped only after the lock is released.
    let _withdrawn = OFFERS.lock().remove(&key);
}

pub(super) fn find(key: Key) -> Option<Arc<dyn Exported>> {
    OFFERS.lock().get(&key).cloned()
}
