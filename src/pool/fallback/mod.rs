//! The pool of a device without virtual memory management: the driver's own stream-ordered pool (`cuMemPool*`).
//!
//! `device` chooses between that pool and the arena when a device is opened; `driver_ordered` is the pool; `ledger`
//! records its blocks, since the driver does not list them; `report` reads both.
//!
//! One mutex guards the ledger. It is never held in a driver call, which may wait for the GPU. So a block is recorded
//! after the driver returned it, and removed before it goes back to the driver.

pub(crate) mod device;
pub(crate) mod driver_ordered;
pub(crate) mod ledger;
mod report;
