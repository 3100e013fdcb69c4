//! What the pool needed lately.

/// A pool is nearly empty when it holds one `NEARLY_EMPTY`th of its live peak.
const NEARLY_EMPTY: u64 = 16;

/// Since memory was last given back. Bytes and counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// The most bytes live when a request took the slow path.
    pub peak: u64,
    /// Waits of one stream for another since the pool last grew.
    pub waits: u32,
}

impl History {
    /// A request takes the slow path with `live` bytes live.
    pub fn needed(&mut self, live: u64) {
        self.peak = self.peak.max(live);
    }

    /// One stream was made to wait for another.
    pub fn waited(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// The pool grew, which may end the waits.
    pub fn grew(&mut self) {
        self.waits = 0;
    }

    /// Memory was given back, with `live` bytes live: earlier needs no longer count. Returns whether the pool is nearly
    /// empty, so that a new phase begins.
    pub fn gave_back(&mut self, live: u64, held: u64) -> bool {
        let ended = held <= self.peak / NEARLY_EMPTY;
        self.peak = live;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_memory_back_resets_the_peak() {
        let mut history = History::default();
        history.needed(1600);
        history.needed(800);
        assert_eq!(history.peak, 1600);
        assert!(!history.gave_back(800, 101));
        assert_eq!(history.peak, 800);
        history.needed(1600);
        assert!(history.gave_back(0, 100));
        assert_eq!(history.peak, 0);
    }

    #[test]
    fn growth_resets_the_count_of_waits() {
        let mut history = History::default();
        (0..20).for_each(|_| history.waited());
        assert_eq!(history.waits, 20);
        history.grew();
        assert_eq!(history.waits, 0);
    }
}
