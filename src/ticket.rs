//! By what an export is known to other processes.

use std::fmt;

use uuid::Uuid;

/// 122 random bits that open one export. Secret: not shown, also not for debugging.
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
