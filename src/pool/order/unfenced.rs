//! A free without an event, on a stream that is not registered.
//!
//! The stream's handle may be dead after the call, so its free must record an event then or never. Usually the stream
//! allocates that same block again, and the event was not needed. So one block in the stream's cache may be unfenced.
//! The next free records an event for both blocks. If another stream needs the memory before that, an event behind all
//! work of the device covers it; that includes the work of destroyed streams.

/// The unfenced block of a stream's cache, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Unfenced {
    /// Whether an event was recorded on this stream. A stream of another context refuses our events, and no event
    /// behind the work of this context would cover it.
    proven: bool,
    /// Where the block starts.
    start: Option<u64>,
    /// Tells this unfenced block from earlier ones.
    number: u64,
}

impl Unfenced {
    /// Whether a free may go without an event.
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

    /// The stream takes a block from its cache again, in its own order; no event is needed.
    #[inline]
    pub fn popped(&mut self, start: u64) {
        if self.start == Some(start) {
            self.start = None;
        }
    }

    /// The number of the unfenced block, before an event is recorded.
    pub fn mark(&self) -> u64 {
        self.number
    }

    /// An event was recorded behind everything the stream had, after the [mark](Self::mark) was taken.
    pub fn cover(&mut self, mark: u64) {
        if self.number == mark {
            self.start = None;
        }
    }

    /// An event was recorded on the stream. `enough`: a later one could cover an unfenced block.
    pub fn recorded(&mut self, mark: u64, enough: bool) {
        self.cover(mark);
        self.proven = enough;
    }
}
