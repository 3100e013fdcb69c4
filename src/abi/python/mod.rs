//! The process's Python interpreter, if there is one. Nothing is linked; symbols are looked up in the process.

pub(crate) mod exception;
pub(crate) mod thread;
