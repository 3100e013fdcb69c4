//! Statistics, the report, and the check of a pool.

use std::ffi::{c_char, c_void};

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;

/// Version of the layout of `forebay_pool_stats` and of `forebay_stream_stats`.
pub const FOREBAY_STATS_VERSION: u32 = 1;

/// Statistics of a pool on one device. Sizes are in bytes; counts begin with the pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ForebayPoolStats {
    /// sizeof(forebay_pool_stats); set by the caller.
    pub size: u32,
    /// FOREBAY_STATS_VERSION; set by the caller.
    pub version: u32,
    /// Bytes in live blocks, by their sizes as `forebay_pool_block_size` gives them.
    pub live: u64,
    /// Peak of `live`. Exact if one stream allocates; with several it may be up to 1 MiB too low for each stream.
    pub live_peak: u64,
    /// Bytes of physical memory that the pool holds.
    pub physical: u64,
    /// Peak of `physical`.
    pub physical_peak: u64,
    /// The limit of `physical` in bytes; 0 for none.
    pub limit: u64,
    /// Bytes held that are not live.
    pub free_bytes: u64,
    /// Bytes of the largest free block.
    pub largest_free: u64,
    /// Free bytes that belong to private pools.
    pub private_bytes: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Requests served by a stream cache.
    pub hits: u64,
    /// Requests that no stream cache could serve, and that went to the arena.
    pub misses: u64,
    /// Chunks moved to other addresses; for pinned memory also chunks of which a part was mapped at other addresses.
    pub steals: u64,
    /// Chunks created.
    pub growths: u64,
    /// Waits of a stream for another stream's fence.
    pub waits: u64,
    /// Chunks given back to the driver.
    pub releases: u64,
    /// Requests that failed for lack of memory.
    pub out_of_memory: u64,
    /// Live bytes of each FOREBAY_FRAMEWORK_*, which is the index.
    pub live_by_framework: [u64; 8],
    /// Streams that the pool knows.
    pub streams: u64,
    /// Driver calls of all pools of the process; 0 except on the host driver, which counts them.
    pub driver_calls: u64,
    /// Nanoseconds that `driver_calls` would have taken on the GPU whose times the host driver uses as prices.
    pub driver_ns: u64,
    /// Free blocks, those in stream caches included.
    pub free_blocks: u64,
    /// Nanoseconds that requests spent in the slow path: the search for memory, and driver calls.
    pub making_ns: u64,
    /// Nanoseconds that requests waited for queued work to finish, and for pressure callbacks and other pools to free
    /// memory.
    pub waiting_ns: u64,
    /// Zero.
    pub reserved: [u64; 5],
}

/// Statistics of one stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ForebayStreamStats {
    /// sizeof(forebay_stream_stats); set by the caller.
    pub size: u32,
    /// FOREBAY_STATS_VERSION; set by the caller.
    pub version: u32,
    /// Live bytes that were allocated on the stream.
    pub live: u64,
    /// Peak of `live`.
    pub live_peak: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks freed that were allocated on the stream.
    pub frees: u64,
    /// Requests served by its stream cache.
    pub hits: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

fn check_layout(name: &str, size: u32, version: u32, expected: usize) -> Result<(), Fault> {
    if size as usize == expected && version == FOREBAY_STATS_VERSION {
        return Ok(());
    }
    Err(Error::invalid(format_args!(
        "{name} has size {size} and version {version}; this library takes size {expected} and version {FOREBAY_STATS_VERSION}: \
         set both before the call"
    ))
    .into())
}

/// Gives the statistics of the pool on `device`. Set `size` and `version` of `out` before the call. Does not stop
/// allocations on other threads, so the values may be of slightly different moments. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another size or version.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or points to a `forebay_pool_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_get_stats(
    pool: *const ForebayPool,
    device: i32,
    out: *mut ForebayPoolStats,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, out.as_mut().ok_or(Fault::Null("out"))?) };
        check_layout("forebay_pool_stats", out.size, out.version, size_of::<ForebayPoolStats>())?;
        let stats = pool.stats(device)?;
        *out = ForebayPoolStats {
            size: out.size,
            version: out.version,
            live: stats.live,
            live_peak: stats.live_peak,
            physical: stats.physical,
            physical_peak: stats.physical_peak,
            limit: stats.limit,
            free_bytes: stats.free,
            largest_free: stats.largest_free,
            private_bytes: stats.private_free,
            allocations: stats.allocations,
            frees: stats.frees,
            hits: stats.hits,
            misses: stats.misses,
            steals: stats.steals,
            growths: stats.growths,
            waits: stats.waits,
            releases: stats.releases,
            out_of_memory: stats.out_of_memory,
            live_by_framework: stats.live_by_framework,
            streams: stats.streams,
            driver_calls: stats.driver_calls,
            driver_ns: stats.driver_ns,
            free_blocks: stats.free_blocks,
            making_ns: stats.making_ns,
            waiting_ns: stats.waiting_ns,
            reserved: [0; 5],
        };
        Ok(())
    })
}

/// Gives the statistics of `stream`; zeros for a stream that the pool does not know. Set `size` and `version` of `out`
/// before the call. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream; `out` is NULL or points to a
/// `forebay_stream_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_get_stream_stats(
    pool: *const ForebayPool,
    device: i32,
    stream: *mut c_void,
    out: *mut ForebayStreamStats,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, out.as_mut().ok_or(Fault::Null("out"))?) };
        check_layout("forebay_stream_stats", out.size, out.version, size_of::<ForebayStreamStats>())?;
        let stats = pool.stream_stats(device, handle(stream))?;
        *out = ForebayStreamStats {
            size: out.size,
            version: out.version,
            live: stats.live,
            live_peak: stats.live_peak,
            allocations: stats.allocations,
            frees: stats.frees,
            hits: stats.hits,
            reserved: [0; 4],
        };
        Ok(())
    })
}

/// Resets the peaks of the pool on `device` to the present values. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_reset_peaks(pool: *mut ForebayPool, device: i32) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.reset_peaks(device)?)
    })
}

/// Writes a short text about the pool on `device` for people to read, the same as in an out-of-memory message. Writes
/// at most `capacity` bytes, the last of them a NUL; `needed` (may be NULL) receives the bytes of the whole text with
/// its NUL. `capacity` 0 writes nothing, so a first call can find the size. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `buffer` has `capacity` writable bytes, or `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_report(
    pool: *const ForebayPool,
    device: i32,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        if buffer.is_null() && capacity > 0 {
            return Err(Fault::Null("buffer"));
        }
        let text = pool.report(device)?;
        if let Some(room) = capacity.checked_sub(1) {
            let bytes = text.len().min(room);
            // SAFETY: `bytes` + 1 <= capacity bytes may be written, and the text does not overlap them.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), bytes);
                buffer.add(bytes).write(0);
            }
        }
        // SAFETY: as the caller promises.
        if let Ok(out) = unsafe { output(needed, "needed") } {
            out.write(text.len() + 1);
        }
        Ok(())
    })
}

/// Checks the invariants of the pool on `device`. Slow; for tests. Any thread, but no other thread may use the pool
/// during the call: a block between two lists would be missing from the sums.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if an invariant does not hold; the message describes the first one.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_check(pool: *const ForebayPool, device: i32) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(pool.check(device)?)
    })
}
