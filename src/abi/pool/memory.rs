//! Blocks.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::block::block_granules;
use crate::error::Error;
use crate::pool::{FreeAfter, Pool};
use crate::units::{Address, GRANULE, StreamHandle};

/// Who asked for a block: how the figures tell users apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayFramework {
    /// forebay_pool_malloc.
    C = 0,
    /// The PyTorch hooks.
    Torch = 1,
    /// The CuPy hooks.
    Cupy = 2,
    /// Numba's memory manager.
    Numba = 3,
    /// cuda.core's memory resource.
    CudaCore = 4,
    /// RMM's memory resource.
    Rmm = 5,
}

/// The tag of that number.
pub(crate) fn tag(framework: u32) -> Result<u8, Fault> {
    let last = ForebayFramework::Rmm as u32;
    match u8::try_from(framework) {
        Ok(tag) if framework <= last => Ok(tag),
        _ => Err(Error::invalid(format_args!("{framework} is no forebay_framework; there are 0 to {last}")).into()),
    }
}

/// Allocates `bytes` on `device`, aligned to 512 bytes, usable by work queued on `stream` from now on.
/// `stream` is a CUstream or cudaStream_t; NULL is the legacy default stream. It must be alive in this call.
/// 0 bytes give NULL and FOREBAY_STATUS_OK. Any thread. Free with `forebay_pool_free`.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY with the pool's report as the message when nothing more can be given back,
/// FOREBAY_STATUS_CAPTURING on a stream that is being captured without a private pool, FOREBAY_STATUS_UNSUPPORTED on a
/// device that has neither virtual memory management nor stream-ordered pools of the driver, and for pinned memory
/// before CUDA 12.2. `out` is then not written.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_malloc(
    pool: *mut ForebayPool,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> ForebayStatus {
    // SAFETY: as the caller promises.
    unsafe { malloc_as(pool, ForebayFramework::C as u32, bytes, device, stream, out) }
}

/// # Safety
/// As [`forebay_pool_malloc`].
#[inline(always)]
unsafe fn malloc_as(
    pool: *mut ForebayPool,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> ForebayStatus {
    // SAFETY: as the caller promises.
    unsafe {
        match malloc_fast(pool, framework, bytes, device, stream, out) {
            true => ForebayStatus::Ok,
            false => malloc_slow(pool, bytes, device, stream, out, framework),
        }
    }
}

/// The fast path, which needs no guard. Returns whether it served the request; else nothing happened.
///
/// # Safety
/// As [`forebay_pool_malloc`].
#[inline(always)]
pub(crate) unsafe fn malloc_fast(
    pool: *mut ForebayPool,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> bool {
    // Each by itself: together, as a tuple in a result, they would be written to memory first.
    // SAFETY: as the caller promises.
    let Ok(pool) = (unsafe { ForebayPool::get(pool) }) else { return false };
    // SAFETY: as the caller promises.
    let Ok(out) = (unsafe { output(out, "out") }) else { return false };
    let Ok(tag) = tag(framework) else { return false };
    let Some(at) = pool.malloc_fast(bytes, device, handle(stream), tag) else { return false };
    out.write(pointer(at));
    true
}

/// Its first arguments are [`forebay_pool_malloc`]'s in their order, so that they need not change their places.
///
/// # Safety
/// As [`forebay_pool_malloc`].
#[cold]
#[inline(never)]
unsafe extern "C" fn malloc_slow(
    pool: *mut ForebayPool,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
    framework: u32,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        out.write(pointer(pool.malloc_slow(bytes, device, handle(stream), tag(framework)?)?));
        Ok(())
    })
}

