//! Allocating, freeing and finding blocks.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::block::block_granules;
use crate::error::Error;
use crate::pool::{FreeAfter, Pool};
use crate::units::{Address, GRANULE, StreamHandle};

/// The framework that allocated a block, by which statistics count live bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayFramework {
    /// C and C++: `forebay_pool_malloc`.
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

/// The tag of a FOREBAY_FRAMEWORK_*.
pub(crate) fn tag(framework: u32) -> Result<u8, Fault> {
    let last = ForebayFramework::Rmm as u32;
    match u8::try_from(framework) {
        Ok(tag) if framework <= last => Ok(tag),
        _ => Err(Error::invalid(format_args!("{framework} is no forebay_framework; there are 0 to {last}")).into()),
    }
}

/// Allocates `bytes` bytes on `device`, aligned to 512 bytes. Work queued on `stream` from now on may use the block;
/// work on other streams must first wait for `stream`. `stream` is a CUstream or cudaStream_t, NULL for the legacy
/// default stream, and must be alive in this call. The caller owns the block and frees it with `forebay_pool_free`. 0
/// bytes give NULL and FOREBAY_STATUS_OK. Any thread.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY, with the pool's report as the message, if reclaim found no memory either;
/// FOREBAY_STATUS_CAPTURING on a stream that is being captured without a private pool; FOREBAY_STATUS_UNSUPPORTED on a
/// device with neither virtual memory management nor stream-ordered pools, and for pinned memory before CUDA 12.2.
/// `out` is then not written.
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

/// The fast path, which needs no guard. Returns whether it served the request; otherwise it changed nothing.
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
    // Three statements, since the compiler would write a tuple of these to memory first.
    // SAFETY: as the caller promises.
    let Ok(pool) = (unsafe { ForebayPool::get(pool) }) else { return false };
    // SAFETY: as the caller promises.
    let Ok(out) = (unsafe { output(out, "out") }) else { return false };
    let Ok(tag) = tag(framework) else { return false };
    let Some(at) = pool.malloc_fast(bytes, device, handle(stream), tag) else { return false };
    out.write(pointer(at));
    true
}

/// The first arguments are those of [`forebay_pool_malloc`] in the same order, so that they stay in their registers.
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

/// Allocates for a framework's hook: the fast path without a guard, then the slow path with one. An error is already
/// stored as the thread's last error.
#[inline(always)]
pub(crate) fn allocate(pool: &Pool, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address, Fault> {
    match pool.malloc_fast(bytes, device, stream, tag) {
        Some(at) => Ok(at),
        None => guard::result(|| Ok(pool.malloc_slow(bytes, device, stream, tag)?)),
    }
}

/// Frees for a framework's hook, by the same two paths, in the order of `stream` and after the work that `after`
/// names. An error goes to the log, since a hook returns no status.
#[inline(always)]
pub(crate) fn release(pool: &Pool, at: Address, stream: StreamHandle, after: FreeAfter, hook: &'static str) {
    if pool.free_fast(at, stream, |_, _, _| Some(())).is_none() {
        guard::without_status(
            || Ok(pool.free_slow(at, stream, after)?),
            |why| tracing::warn!(hook, address = %at, %stream, "{why}"),
        );
    }
}

/// `forebay_pool_malloc` for a framework's plug-in: statistics count the block for `framework`, a FOREBAY_FRAMEWORK_*.
/// Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for an unknown framework, otherwise the same as `forebay_pool_malloc`.
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

/// Allocates memory that no queued work uses, so that the host may use it at once. For pools of pinned memory, whose
/// blocks from `forebay_pool_malloc` are ready in the order of `stream` only. Slower than `forebay_pool_malloc`, and
/// the pool holds more memory while queued work is unfinished. Otherwise the same: ownership, errors, any thread.
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

/// Frees a block in the order of `stream`: work already queued on `stream` may still use the block, which is reused
/// only after that work. Uses on other streams must be ordered before this call by the caller, or recorded with
/// `forebay_pool_record_use`. `stream` may differ from the stream of the allocation; it must be alive in this call.
/// NULL `ptr` does nothing. Any thread.
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

/// Frees a block after all work queued until now on any stream of its device: for memory whose uses on streams are
/// unknown. Slower than `forebay_pool_free`: the block is reused only once all of that work is done. NULL `ptr` does
/// nothing. Any thread.
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

/// Records that the block is also used on `stream`: once freed, it is reused only after the work that `stream` has at
/// the time of the free. `stream` must live until the block is freed. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
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

/// Gives the size in bytes of the live block that starts at `ptr`, all of which may be used: the size requested,
/// rounded up to 512 bytes. Sizes above 64 KiB and up to 1 MiB are rounded up further, by less than 1/64, to one of 64
/// sizes between two powers of two. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
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

/// The size in bytes of the block that a request for `bytes` bytes gets, in any pool. Creates no pool. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_pool_block_size_for(bytes: u64) -> u64 {
    block_granules(bytes).saturating_mul(GRANULE)
}

/// Gives the start and the size in bytes of the live block that `ptr` points into. Slower the further `ptr` lies behind
/// the start of a large block. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for a pointer into no live block.
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
