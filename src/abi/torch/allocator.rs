//! PyTorch's hooks, for `torch.cuda.memory.CUDAPluggableAllocator` and the setters of its C++ object
//! (torch/csrc/cuda/CUDAPluggableAllocator.h). All of them use the shared pool.
//!
//! PyTorch does not check the pointer for NULL, so a failed allocation throws a C++ exception: `c10::OutOfMemoryError`,
//! in Python `torch.OutOfMemoryError`, with the pool's report.

use std::ffi::{c_int, c_void};

use crate::abi::core::cxx::{self, StreamFilter};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{address, pointer, stream as handle};
use crate::abi::core::log::shared;
use crate::abi::pool::memory::{ForebayFramework, allocate, release};
use crate::error::Error;
use crate::pool::{FreeAfter, existing};

/// Allocates `size` bytes of the shared pool on `device` in the order of `stream`. Any thread. For
/// torch.cuda.memory.CUDAPluggableAllocator:
/// <https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.CUDAPluggableAllocator.html>
///
/// On failure it throws: `c10::OutOfMemoryError` for lack of memory if PyTorch's libraries are loaded, otherwise
/// `std::runtime_error`. It returns NULL only in a program that has no libstdc++, or does not export it.
///
/// # Safety
/// Called as PyTorch does; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let (stream, tag) = (handle(stream), ForebayFramework::Torch as u8);
    let result = match (existing(), u64::try_from(size)) {
        (Some(pool), Ok(bytes)) => allocate(pool, bytes, device, stream, tag),
        (_, Ok(bytes)) => guard::result(|| Ok(shared()?.malloc(bytes, device, stream, tag)?)),
        (_, Err(_)) => {
            guard::result(|| Err(Error::Invalid(format!("{size} bytes asked for: a size is 0 or more").into()).into()))
        }
    };
    match result {
        Ok(address) => pointer(address),
        Err(fault) => {
            let exception = cxx::prepare(fault);
            // The throw unwinds this frame, which holds nothing to drop.
            cxx::throw(exception);
            std::ptr::null_mut()
        }
    }
}

/// Frees a block in the order of `stream`. Size and device are ignored. A pointer that is not the start of a live block
/// goes to the log and changes nothing. Never throws: PyTorch frees in destructors, also while the process ends. Any
/// thread.
///
/// # Safety
/// Called as PyTorch does; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_free(
    ptr: *mut c_void,
    _size: isize,
    _device: c_int,
    stream: *mut c_void,
) {
    let Some(pool) = existing() else { return };
    let (at, stream) = (address(ptr), handle(stream));
    release(pool, at, stream, FreeAfter::Stream, "forebay_torch_free");
}

/// For `set_init_fn`. Opens the driver, so that a missing driver is reported at the start. Throws `std::runtime_error`.
///
/// # Safety
/// Called as PyTorch does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_init(_device_count: c_int) {
    throwing(|| shared().map(drop));
}

/// For `set_reset_fn`, which PyTorch's `empty_cache` calls: gives all free memory back to the driver. Never throws. Any
/// thread.
///
/// # Safety
/// Called as PyTorch does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_reset() {
    let _ = guard::status(|| {
        if let Some(pool) = existing() {
            pool.trim_all();
        }
        Ok(())
    });
}

/// For `set_memory_fraction_fn`: limits the pool to a share of the device's memory, above 0 and up to 1. Throws
/// `std::runtime_error` for a fraction or device out of range. Any thread.
///
/// # Safety
/// Called as PyTorch does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_memory_fraction(fraction: f64, device: c_int) {
    throwing(|| Ok(shared()?.set_fraction(device, fraction)?));
}

/// For `set_base_alloc_fn`: returns the start of the live block that `ptr` points into; `size` (may be NULL) receives
/// its size in bytes. Throws `std::runtime_error` for a pointer into no live block. Any thread.
///
/// # Safety
/// Called as PyTorch does; `size` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_base_alloc(ptr: *mut c_void, size: *mut usize) -> *mut c_void {
    let found = throwing(|| Ok(shared()?.block_around(address(ptr))?));
    let Some((base, bytes)) = found else { return std::ptr::null_mut() };
    if !size.is_null() {
        // SAFETY: not NULL, and writable as the caller promises.
        unsafe { size.write(bytes as usize) };
    }
    pointer(base)
}

/// For `set_record_stream_fn`: records that the block is also used on `stream`, so that it is reused only after the
/// work that `stream` has when the block is freed. A pointer that is not the start of a live block is ignored, as in
/// PyTorch's own allocator. Never throws. Any thread.
///
/// # Safety
/// Called as PyTorch does; `stream` lives until the block is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    let record = || match existing() {
        Some(pool) if !ptr.is_null() => Ok(pool.record_use(address(ptr), handle(stream))?),
        _ => Ok(()),
    };
    let (at, stream) = (address(ptr), handle(stream));
    guard::without_status(
        record,
        |why| tracing::debug!(hook = "forebay_torch_record_stream", address = %at, %stream, "{why}"),
    );
}

/// For `set_begin_allocate_to_pool`: allocations on streams that `filter` accepts come from the private pool of this
/// id. `filter` points to a `std::function<bool(cudaStream_t)>` of libstdc++; NULL accepts every stream. Throws
/// `std::runtime_error`, always on a device without virtual memory management, which has no private pools.
///
/// # Safety
/// Called as PyTorch does; everything that `filter` refers to lives until the matching end.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_begin_allocate_to_pool(
    device: c_int,
    id_first: u64,
    id_second: u64,
    filter: *mut c_void,
) {
    throwing(|| {
        // SAFETY: as the caller promises.
        let filter = unsafe { StreamFilter::copy(filter) };
        Ok(shared()?.private_begin(
            device,
            pool_id(id_first, id_second),
            Box::new(move |stream| filter.accepts(stream)),
        )?)
    });
}

/// For `set_end_allocate_to_pool_fn`: ends the newest begin of this id. Throws `std::runtime_error` if none is open.
///
/// # Safety
/// Called as PyTorch does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_end_allocate_to_pool(device: c_int, id_first: u64, id_second: u64) {
    throwing(|| Ok(shared()?.private_end(device, pool_id(id_first, id_second))?));
}

/// For `set_release_pool`: drops one reference to the private pool. After the last one its memory returns to the shared
/// pool. Never throws: PyTorch calls it in destructors.
///
/// # Safety
/// Called as PyTorch does.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_torch_release_pool(device: c_int, id_first: u64, id_second: u64) {
    let release = || match existing() {
        Some(pool) => Ok(pool.private_release(device, pool_id(id_first, id_second))?),
        None => Ok(()),
    };
    // A debug event only: PyTorch also releases pools from which it never allocated.
    guard::without_status(release, |why| tracing::debug!(hook = "forebay_torch_release_pool", device, "{why}"));
}

pub(crate) fn pool_id(first: u64, second: u64) -> u128 {
    u128::from(first) << 64 | u128::from(second)
}

/// Runs `work` and throws its error, or returns `None` if the program has no C++ runtime.
fn throwing<T>(work: impl FnOnce() -> Result<T, Fault>) -> Option<T> {
    match guard::result(work) {
        Ok(value) => Some(value),
        Err(fault) => {
            let exception = cxx::prepare(fault);
            cxx::throw(exception);
            None
        }
    }
}
