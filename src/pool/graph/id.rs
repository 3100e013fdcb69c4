//! The names of private pools.

use crate::error::Error;

/// The id of a private pool that a C caller numbered. PyTorch's are pairs of which one half is 0: with all bits of one
/// half set, these never meet them.
#[must_use]
pub const fn own_private_id(id: u64) -> u128 {
    (u64::MAX as u128) << 64 | id as u128
}

/// The id of the private pool of a capture that nobody announced, by the driver's number of it. Apart from the others in the same way.
pub(crate) const fn captured_id(number: u64) -> u128 {
    CAPTURED << 64 | number as u128
}

pub(crate) const fn is_captured(id: u128) -> bool {
    id >> 64 == CAPTURED
}

const CAPTURED: u128 = u64::MAX as u128 - 1;

pub(crate) fn unknown(id: u128) -> Error {
    let (first, second) = ((id >> 64) as u64, id as u64);
    let name = if first == u64::MAX { second.to_string() } else { format!("({first}, {second})") };
    Error::NotFound(format!("there is no private pool {name}: it was never begun, or was released before").into())
}
