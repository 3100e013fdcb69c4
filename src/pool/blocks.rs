//! Giving blocks out and taking them back: the fast path first, then what the stream's cache and free memory can do without waiting, then
//! the slow path.

use super::cache::fast::{self, Declined, slack};
use super::cache::stream::Stream;
use super::cache::stream_fences::Standing;
use super::cache::thread_cache;
use super::device::device_pool::DevicePool;
use super::device::free::{Behind, free, give_back};
use super::device::malloc::{allocate, allocate_captured, allocate_ready, refill};
use super::device::need::Failure;
use super::fallback::driver_ordered::DriverOrdered;
use super::pool::{Found, Pool};
use super::report::text;
use crate::block::{Header, Place, block_granules};
use crate::driver;
use crate::error::{Error, Result};
use crate::units::{Address, StreamHandle};

/// What a free sees of the block before it goes: its answer comes back where the block was taken, and `None` refuses.
pub(crate) trait Look<T>: Fn(&Stream, Place<'_>, Header) -> Option<T> {}
impl<T, F: Fn(&Stream, Place<'_>, Header) -> Option<T>> Look<T> for F {}

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

    /// The same from the cache of a stream that this thread used lately, or nothing. Neither waits for the GPU nor panics, so that callers
    /// need no guard around it.
    #[inline(always)]
    pub(crate) fn malloc_fast(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Option<Address> {
        fast::find(self.id, device, stream)?.malloc(bytes, tag)
    }

    /// What [`Pool::malloc_fast`] did not serve.
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

    /// Serves a request from the stream's cache or from free memory that it may use as it is: nothing that waits, and no lock under which
    /// anybody waits for the GPU or calls back. Else what is known of the stream.
    fn malloc_now(
        &self,
        bytes: u64,
        device: i32,
        stream: StreamHandle,
        tag: u8,
    ) -> std::result::Result<Address, Option<Found>> {
        let stream = fast::find(self.id, device, stream).ok_or(None)?;
        let known = self.recognise(stream)? && !stream.gpu.is_capturing();
        let pool = self.open_of(stream).filter(|_| known).ok_or_else(|| keep(self.id, stream, false))?;
        let served = stream.malloc_or(bytes, tag, |granules| refill(pool, stream, granules));
        let (at, peak) = served.ok_or_else(|| keep(self.id, stream, false))?;
        if peak {
            pool.live_peak.rose(&pool.streams, stream);
        }
        Ok(at)
    }

    /// Whether a stream is certainly the one that its handle names, and not captured. Else what is known of it.
    fn recognise(&self, stream: &Stream) -> std::result::Result<bool, Option<Found>> {
        match stream.standing() {
            Standing::Stale => Err(None),
            Standing::Captured => Err(keep(self.id, stream, true)),
            Standing::Current => Ok(stream.is_durable() || stream.gpu.capabilities.stream_identity),
        }
    }

    /// Serves a request as [`Pool::malloc`] if that takes no wait: for callers that hold a lock which others need meanwhile.
    #[inline]
    pub fn try_malloc(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Option<Address> {
        self.malloc_fast(bytes, device, stream, tag).or_else(|| self.malloc_without_wait(bytes, device, stream, tag))
    }

    /// What [`Pool::malloc_fast`] did not serve, if that takes no wait.
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

    /// Allocates memory that nothing queued on any stream uses, so that the host may touch it at once: for pools of
    /// pinned memory. Takes what is proven unused, or grows; waits only where neither is possible.
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

    /// As [`Pool::malloc`], and on a stream that is being captured without [`Pool::private_begin`] from a private pool that
    /// this capture has to itself, until [`Pool::release_captures`].
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

    /// Calls `allocate` for the granules that a request needs, if it can be made here at all; `ordered` where the driver's pool serves the
    /// device.
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
            pool.set_asked(at, |granules| slack(granules, bytes));
            Ok(at)
        })
    }

    /// How many granules a request needs, if it can be made here at all.
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

    /// Frees the block that starts at `at`, in the order of `stream`. The null address is fine.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts there; nothing was changed.
    #[inline(always)]
    pub fn free(&self, at: Address, stream: StreamHandle) -> Result<()> {
        match self.free_fast(at, stream, |_, _, _| Some(())) {
            Some(()) => Ok(()),
            None => self.free_slow(at, stream, Behind::Stream),
        }
    }

    /// The same into the cache of a stream that this thread used lately, or not at all. Neither waits for the GPU nor panics.
    #[inline(always)]
    pub(crate) fn free_fast<T>(&self, at: Address, stream: StreamHandle, look: impl Look<T>) -> Option<T> {
        fast::find_for(self.id, at, stream)?.free(at, look)
    }

    /// What [`Pool::free_fast`] did not take, in the order of `stream` and behind what else may use it.
    ///
    /// # Errors
    /// As [`Pool::free`].
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, at: Address, stream: StreamHandle, behind: Behind) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        match self.free_now(at, stream, true, |_, _, _| Some(())) {
            Ok(()) => Ok(()),
            Err(found) => {
                let device = self.device_of(at)?;
                if let Some(pool) = self.device(device)?.driver_ordered() {
                    return pool.free(at, stream, behind);
                }
                self.on_stream(found, device, stream, |pool, found| {
                    free(pool, &found.stream, at, behind, found.captured)
                })
            }
        }
    }

    /// Takes a block back into the cache of a stream that this thread used lately. `events`: also where that takes one, which might have to
    /// wait for room in the stream's queue. Else what is known of the stream.
    pub(super) fn free_now<T>(
        &self,
        at: Address,
        stream: StreamHandle,
        events: bool,
        look: impl Look<T>,
    ) -> std::result::Result<T, Option<Found>> {
        let stream = fast::find_for(self.id, at, stream).ok_or(None)?;
        if !self.recognise(stream)? {
            return Err(keep(self.id, stream, false));
        }
        let mut taken = stream.free_or_spill(at, false, &look);
        if let (Err(Declined::Event), true) = (&taken, events)
            && stream.record_own(false).is_ok()
        {
            taken = stream.free_or_spill(at, true, &look);
        }
        let (seen, left) = taken.map_err(|_| keep(self.id, stream, false))?;
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

    /// What [`Pool::free_fast`] did not take, if that takes no wait and no event. Returns whether it did.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_without_wait(&self, at: Address, stream: StreamHandle) -> bool {
        self.free_now(at, stream, false, |_, _, _| Some(())).is_ok()
    }

    /// Frees a block as [`Pool::free`], and also behind what the stream of the allocation has now, whether it is still alive or not: for
    /// callers that free on whatever stream happens to be current.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_behind_both(&self, at: Address, stream: StreamHandle) -> Result<()> {
        self.free_slow(at, stream, Behind::Allocation)
    }

    /// The same behind everything that the device has now, whoever queued it: for memory that was in hands that do not
    /// say which streams used it.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_after_all(&self, at: Address) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let device = self.device_of(at)?;
        if let Some(pool) = self.device(device)?.driver_ordered() {
            return pool.free(at, StreamHandle::LEGACY, Behind::Everything);
        }
        self.on_stream(None, device, StreamHandle::LEGACY, |pool, found| {
            free(pool, &found.stream, at, Behind::Everything, found.captured)
        })
    }
}

/// A stream of this thread's recent ones, to be kept beyond what the fast path may.
fn keep(pool: u64, stream: &Stream, captured: bool) -> Option<Found> {
    let stream = thread_cache::recall(pool, stream.gpu.device.0 as i32, stream.handle)?;
    Some(Found { stream, captured })
}
