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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_not_needed_and_an_empty_pool_is_as_new() {
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
    fn growth_ends_the_count_of_waits() {
        let mut history = History::default();
        (0..20).for_each(|_| history.waited());
        assert_eq!(history.waits, 20);
        history.grew();
        assert_eq!(history.waits, 0);
    }
}
