//! What this process exports: a table of keys. Who knows a key may have what lies behind it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::descriptor::Route;
use super::pieces::Exported;
use super::service;
use crate::driver::process::is_forked;
use crate::error::Result;

static OFFERS: Mutex<BTreeMap<Key, Arc<dyn Exported>>> = Mutex::new(BTreeMap::new());

/// 128 random bits that open one export. Secret: not shown, also not for debugging.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Uuid);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Where an export is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The name of this process's service.
    pub service: Uuid,
    /// The export's key.
    pub key: Key,
}

impl Ticket {
    /// The route of a descriptor for it.
    #[must_use]
    pub fn route(self, fabric: bool) -> Route {
        Route::Exchange { service: self.service, key: self.key, fabric }
    }
}

/// Offers memory to other processes of this user, until [`withdraw`]. Starts the service. Keeps `what` alive meanwhile.
/// Any thread.
///
/// # Errors
/// Those of [`serve`](super::serve).
pub fn offer(what: Arc<dyn Exported>) -> Result<Ticket> {
    let service = service::start()?;
    let key = Key(Uuid::new_v4());
    OFFERS.lock().insert(key, what);
    Ok(Ticket { service, key })
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
