//! A free without an event, on a stream that was not registered.
//!
//! The stream's handle may be dead after the call, so its free has to record an event then, or never. Mostly the stream asks
//! for the very block again, and the event was for nothing. So one block at a time may lie in the stream's cache unfenced. The
//! next free records for both; and where another stream is to have the memory before that, an event behind all work of
//! the device, which covers that of destroyed streams, stands in.

/// The block of a stream's cache, if any, that no event is behind.
#[derive(Debug, Default)]
pub(crate) struct Unfenced {
    /// Whether an event went well on this stream. One of another context refuses ours, and no event behind the work of this
    /// context would cover it.
    proven: bool,
    /// Where the block starts.
    start: Option<u64>,
    /// Tells this unfenced block from those before it.
    number: u64,
}

impl Unfenced {
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

    /// The stream has the block again, from its cache: whole, and in its own order.
    #[inline]
    pub fn popped(&mut self, start: u64) {
        if self.start == Some(start) {
            self.start = None;
        }
    }

    /// Which unfenced block there is before an event is recorded.
    pub fn mark(&self) -> u64 {
        self.number
    }

    /// An event was recorded after the [mark](Self::mark) was taken, behind everything that the stream had.
    pub fn cover(&mut self, mark: u64) {
        if self.number == mark {
            self.start = None;
        }
    }

    /// An event went well on the stream; `enough`: another one could cover an unfenced block later.
    pub fn recorded(&mut self, mark: u64, enough: bool) {
        self.cover(mark);
        self.proven = enough;
    }
}
