//! A table of weak references by UUID.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uuid::Uuid;

/// A table that finds values by UUID and keeps none of them alive. Any thread; not in a child of `fork`, where its lock
/// may stay held.
#[derive(Debug)]
pub struct Registry<T> {
    entries: Mutex<BTreeMap<Uuid, Weak<T>>>,
}

impl<T> Registry<T> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Mutex::new(BTreeMap::new()) }
    }

    /// Registers `thing` under this UUID. The result is the living value that is registered already, otherwise `thing`.
    pub fn register(&self, uuid: Uuid, thing: &Arc<T>) -> Arc<T> {
        let mut entries = self.entries.lock();
        if let Some(found) = entries.get(&uuid).and_then(Weak::upgrade) {
            return found;
        }
        // Nothing is upgraded here, so nothing can be dropped under the lock.
        entries.retain(|_, entry| entry.strong_count() > 0);
        entries.insert(uuid, Arc::downgrade(thing));
        Arc::clone(thing)
    }

    /// Removes `thing`, if it is registered under this UUID.
    pub fn remove(&self, uuid: Uuid, thing: *const T) {
        let mut entries = self.entries.lock();
        if entries.get(&uuid).is_some_and(|entry| entry.as_ptr() == thing) {
            entries.remove(&uuid);
        }
    }

    /// The living value that is registered under this UUID.
    #[must_use]
    pub fn find(&self, uuid: Uuid) -> Option<Arc<T>> {
        self.entries.lock().get(&uuid).and_then(Weak::upgrade)
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_alive_wins_and_the_dead_are_swept() {
        let (registry, name) = (Registry::new(), Uuid::new_v4());
        assert!(registry.find(name).is_none());
        let first = Arc::new(1);
        assert!(Arc::ptr_eq(&registry.register(name, &first), &first));
        let second = Arc::new(2);
        assert!(Arc::ptr_eq(&registry.register(name, &second), &first), "the one alive is used");
        assert_eq!(registry.find(name).as_deref(), Some(&1));
        assert!(registry.find(Uuid::new_v4()).is_none());
        assert_eq!(Arc::strong_count(&first), 1, "the table keeps nothing alive");
        drop(first);
        assert!(registry.find(name).is_none());
        registry.register(Uuid::new_v4(), &second);
        assert_eq!(registry.entries.lock().len(), 1, "the dead entry is gone");
        assert!(Arc::ptr_eq(&registry.register(name, &second), &second), "a dead entry's name can be used again");
        registry.remove(name, Arc::as_ptr(&Arc::new(2)));
        assert!(registry.find(name).is_some(), "only the thing itself is taken out");
        registry.remove(name, Arc::as_ptr(&second));
        assert!(registry.find(name).is_none() && Arc::strong_count(&second) == 1);
    }
}
