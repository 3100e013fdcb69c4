//! Whoever is told of memory that is mapped and unmapped.

use std::fmt;

use crate::units::Address;

/// What happened to a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// It has memory now.
    Mapped,
    /// It has none any more.
    Unmapped,
}

/// Told of each range that is mapped or unmapped, under the arena's lock: must not call the pool.
pub type Observer = Box<dyn Fn(Mapping, Address, u64) + Send + Sync>;

/// Somebody to tell, or nobody.
#[derive(Default)]
pub(crate) struct Observed(pub Option<Observer>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}
