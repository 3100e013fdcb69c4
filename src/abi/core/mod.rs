//! Shared by every part of the ABI: handles, statuses, enums, versioned structs, the log, and the guard against panics.

pub(crate) mod cxx;
pub mod enums;
pub mod guard;
pub mod handle;
pub mod log;
pub mod status;
pub mod version;
pub(crate) mod versioned;
