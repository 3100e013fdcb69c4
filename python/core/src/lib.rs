//! `forebay._core`: everything that the Python package does through the C ABI.
//!
//! It is linked with `libforebay.so`, which lies beside it; `build.rs` says how. `abi.rs` has the declarations.
//!
//! # The interpreter's lock
//!
//! A hit keeps it: giving it up and taking it again costs as much as the hit itself, and may hand it to another thread. That
//! is sound only for calls that wait for nobody who may need the lock. Which calls those are only the library knows, so they
//! are calls of their own, the `*_try_*`, which touch no driver and no lock under which anybody waits or calls back. What
//! they refuse is done by the plain calls with the lock given up, and so is everything else: these may wait for a stream, on
//! which a callback written in Python may be queued, and may ask other Python code to free memory.
//!
//! Nothing here needs the lock to be sound: fields that change have locks of their own in interpreters without one (`cell.rs`).

#[rustfmt::skip]
#[expect(dead_code, non_camel_case_types, reason = "the whole header, with C's names")]
mod abi;
mod blocks;
mod buffer;
mod buffers;
mod calls;
mod cell;
mod connect;
mod core_resource;
mod dlpack;
mod library;
mod memory;
mod pinned;
mod pools;
mod resource;
mod resources;
mod stream;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::blocks::{free, free_after_all, malloc, malloc_ready};
    #[pymodule_export]
    use super::buffer::BufferBase;
    #[pymodule_export]
    use super::buffers::{
        BufferInfo, buffer_from_handle, buffer_from_ipc_descriptor, buffer_get_info, buffer_get_ipc_descriptor,
        ipc_descriptor_size, ipc_export, ipc_export_foreign,
    };
    #[pymodule_export]
    use super::connect::connect;
    #[pymodule_export]
    use super::core_resource::CoreBase;
    #[pymodule_export]
    use super::dlpack::{buffer_from_dlpack, buffer_to_dlpack, is_dlpack};
    #[pymodule_export]
    use super::library::{
        address_of, capsule_pointer, cupy_set_memory_hooks, cupy_set_stream_getter, keep_for_good, last_error_message,
        library_path, log_set_callback, torch_release_pool, version,
    };
    #[pymodule_export]
    use super::memory::memory_view;
    #[pymodule_export]
    use super::pinned::{PinnedBase, PinnedBlock};
    #[pymodule_export]
    use super::pools::{
        Block, pool_add_pressure_callback, pool_capsule, pool_create, pool_driver_name, pool_get_stats,
        pool_memory_info, pool_report, pool_snapshot,
    };
    #[pymodule_export]
    use super::resource::ResourceBase;
    #[pymodule_export]
    use super::resources::{
        ResourceInfo, cupy_pool_create, device_resource_create, host_resource_create, managed_resource_create,
        pinned_resource_create, resource_from_allocation_handle, resource_from_registry,
        resource_get_allocation_handle, resource_get_info, resource_modify_allocation, resource_register,
        virtual_resource_create,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        for (name, number) in super::abi::NUMBERS {
            module.add(*name, *number)?;
        }
        super::calls::add(module)
    }
}
