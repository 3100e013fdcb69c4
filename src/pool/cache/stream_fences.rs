//! Which stream a handle names now, and the events behind a stream's frees.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stream::Stream;
use crate::driver::{Capture, ErrorKind, Result};
use crate::pool::order::event_pair::EventPair;
use crate::pool::order::gpu::{Gpu, capturing};
use crate::units::StreamHandle;

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

/// What tells the stream behind a handle from any other; `None` while it is captured, when CUDA does not say
/// (and asking would break the capture).
pub(crate) fn identity(gpu: &Gpu, handle: StreamHandle) -> Result<Option<u64>> {
    if handle.is_legacy() {
        return Ok(Some(0));
    }
    if gpu.driver.stream_capture(gpu.device, handle)? != Capture::None {
        return Ok(None);
    }
    if gpu.capabilities.stream_identity {
        return Ok(Some(gpu.driver.stream_identity(gpu.device, handle)?));
    }
    Ok(Some(if handle == StreamHandle::PER_THREAD { thread_number() } else { 0 }))
}

impl Stream {
    /// Whether this is what its handle names now.
    pub fn standing(&self) -> Standing {
        if self.is_durable() {
            return Standing::Current;
        }
        match identity(&self.gpu, self.handle) {
            Ok(None) => Standing::Captured,
            Ok(Some(identity)) if identity == self.identity => Standing::Current,
            _ => Standing::Stale,
        }
    }

    /// Records an event behind what the stream has, if its handle may be dead after this call; other streams need none.
    pub fn record_own(&self, captured: bool) -> Result<()> {
        let Some(fences) = self.own_fences() else { return Ok(()) };
        if captured {
            // The record would become part of the graph and stand for nothing.
            return Err(capturing("event record", format!("stream {} is being captured", self.handle)));
        }
        let recorded = self.hold_back_heir().and_then(|()| self.record(fences));
        match recorded {
            // The process is ending: no work will run that could be disturbed.
            Err(error) if error.kind == ErrorKind::Deinitialized => Ok(()),
            result => result,
        }
    }

    /// Where streams cannot be told apart, another one may have taken the handle over: it is ordered behind
    /// what the old one freed.
    pub fn hold_back_heir(&self) -> Result<()> {
        match &self.fences {
            Some(fences) if !self.gpu.capabilities.stream_identity => fences.hold_back(self.handle),
            _ => Ok(()),
        }
    }

    /// Records an event. pre: the stream is alive, and not captured.
    pub fn record(&self, fences: &EventPair) -> Result<()> {
        loop {
            let (mark, turn) = {
                let cache_state = self.cache_state.lock();
                (cache_state.unfenced.mark(), cache_state.turn)
            };
            fences.of(turn).record(self.handle)?;
            let mut cache_state = self.cache_state.lock();
            if cache_state.turn != turn {
                // Turned meanwhile, and its fence may have been looked at before the event.
                continue;
            }
            // Where streams cannot be told apart, or no event is behind all work, every free has its own.
            let enough = self.gpu.capabilities.stream_identity && self.gpu.capabilities.device_events;
            cache_state.unfenced.recorded(mark, enough);
            cache_state.has_own_event = true;
            return Ok(());
        }
    }

    /// Sees to it that the fence of a stream that was not registered is behind everything that it freed. The handle may be
    /// dead. Returns whether that is so; not while a capture forbids the event. Under the arena's lock, so that the pair does not turn.
    pub fn cover_unfenced(&self) -> bool {
        let Some(fences) = &self.fences else { return true };
        let (mark, turn) = {
            let cache_state = self.cache_state.lock();
            if cache_state.unfenced.is_none() {
                return true;
            }
            (cache_state.unfenced.mark(), cache_state.turn)
        };
        if self.gpu.is_capturing() || fences.of(turn).record_behind_everything().is_err() {
            return false;
        }
        let mut cache_state = self.cache_state.lock();
        cache_state.unfenced.cover(mark);
        cache_state.has_own_event = true;
        true
    }

    /// Ends the turn of the pair, if that can be: what the stream freed up to now has a fence, which no later free moves. Returns the
    /// number of the turn. `is_pending`: what an earlier turn covers is still waited for. Under the arena's lock.
    pub fn turn(&self, is_pending: bool) -> Option<u64> {
        let mut cache_state = self.cache_state.lock();
        if !cache_state.unfenced.is_none() || is_pending && !cache_state.has_own_event {
            return None;
        }
        cache_state.has_own_event = false;
        cache_state.turn += 1;
        Some(cache_state.turn - 1)
    }
}
