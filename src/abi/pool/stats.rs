//! Figures and reports.

use std::ffi::{c_char, c_void};

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, output, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;

/// Layout of `forebay_pool_stats` and `forebay_stream_stats`.
pub const FOREBAY_STATS_VERSION: u32 = 1;

/// A device's figures: bytes, and counts since the pool was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ForebayPoolStats {
    /// sizeof(forebay_pool_stats); set by the caller.
    pub size: u32,
    /// FOREBAY_STATS_VERSION; set by the caller.
    pub version: u32,
    /// Given out: the sizes of the blocks, as `forebay_pool_block_size` tells them.
    pub live: u64,
    /// The most that was live at once: exact where one stream allocates, with several it may be low by 1 MiB for each.
    pub live_peak: u64,
    /// Memory of the device held.
    pub physical: u64,
    /// The most that was held.
    pub physical_peak: u64,
    /// Most that may be held; 0 for no limit.
    pub limit: u64,
    /// Held and not live.
    pub free_bytes: u64,
    /// The longest free block.
    pub largest_free: u64,
    /// Free memory that belongs to private pools.
    pub private_bytes: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Requests served by a stream's cache.
    pub hits: u64,
    /// Requests that came to the arena.
    pub misses: u64,
    /// Chunks moved to where they were needed; of pinned memory also those mapped there for a part of them.
    pub steals: u64,
    /// Chunks created.
    pub growths: u64,
    /// Times a stream was made to wait for another's fence.
    pub waits: u64,
    /// Chunks given back to the driver.
    pub releases: u64,
    /// Requests that failed for want of memory.
    pub out_of_memory: u64,
    /// Live bytes by forebay_framework.
    pub live_by_framework: [u64; 8],
    /// Streams known.
    pub streams: u64,
    /// Driver calls made by all pools of the process, where the driver counts them (the host driver does).
    pub driver_calls: u64,
    /// What they would have cost on the GPU they are priced from, in nanoseconds.
    pub driver_ns: u64,
    /// Free blocks, those that streams keep at hand included.
    pub free_blocks: u64,
    /// Nanoseconds that requests spent on making room: looking for it, and calls of the driver.
    pub making_ns: u64,
    /// Nanoseconds that requests waited: for work to be done, and for others to give memory back.
    pub waiting_ns: u64,
    /// Zero.
    pub reserved: [u64; 5],
}

/// One stream's figures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ForebayStreamStats {
    /// sizeof(forebay_stream_stats); set by the caller.
    pub size: u32,
    /// FOREBAY_STATS_VERSION; set by the caller.
    pub version: u32,
    /// Bytes live that were allocated on the stream.
    pub live: u64,
    /// The most of them.
    pub live_peak: u64,
    /// Requests served.
    pub allocations: u64,
    /// Blocks taken back that were allocated on it.
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

/// A device's figures. Set `size` and `version` of `out` before the call. Does not stop allocations; each figure is
/// true of a moment, together they may be of several. Any thread.
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

/// One stream's figures; zeros for a stream that was never used. Set `size` and `version` of `out` before the call.
/// Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `stream` names a living stream; `out` is NULL or points to a `forebay_stream_stats`.
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

/// Makes the present figures the peaks. Any thread.
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

/// A few lines about a device for a person, as in an out-of-memory message. Writes at most `capacity` bytes, the last
/// of them a NUL; `needed` (may be NULL) gets the bytes for the whole text with its NUL. Any thread.
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

/// Verifies every equation of the pool. Slow; for tests. Any thread, but no other one may use the pool meanwhile: a
/// block on its way from one place to another is in neither, and the sums would not fit.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT with a sentence about the first equation that does not hold.
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
