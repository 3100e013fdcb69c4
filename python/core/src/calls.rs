//! The calls that take numbers and answer at most one. Each has the C function's name without `forebay_`, and its text there.

use pyo3::prelude::*;

use crate::abi;
use crate::connect::failed;

/// What a call answers, or the exception for its status.
pub fn answer<T>(py: Python<'_>, status: u32, answer: T) -> PyResult<T> {
    if status == abi::FOREBAY_STATUS_OK { Ok(answer) } else { Err(failed(py, status)) }
}

/// Functions that call C with the interpreter's lock given up. `-> type` has C write an answer behind the last argument.
macro_rules! calls {
    (@define $name:ident $function:ident ($($argument:ident: $kind:ty),*)) => {
        #[pyfunction]
        fn $name(py: Python<'_>, $($argument: $kind),*) -> PyResult<()> {
            // SAFETY: objects are alive or NULL and streams alive, as the package's classes see to.
            let status = py.detach(|| unsafe { abi::$function($($argument as _),*) });
            answer(py, status, ())
        }
    };
    (@define $name:ident $function:ident ($($argument:ident: $kind:ty),*) $out:ty) => {
        #[pyfunction]
        fn $name(py: Python<'_>, $($argument: $kind),*) -> PyResult<$out> {
            let mut out = <$out>::default();
            // SAFETY: as above; an object is written as its address.
            let status = py.detach(|| unsafe { abi::$function($($argument as _,)* (&raw mut out).cast()) });
            answer(py, status, out)
        }
    };
    ($($name:ident = $function:ident $arguments:tt $(-> $out:ty)?;)*) => {
        $(calls!(@define $name $function $arguments $($out)?);)*

        /// Puts all of them into the module.
        pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

calls! {
    pool_shared = forebay_pool_shared() -> usize;
    pool_device_count = forebay_pool_device_count(pool: usize) -> i32;
    pool_trim = forebay_pool_trim(pool: usize, device: i32, keep: u64) -> u64;
    pool_release_captures = forebay_pool_release_captures(pool: usize, device: i32) -> u64;
    pool_get_limit = forebay_pool_get_limit(pool: usize, device: i32) -> u64;
    pool_set_limit = forebay_pool_set_limit(pool: usize, device: i32, limit: u64);
    pool_reset_peaks = forebay_pool_reset_peaks(pool: usize, device: i32);
    pool_check = forebay_pool_check(pool: usize, device: i32);
    pool_remove_pressure_callback = forebay_pool_remove_pressure_callback(pool: usize, id: u64);
    pool_host_register = forebay_pool_host_register(pool: usize, device: i32, ptr: usize, size: u64, portable: bool, mapped: bool);
    pool_host_unregister = forebay_pool_host_unregister(pool: usize, device: i32, ptr: usize);
    stream_create = forebay_stream_create(pool: usize, device: i32) -> usize;
    stream_destroy = forebay_stream_destroy(pool: usize, device: i32, stream: u64);
    stream_register = forebay_stream_register(pool: usize, device: i32, stream: u64);
    stream_unregister = forebay_stream_unregister(pool: usize, device: i32, stream: u64);
    stream_synchronize = forebay_stream_synchronize(pool: usize, device: i32, stream: u64);
    pool_resource_create = forebay_pool_resource_create(pool: usize, device: i32) -> usize;
    resource_close = forebay_resource_close(resource: usize);
    resource_allocate_pointer = forebay_resource_allocate_pointer(resource: usize, size: u64, stream: u64) -> usize;
    resource_deallocate = forebay_resource_deallocate(resource: usize, ptr: usize, size: u64, stream: u64);
    resource_deallocate_pointer = forebay_resource_deallocate_pointer(resource: usize, ptr: usize);
    resource_get_attribute = forebay_resource_get_attribute(resource: usize, attribute: u32) -> u64;
    resource_set_attribute = forebay_resource_set_attribute(resource: usize, attribute: u32, value: u64);
    resource_get_peer_access = forebay_resource_get_peer_access(resource: usize, device: i32) -> u32;
    resource_set_peer_access = forebay_resource_set_peer_access(resource: usize, device: i32, access: u32);
    resource_trim = forebay_resource_trim(resource: usize, keep: u64);
    buffer_close = forebay_buffer_close(buffer: usize);
    buffer_close_on = forebay_buffer_close_on(buffer: usize, stream: u64);
    buffer_get_resource = forebay_buffer_get_resource(buffer: usize) -> usize;
    buffer_copy = forebay_buffer_copy(dst: usize, src: usize, stream: u64);
    buffer_clone = forebay_buffer_clone(src: usize, stream: u64) -> usize;
    buffer_fill = forebay_buffer_fill(buffer: usize, value: u32, width: u32, stream: u64);
    ipc_serve = forebay_ipc_serve();
    cupy_pool_set_limit = forebay_cupy_pool_set_limit(pool: usize, device: i32, limit: u64);
    cupy_pool_get_limit = forebay_cupy_pool_get_limit(pool: usize, device: i32) -> u64;
    torch_hold_pool = forebay_torch_hold_pool(device: i32, id_first: u64, id_second: u64);
}
