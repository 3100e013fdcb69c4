//! What was seen of a pool's need.

/// One part in so many of the most that was live is next to nothing.
const NEXT_TO_NOTHING: u64 = 16;

/// Since memory was given back last. Bytes and counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// The most that was live when a request took the slow path.
    pub peak: u64,
    /// How often one stream was made to wait for another since the pool grew last.
    pub waits: u32,
}

impl History {
    /// A request takes the slow path, with so many bytes live then.
    pub fn needed(&mut self, live: u64) {
        self.peak = self.peak.max(live);
    }

    /// One stream was made to wait for another.
    pub fn waited(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// The pool grew: that may have been enough.
    pub fn grew(&mut self) {
        self.waits = 0;
    }

    /// Memory was given back, with so many bytes live: what was needed before says nothing any more. Returns whether next to nothing is
    /// held now, so that something else begins.
    pub fn gave_back(&mut self, live: u64, held: u64) -> bool {
        let ended = held <= self.peak / NEXT_TO_NOTHING;
        self.peak = live;
        ended
    }
}
