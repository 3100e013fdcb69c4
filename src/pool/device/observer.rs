//! The observer of memory that is mapped and unmapped.

use std::fmt;

use crate::units::Address;

/// What happened to a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// The range has memory now.
    Mapped,
    /// The range has no memory any more.
    Unmapped,
}

/// Called with each range that is mapped or unmapped, under the arena's lock: must not call the pool.
pub type Observer = Box<dyn Fn(Mapping, Address, u64) + Send + Sync>;

/// The observer, if there is one.
#[derive(Default)]
pub(crate) struct Observed(pub Option<Observer>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}
