//! `forebay._fast`: the calls that Python programs make for every piece of memory, without ctypes.
//!
//! `python/forebay/_plain.py` does the same through ctypes and is used where this module is absent. Both have one behaviour:
//! what is not the common case is left to the package's Python code, here as there. Nothing is linked: the package hands over
//! the addresses of the library's functions.
//!
//! # The interpreter's lock
//!
//! A hit keeps it: giving it up and taking it again costs as much as the hit itself, and may hand it to another thread. That
//! is sound only for calls that wait for nobody who may need the lock. Which calls those are only the library knows, so they
//! are calls of their own, the `*_try_*`, which touch no driver and no lock under which anybody waits or calls back. What
//! they refuse is done by the plain calls with the lock given up: these may wait for a stream, on which a callback written in
//! Python may be queued, and may ask other Python code to free memory.

mod blocks;
mod buffer;
mod cell;
mod connect;
mod core_resource;
mod pinned;
mod resource;
mod stream;

use pyo3::prelude::*;

/// What the package must find here to use this module. Raised with every change of what is handed over or called back.
const ABI: u32 = 4;

#[pymodule(gil_used = true)]
mod _fast {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::blocks::{free, free_after_all, malloc, malloc_ready};
    #[pymodule_export]
    use super::buffer::BufferBase;
    #[pymodule_export]
    use super::connect::{connect, is_connected};
    #[pymodule_export]
    use super::core_resource::CoreBase;
    #[pymodule_export]
    use super::pinned::{PinnedBase, PinnedBlock};
    #[pymodule_export]
    use super::resource::ResourceBase;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("ABI", super::ABI)?;
        module.add("FUNCTIONS", super::connect::FUNCTIONS)
    }
}
