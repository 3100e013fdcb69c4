//! Malloc and free: the fast path first, then the stream's cache and free memory as far as no wait is needed, then the
//! slow path.

use super::cache::fast::{self, Declined, slack};
use super::cache::stream::Stream;
use super::cache::stream_fences::Standing;
use super::cache::thread_cache;
use super::device::device_pool::DevicePool;
use super::device::free::{FreeAfter, free, give_back};
use super::device::malloc::{allocate, allocate_captured, allocate_ready, refill};
use super::device::need::Failure;
use super::fallback::driver_ordered::DriverOrdered;
use super::pool::{Found, Pool};
use super::report::text;
use crate::block::{CellRef, Header, block_granules};
use crate::driver;
use crate::error::{Error, Result};
use crate::units::{Address, StreamHandle};

/// Inspects a block before it is freed: `None` declines the free, any other result is returned.
pub(crate) trait Inspect<T>: Fn(&Stream, CellRef<'_>, Header) -> Option<T> {}
impl<T, F: Fn(&Stream, CellRef<'_>, Header) -> Option<T>> Inspect<T> for F {}

impl Pool {
    /// Allocates `bytes` on `device`, usable on `stream` from now on. 0 bytes give the null address.
    ///
    /// # Errors
    /// See [`Error`]; nothing was changed.
    #[inline(always)]
    pub fn malloc(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        match self.malloc_fast(bytes, device, stream, tag) {
            Some(at) => Ok(at),
            None => self.malloc_slow(bytes, device, stream, tag),
        }
    }

    /// Serves a request from the cache of a stream that this thread used lately, or returns `None`. Never waits for the
    /// GPU nor panics, so callers need no guard.
    #[inline(always)]
    pub(crate) fn malloc_fast(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Option<Address> {
        fast::find(self.id, device, stream)?.malloc(bytes, tag)
    }

    /// Serves a request that [`Pool::malloc_fast`] declined.
    ///
    /// # Errors
    /// As [`Pool::malloc`].
    #[cold]
    #[inline(never)]
    pub(crate) fn malloc_slow(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        match self.malloc_now(bytes, device, stream, tag) {
            Ok(at) => Ok(at),
            Err(found) => self.allocate_by(
                found,
                (bytes, device, stream),
                |pool| pool.malloc(bytes, stream, tag),
                |pool, found, granules| allocate(pool, &found.stream, granules, tag, found.captured),
            ),
        }
    }

    /// Serves a request from the stream's cache or from free memory that it may use at once. Does not wait, and takes
    /// no lock under which other threads wait for the GPU or run callbacks. Otherwise returns what is known of the
    /// stream.
    fn malloc_now(
        &self,
        bytes: u64,
        device: i32,
        stream: StreamHandle,
        tag: u8,
    ) -> std::result::Result<Address, Option<Found>> {
        let stream = fast::find(self.id, device, stream).ok_or(None)?;
        let known = self.recognise(stream)? && !stream.gpu.is_capturing();
        let pool = self.open_of(stream).filter(|_| known).ok_or_else(|| found_stream(self.id, stream, false))?;
        let served = stream.malloc_or(bytes, tag, |granules| refill(pool, stream, granules));
        let (at, peak) = served.ok_or_else(|| found_stream(self.id, stream, false))?;
        if peak {
            pool.live_peak.exceeded_mark(&pool.streams, stream);
        }
        Ok(at)
    }

    /// Whether the handle certainly names this stream, which is not captured. The error holds what is known of the
    /// stream.
    fn recognise(&self, stream: &Stream) -> std::result::Result<bool, Option<Found>> {
        match stream.standing() {
            Standing::Stale => Err(None),
            Standing::Captured => Err(found_stream(self.id, stream, true)),
            Standing::Current => Ok(stream.is_durable() || stream.gpu.capabilities.stream_identity),
        }
    }

    /// Serves a request as [`Pool::malloc`] if that needs no wait: for callers with a lock that other threads need.
    #[inline]
    pub fn try_malloc(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Option<Address> {
        self.malloc_fast(bytes, device, stream, tag).or_else(|| self.malloc_without_wait(bytes, device, stream, tag))
    }

    /// Serves a request that [`Pool::malloc_fast`] declined, if that needs no wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn malloc_without_wait(
        &self,
        bytes: u64,
        device: i32,
        stream: StreamHandle,
        tag: u8,
    ) -> Option<Address> {
        self.malloc_now(bytes, device, stream, tag).ok()
    }

    /// Allocates memory that no queued work uses, so the host may touch it at once: for pools of pinned memory. Takes
    /// unowned memory or grows; waits only if neither is possible.
    ///
    /// # Errors
    /// As [`Pool::malloc`].
    pub fn malloc_ready(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        self.allocate_by(
            None,
            (bytes, device, stream),
            |pool| pool.malloc_ready(bytes, stream, tag),
            |pool, found, granules| allocate_ready(pool, &found.stream, granules, tag, found.captured),
        )
    }

    /// As [`Pool::malloc`]. On a stream that is being captured without [`Pool::private_begin`], allocates from a
    /// private pool of that capture, which lasts until [`Pool::release_captures`].
    ///
    /// # Errors
    /// As [`Pool::malloc`].
    #[cold]
    #[inline(never)]
    pub fn malloc_also_captured(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        match self.malloc_slow(bytes, device, stream, tag) {
            Err(Error::Capturing(_)) => self.allocate_by(
                None,
                (bytes, device, stream),
                |pool| pool.malloc(bytes, stream, tag),
                |pool, found, granules| allocate_captured(pool, &found.stream, granules, tag),
            ),
            result => result,
        }
    }

    /// Calls `allocate` with the granules that a request needs, or `ordered` if the driver's pool serves the device.
    fn allocate_by(
        &self,
        found: Option<Found>,
        (bytes, device, stream): (u64, i32, StreamHandle),
        ordered: impl FnOnce(&DriverOrdered) -> Result<Address>,
        allocate: impl FnOnce(&DevicePool, &Found, u64) -> std::result::Result<Address, Failure>,
    ) -> Result<Address> {
        let granules = self.granules(bytes, device)?;
        if granules == 0 {
            return Ok(Address(0));
        }
        if let Some(pool) = self.device(device)?.driver_ordered() {
            return ordered(pool);
        }
        self.on_stream(found, device, stream, |pool, found| {
            let at = allocate(pool, found, granules).map_err(|failure| match failure {
                Failure::Memory(bytes, shortage) => text::out_of_memory(pool, bytes, &shortage),
                Failure::Other(error) => error,
            })?;
            pool.set_slack(at, |granules| slack(granules, bytes));
            Ok(at)
        })
    }

    /// The granules that a request needs. Fails if no pool can serve it here.
    pub(crate) fn granules(&self, bytes: u64, device: i32) -> Result<u64> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        if bytes > i64::MAX as u64 {
            return Err(Error::invalid(format_args!(
                "{bytes} bytes asked for: no size is that large; a negative number reads as one"
            )));
        }
        if bytes == 0 {
            self.device(device)?;
        }
        Ok(block_granules(bytes))
    }

    /// Frees the block that starts at `at`, in the order of `stream`. Ignores the null address.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts there; nothing was changed.
    #[inline(always)]
    pub fn free(&self, at: Address, stream: StreamHandle) -> Result<()> {
        match self.free_fast(at, stream, |_, _, _| Some(())) {
            Some(()) => Ok(()),
            None => self.free_slow(at, stream, FreeAfter::Stream),
        }
    }

    /// Frees into the cache of a stream that this thread used lately, or returns `None`. Never waits for the GPU nor
    /// panics.
    #[inline(always)]
    pub(crate) fn free_fast<T>(&self, at: Address, stream: StreamHandle, inspect: impl Inspect<T>) -> Option<T> {
        fast::find_for(self.id, at, stream)?.free(at, inspect)
    }

    /// Frees a block that [`Pool::free_fast`] declined, in the order of `stream`. It is reused after the
    /// work that `after` names.
    ///
    /// # Errors
    /// As [`Pool::free`].
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, at: Address, stream: StreamHandle, after: FreeAfter) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        match self.free_now(at, stream, true, |_, _, _| Some(())) {
            Ok(()) => Ok(()),
            Err(found) => {
                let device = self.device_of(at)?;
                if let Some(pool) = self.device(device)?.driver_ordered() {
                    return pool.free(at, stream, after);
                }
                self.on_stream(found, device, stream, |pool, found| {
                    free(pool, &found.stream, at, after, found.captured)
                })
            }
        }
    }

    /// Frees a block into the cache of a stream that this thread used lately. `events`: whether an event may be
    /// recorded, which may wait for space in the stream's queue. Otherwise returns what is known of the stream.
    pub(super) fn free_now<T>(
        &self,
        at: Address,
        stream: StreamHandle,
        events: bool,
        inspect: impl Inspect<T>,
    ) -> std::result::Result<T, Option<Found>> {
        let stream = fast::find_for(self.id, at, stream).ok_or(None)?;
        if !self.recognise(stream)? {
            return Err(found_stream(self.id, stream, false));
        }
        let mut taken = stream.free_or_spill(at, false, &inspect);
        if let (Err(Declined::Event), true) = (&taken, events)
            && stream.record_own(false).is_ok()
        {
            taken = stream.free_or_spill(at, true, &inspect);
        }
        let (seen, left) = taken.map_err(|_| found_stream(self.id, stream, false))?;
        if let Some((block, pool)) = left.zip(self.open_of(stream)) {
            give_back(pool, stream, block);
        }
        Ok(seen)
    }

    /// Frees a block as [`Pool::free`] if that takes no wait and no event. Returns whether it did.
    #[inline]
    pub fn try_free(&self, at: Address, stream: StreamHandle) -> bool {
        self.free_fast(at, stream, |_, _, _| Some(())).is_some() || self.free_without_wait(at, stream)
    }

    /// Frees a block that [`Pool::free_fast`] declined, if that needs no wait and no event. Returns whether it did.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_without_wait(&self, at: Address, stream: StreamHandle) -> bool {
        self.free_now(at, stream, false, |_, _, _| Some(())).is_ok()
    }

    /// Frees a block as [`Pool::free`], and also after the work that the stream of the allocation has now, whether that
    /// stream is still alive or not: for callers that free on the current stream, whichever it is.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_behind_both(&self, at: Address, stream: StreamHandle) -> Result<()> {
        self.free_slow(at, stream, FreeAfter::BothStreams)
    }

    /// Frees a block after all work that the device has now: for memory whose users do not tell which streams used it.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_after_all(&self, at: Address) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let device = self.device_of(at)?;
        if let Some(pool) = self.device(device)?.driver_ordered() {
            return pool.free(at, StreamHandle::LEGACY, FreeAfter::AllStreams);
        }
        self.on_stream(None, device, StreamHandle::LEGACY, |pool, found| {
            free(pool, &found.stream, at, FreeAfter::AllStreams, found.captured)
        })
    }
}

/// A counted reference to a recent stream of this thread, for use outside the fast path.
fn found_stream(pool: u64, stream: &Stream, captured: bool) -> Option<Found> {
    let stream = thread_cache::recall(pool, stream.gpu.device.0 as i32, stream.handle)?;
    Some(Found { stream, captured })
}
