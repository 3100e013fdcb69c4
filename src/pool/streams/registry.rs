//! Finding, registering and forgetting streams.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::Capture;
use crate::error::{Error, Result};
use crate::pool::cache::stream::{Layout, Stream};
use crate::pool::device::state::Inner;
use crate::pool::device::{DevicePool, Streams};
use crate::pool::order::event_pair::Rounds;
use crate::units::StreamHandle;

/// At least so many more streams become known before those that are of no more use are looked for: as many as there were in all, so that
/// a stream's share of the looking does not grow with their number.
const SWEEP_EVERY: usize = 64;
/// Headers name a stream's slot in 16 bits.
const MOST: usize = 1 << 16;

/// What a known stream is to its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The handle names it.
    Current,
    /// The handle names a stream that is being captured.
    Captured,
    /// The handle names another stream, or nothing.
    Stale,
}

thread_local! {
    /// A number for this thread: names its default stream where the driver has no name for it.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}
static THREADS: AtomicU64 = AtomicU64::new(1);

fn thread_number() -> u64 {
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl DevicePool {
    /// The stream that a handle names now.
    pub(crate) fn stream(&self, handle: StreamHandle) -> Result<Arc<Stream>> {
        let handle = handle.canonical();
        let identity = match self.identity(handle)? {
            Some(identity) => identity,
            // The last that had this handle will do: a captured stream gets private memory only, and that is
            // never ordered by a fence.
            None => self
                .streams
                .read()
                .all()
                .filter(|known| known.handle == handle)
                .map(|known| known.identity)
                .max()
                .unwrap_or(0),
        };
        if let Some(known) = self.streams.read().by_key.get(&(handle, identity)) {
            return Ok(Arc::clone(known));
        }
        let mut inner = self.inner.lock();
        let mut streams = self.streams.write();
        if let Some(known) = streams.by_key.get(&(handle, identity)) {
            return Ok(Arc::clone(known));
        }
        if streams.by_key.len() + 1 >= streams.sweep_at.clamp(SWEEP_EVERY, MOST + 1) {
            self.sweep(&mut inner, &mut streams);
            streams.sweep_at = streams.by_key.len() + streams.by_key.len().max(SWEEP_EVERY);
        }
        let fences = if Self::lives_forever(handle) { None } else { Some(Rounds::new(&self.events)?) };
        let number = match streams.vacant.last() {
            Some(&slot) => slot,
            None => u16::try_from(streams.slots.len()).map_err(|_| {
                Error::invalid(format_args!(
                    "device {} has {MOST} streams that are registered or have memory, which is the limit: destroy or unregister some, \
                     and free what they have",
                    self.device
                ))
            })?,
        };
        let slot = usize::from(number);
        let owner = inner.arena.owner_add(false);
        let stream = Stream::new((number, handle, identity), owner, fences, self.layout());
        // Who opens or shuts all of them looks for it after he has said so.
        stream.open_or_shut(self.routed.load(Ordering::Acquire));
        if streams.vacant.pop().is_none() {
            streams.slots.push(None);
        }
        streams.slots[slot] = Some(Arc::clone(&stream));
        streams.by_key.insert((handle, identity), Arc::clone(&stream));
        Ok(stream)
    }

    /// What tells the stream behind a handle from any other; `None` while it is captured, when CUDA does not say
    /// (and asking would break the capture).
    fn identity(&self, handle: StreamHandle) -> Result<Option<u64>> {
        if Self::lives_forever(handle) {
            return Ok(Some(0));
        }
        if self.driver.stream_capture(self.device, handle)? != Capture::None {
            return Ok(None);
        }
        if self.capabilities.stream_identity {
            return Ok(Some(self.driver.stream_identity(self.device, handle)?));
        }
        Ok(Some(if handle == StreamHandle::PER_THREAD { thread_number() } else { 0 }))
    }

    /// Whether a known stream is what its handle names now.
    pub(crate) fn standing(&self, stream: &Stream) -> Standing {
        if stream.is_durable() {
            return Standing::Current;
        }
        match self.identity(stream.handle) {
            Ok(None) => Standing::Captured,
            Ok(Some(identity)) if identity == stream.identity => Standing::Current,
            _ => Standing::Stale,
        }
    }

    /// Promises that a stream lives until it is unregistered: its frees need no event of their own.
    pub(crate) fn register(&self, handle: StreamHandle) -> Result<()> {
        if handle == StreamHandle::PER_THREAD {
            return Err(Error::invalid(
                "stream 2, the calling thread's default stream, cannot be registered: it ends with its thread; \
                 it works without being registered",
            ));
        }
        let stream = self.stream(handle)?;
        self.hold_back_heir(&stream)?;
        self.set_durable(&stream, true);
        Ok(())
    }

    fn set_durable(&self, stream: &Stream, durable: bool) {
        let _one_at_a_time = self.switching.lock();
        stream.durable.store(durable, Ordering::Release);
        stream.open_or_shut(self.routed.load(Ordering::Acquire));
    }

    /// Opens the quick ways of all streams, or shuts them: as private pools take allocations.
    pub(crate) fn open_or_shut(&self) {
        let _one_at_a_time = self.switching.lock();
        let routed = !self.routes.read().is_empty();
        self.routed.store(routed, Ordering::Release);
        self.streams.read().all().for_each(|stream| stream.open_or_shut(routed));
    }

    fn layout(&self) -> Layout {
        Layout { base: self.base, table: Arc::clone(&self.table) }
    }

    /// Ends that promise. The stream is still alive in this call, and may be destroyed after it.
    pub(crate) fn unregister(&self, handle: StreamHandle) -> Result<()> {
        let handle = handle.canonical();
        let captured = || Error::Capturing(format!("stream {handle} is being captured: end the capture first").into());
        let identity = self.identity(handle)?.ok_or_else(captured)?;
        let known = self.streams.read().by_key.get(&(handle, identity)).cloned();
        let stream = known.filter(|stream| stream.is_durable() && stream.fences.is_some()).ok_or_else(|| {
            Error::NotFound(format!("stream {handle} of device {} is not registered", self.device).into())
        })?;
        // Other threads that make room may be about to use the handle: they look at the promise under this lock.
        let _inner = self.inner.lock();
        if let Some(fences) = &stream.fences {
            self.raise_fence(&stream, fences)?;
        }
        self.set_durable(&stream, false);
        Ok(())
    }

    /// Forgets streams that hold nothing, that nobody is using, and whose handle may be dead.
    fn sweep(&self, inner: &mut Inner, streams: &mut Streams) {
        for slot in 0..streams.slots.len() {
            let Some(stream) = streams.slots[slot].as_ref() else { continue };
            // Two holds are the list's own; a third is somebody at work with it, or about to be.
            let unused = Arc::strong_count(stream) == 2 && stream.live.load(Ordering::Relaxed) == 0;
            if stream.is_durable() || !unused || inner.is_bound_to_private(stream.slot) {
                continue;
            }
            let stream = Arc::clone(stream);
            inner.drain(&stream);
            if self.cover_bare(&stream) && stream.fences.as_ref().is_some_and(Rounds::passed) {
                inner.arena.promote(stream.owner, u64::MAX);
            }
            if inner.arena.owner_free(stream.owner) > 0 || inner.awaits(stream.owner) {
                continue;
            }
            let counts = stream.hot.enter(None).counts;
            inner.figures.past_allocations += counts.allocations;
            inner.figures.past_frees += counts.frees;
            inner.figures.past_hits += counts.hits();
            inner.arena.owner_remove(stream.owner);
            inner.forget_order(stream.slot);
            streams.slots[slot] = None;
            streams.vacant.push(stream.slot);
            streams.by_key.remove(&(stream.handle, stream.identity));
        }
    }
}
