//! What every part of the ABI needs: handles, statuses, enums, versioned structures, and the guard against panics.

pub(crate) mod cxx;
pub mod enums;
pub mod guard;
pub mod handle;
pub mod log;
pub mod status;
pub mod version;
pub(crate) mod versioned;
