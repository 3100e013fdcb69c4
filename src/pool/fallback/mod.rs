//! What serves a device without virtual memory management: the driver's own stream-ordered pool (`cuMemPool*`).
//!
//! `device` chooses between that and the arena when a device is opened; `driver_ordered` is the pool; `ledger` is what
//! it notes about blocks, since the driver lists none; `report` reads both.
//!
//! One mutex guards the ledger, and it is never held in a call of the driver, which may wait for the GPU. So a block is
//! noted after the driver gave it, and struck out before the driver gets it back.

pub(crate) mod device;
pub(crate) mod driver_ordered;
pub(crate) mod ledger;
mod report;
