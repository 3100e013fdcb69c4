//! A free without an event, on a stream that was not registered.
//!
//! The stream's handle may be dead after the call, so its free has to record an event then, or never. Mostly the stream asks
//! for the very block again, and the event was for nothing. So one block at a time may lie in the front without one: bare. The
//! next free records for both; and where another stream is to have the memory before that, an event behind all work of
//! the device, which covers that of destroyed streams, stands in.

use std::sync::atomic::Ordering;

use super::event_pair::Rounds;
use crate::pool::cache::stream::{Hot, Stream};
use crate::pool::device::DevicePool;

/// The block of a stream's front, if any, that no event is behind.
#[derive(Debug, Default)]
pub(crate) struct Bare {
    /// Whether an event went well on this stream. One of another context refuses ours, and no event behind the work of this
    /// context would cover it.
    proven: bool,
    /// Where the block starts.
    start: Option<u64>,
    /// Tells this bare block from those before it.
    number: u64,
}

impl Bare {
    /// Whether a block may go without an event.
    pub fn allows(&self) -> bool {
        self.proven && self.start.is_none()
    }

    pub fn is_none(&self) -> bool {
        self.start.is_none()
    }

    /// pre: it [allows](Self::allows) that.
    pub fn put(&mut self, start: u64) {
        self.start = Some(start);
        self.number += 1;
    }

    /// The stream has the block again, from its front: whole, and in its own order.
    #[inline]
    pub fn popped(&mut self, start: u64) {
        if self.start == Some(start) {
            self.start = None;
        }
    }

    /// Which bare block there is before an event is recorded.
    pub fn mark(&self) -> u64 {
        self.number
    }

    /// An event was recorded after the [mark](Self::mark) was taken, behind everything that the stream had.
    pub fn cover(&mut self, mark: u64) {
        if self.number == mark {
            self.start = None;
        }
    }
}

impl Hot {
    /// A block from the front.
    #[inline]
    pub fn pop(&mut self, grains: u64) -> Option<u64> {
        let start = self.front.pop(grains)?;
        self.bare.popped(start);
        Some(start)
    }
}

impl DevicePool {
    /// Raises the fence of a stream that is alive.
    pub(crate) fn raise_fence(&self, stream: &Stream, fences: &Rounds) -> crate::driver::Result<()> {
        loop {
            let (mark, round) = {
                let hot = stream.hot.enter(None);
                (hot.bare.mark(), hot.round)
            };
            fences.of(round).raise(stream.handle)?;
            let mut hot = stream.hot.enter(None);
            if hot.round != round {
                // Ended meanwhile, and its fence may have been looked at before the event.
                continue;
            }
            hot.bare.cover(mark);
            hot.has_own_event = true;
            // Where streams cannot be told apart, or no event is behind all work, every free has its own.
            hot.bare.proven = self.capabilities.stream_identity && self.capabilities.device_events;
            return Ok(());
        }
    }

    /// Sees to it that the fence of a stream that was not registered is behind everything that it freed. The handle may be
    /// dead. Returns whether that is so; not while a capture forbids the event. Under the arena's lock, so that no round ends.
    pub(crate) fn cover_bare(&self, stream: &Stream) -> bool {
        let Some(fences) = &stream.fences else { return true };
        let (mark, round) = {
            let hot = stream.hot.enter(None);
            if hot.bare.is_none() {
                return true;
            }
            (hot.bare.mark(), hot.round)
        };
        if self.routing.load(Ordering::Acquire) != 0 || fences.of(round).raise_behind_everything().is_err() {
            return false;
        }
        let mut hot = stream.hot.enter(None);
        hot.bare.cover(mark);
        hot.has_own_event = true;
        true
    }
}
