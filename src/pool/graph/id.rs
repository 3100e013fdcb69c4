//! Ids of private pools.

use crate::error::Error;

/// The id of a private pool that a C caller numbered. PyTorch's ids are pairs of which one half is 0; with all bits of
/// one half set, the two never collide.
#[must_use]
pub const fn own_private_id(id: u64) -> u128 {
    (u64::MAX as u128) << 64 | id as u128
}

/// The id of an unannounced capture's private pool, from the driver's number of the capture. It collides with no other
/// kind.
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
