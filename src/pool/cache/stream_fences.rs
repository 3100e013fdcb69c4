//! The stream that a handle names now, and the events behind a stream's frees.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stream::Stream;
use crate::driver::{Capture, ErrorKind, Result};
use crate::pool::order::event_pair::EventPair;
use crate::pool::order::gpu::{Gpu, capturing};
use crate::units::StreamHandle;

/// What a known stream's handle names now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// This stream.
    Current,
    /// A stream that is being captured.
    Captured,
    /// Another stream, or none.
    Stale,
}

thread_local! {
    /// This thread's number, which identifies its default stream if the driver does not.
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

/// A number that tells the stream of `handle` from any other; `None` while it is captured, because CUDA then does not
/// answer and the query would break the capture.
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
    /// What the stream's handle names now.
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

    /// Records an event behind the stream's work if its handle may be dead after this call. A durable stream needs
    /// none.
    pub fn record_own(&self, captured: bool) -> Result<()> {
        let Some(fences) = self.own_fences() else { return Ok(()) };
        if captured {
            // The event would become part of the graph and prove nothing.
            return Err(capturing("event record", format!("stream {} is being captured", self.handle)));
        }
        let recorded = self.order_reused_handle().and_then(|()| self.record(fences));
        match recorded {
            // The process is ending: no later work can be disturbed.
            Err(error) if error.kind == ErrorKind::Deinitialized => Ok(()),
            result => result,
        }
    }

    /// Where the driver cannot tell streams apart, another stream may have got this handle: orders that one after the
    /// frees of the old one.
    pub fn order_reused_handle(&self) -> Result<()> {
        match &self.fences {
            Some(fences) if !self.gpu.capabilities.stream_identity => fences.make_stream_wait(self.handle),
            _ => Ok(()),
        }
    }

    /// Records an event. pre: the stream is alive and not captured.
    pub fn record(&self, fences: &EventPair) -> Result<()> {
        loop {
            let (mark, turn) = {
                let cache_state = self.cache_state.lock();
                (cache_state.unfenced.mark(), cache_state.turn)
            };
            fences.of(turn).record(self.handle)?;
            let mut cache_state = self.cache_state.lock();
            if cache_state.turn != turn {
                // The pair turned meanwhile, and its fence may have been polled before the event.
                continue;
            }
            // Where streams cannot be told apart, or there are no device-wide events, every free records its own event.
            let enough = self.gpu.capabilities.stream_identity && self.gpu.capabilities.device_events;
            cache_state.unfenced.recorded(mark, enough);
            cache_state.has_own_event = true;
            return Ok(());
        }
    }

    /// Ensures that the fence of an unregistered stream is behind everything that the stream freed; its handle may be
    /// dead. Returns false if a capture forbids the event. Called under the arena's lock, so the pair does not turn.
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

    /// Turns the pair, if possible: everything that the stream freed so far then has a fence that no later free records
    /// again. Returns the number of the turn that ended. `is_pending`: the fence of an earlier turn has not passed yet.
    /// Under the arena's lock.
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