/// A block of a pool, for a hook: the fast path without a guard, which it does not need, and the slow path in one. What
/// goes wrong there is the thread's last error already.
#[inline(always)]
pub(crate) fn allocate(pool: &Pool, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address, Fault> {
    match pool.malloc_fast(bytes, device, stream, tag) {
        Some(at) => Ok(at),
        None => guard::result(|| Ok(pool.malloc_slow(bytes, device, stream, tag)?)),
    }
}

/// Takes a block back in the same two ways, in the order of `stream` and behind what else may use it. What goes wrong
/// is put into the log: a `hook` has no answer.
#[inline(always)]
pub(crate) fn release(pool: &Pool, at: Address, stream: StreamHandle, after: FreeAfter, hook: &'static str) {
    if pool.free_fast(at, stream, |_, _, _| Some(())).is_none() {
        guard::unanswered(
            || Ok(pool.free_slow(at, stream, after)?),
            |why| tracing::warn!(hook, address = %at, %stream, "{why}"),
        );
    }
}

/// The same for a framework's plug-in: `framework`, a FOREBAY_FRAMEWORK_*, is whom the figures count the block for.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for a number that is no framework's, else as `forebay_pool_malloc`.
///
/// # Safety
/// As `forebay_pool_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_malloc_for(
    pool: *mut ForebayPool,
    framework: u32,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> ForebayStatus {
    // SAFETY: as the caller promises.
    unsafe { malloc_as(pool, framework, bytes, device, stream, out) }
}

/// Allocates memory that nothing queued on any stream uses, so that the host may touch it at once: for pools of pinned
/// memory, whose blocks from `forebay_pool_malloc` are ready in the order of `stream` only. Slower than that, and holds
/// more memory while the device is behind. Otherwise as `forebay_pool_malloc`.
///
/// # Safety
/// As `forebay_pool_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_malloc_ready(
    pool: *mut ForebayPool,
    bytes: u64,
    device: i32,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        out.write(pointer(pool.malloc_ready(bytes, device, handle(stream), ForebayFramework::C as u8)?));
        Ok(())
    })
}

/// Frees a block in the order of `stream`: what is queued on it until now may still use the block, and the block is
/// handed out again only where that work is proven to come first. Uses on other streams must be ordered before this by
/// the caller, or recorded with `forebay_pool_record_use`. `stream` need not be the one of the allocation; it must be
/// alive in this call. NULL `ptr` is fine. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_free(
    pool: *mut ForebayPool,
    ptr: *mut c_void,
    stream: *mut c_void,
) -> ForebayStatus {
    // SAFETY: as the caller promises.
    unsafe {
        if let Ok(pool) = ForebayPool::get(pool)
            && pool.free_fast(address(ptr), handle(stream), |_, _, _| Some(())).is_some()
        {
            return ForebayStatus::Ok;
        }
        free_slow(pool, ptr, stream)
    }
}

/// # Safety
/// As [`forebay_pool_free`].
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(pool: *mut ForebayPool, ptr: *mut c_void, stream: *mut c_void) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.free_slow(address(ptr), handle(stream), FreeAfter::Stream)?)
    })
}

/// Frees a block, ordered after all work of all streams of its device until now, whoever queued it: for memory whose
/// users do not say which streams they used. Slower than `forebay_pool_free`: the block is handed out again once all of
/// that work is done. NULL `ptr` is fine. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_free_after_all(pool: *mut ForebayPool, ptr: *mut c_void) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.free_after_all(address(ptr))?)
    })
}

/// Notes that the block is also used on `stream`: once freed, it is handed out again only after the work that
/// `stream` has at that time is done. `stream` must live until the block is freed. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_record_use(
    pool: *mut ForebayPool,
    ptr: *mut c_void,
    stream: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.record_use(address(ptr), handle(stream))?)
    })
}

/// The size in bytes of the live block that starts at `ptr`: what was asked for, rounded up to 512, and if that is more
/// than 64 KiB and up to 1 MiB, to the next of 64 sizes in each doubling, which is less than 1/64 more. All of it may
/// be used. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_block_size(
    pool: *mut ForebayPool,
    ptr: *const c_void,
    out: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        out.write(pool.block_size(address(ptr))?);
        Ok(())
    })
}

/// The size in bytes of the block that a request of so many gets, wherever it is made. Any thread; makes no pool.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_pool_block_size_for(bytes: u64) -> u64 {
    block_granules(bytes).saturating_mul(GRANULE)
}

/// The live block that `ptr` points into: its start and its size in bytes. Slower for pointers deep inside a large
/// block. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; the outputs are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_base_address(
    pool: *mut ForebayPool,
    ptr: *const c_void,
    base: *mut *mut c_void,
    bytes: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        // SAFETY: as the caller promises.
        let (base, bytes) = unsafe { (output(base, "base")?, output(bytes, "bytes")?) };
        let (start, size) = pool.block_around(address(ptr))?;
        base.write(pointer(start));
        bytes.write(size);
        Ok(())
    })
}
