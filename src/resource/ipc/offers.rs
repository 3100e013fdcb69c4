//! What this process exports: a table of keys. Who knows a key may have what lies behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::pieces::Exported;
use crate::driver::process::is_forked;
use crate::ticket::Key;

static OFFERS: Mutex<BTreeMap<Key, Arc<dyn Exported>>> = Mutex::new(BTreeMap::new());

/// Enters `what` under a new key.
pub(super) fn add(what: Arc<dyn Exported>) -> Key {
    let key = Key(Uuid::new_v4());
    OFFERS.lock().insert(key, what);
    key
}

/// Ends an offer: who asks from now on is told that there is no such thing. Twice is harmless. An exchange under way
/// goes on, so what was offered may be dropped on a thread of the service.
pub fn withdraw(key: Key) {
    if is_forked() {
        return;
    }
    // Dropped only after the lock was.
    let _withdrawn = OFFERS.lock().remove(&key);
}

pub(super) fn find(key: Key) -> Option<Arc<dyn Exported>> {
    OFFERS.lock().get(&key).cloned()
}
