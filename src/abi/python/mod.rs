//! The interpreter of the process, if there is one: nothing is linked.

pub(crate) mod exception;
pub(crate) mod thread;
