//! The highest number of bytes live at once, over all streams, without a counter that every hit shares.
//!
//! Each stream may rise to its own mark unnoticed. The marks add up to no more than the peak, so while all
//! streams stay below theirs the total is below the peak. A stream that rises above its mark comes here:
//! the total is summed, the peak raised if it must be, and what is left below it is dealt out again.
//! Exact for one stream. With several, the marks add up to [`SLACK`] more for each stream, or streams whose peaks never
//! coincide would come here in every round: the peak may then be low by that much per stream. Half of what is dealt out is kept back
//! for those that come next, so that the sum over thousands of streams is made once for as many visits.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::registry::Streams;
use crate::pool::cache::stream::Stream;

/// How far a stream may rise unnoticed beyond its share, in bytes, where there are several.
const SLACK: u64 = 1 << 20;

/// The most that was live. Any thread; its lock is the last of all.
#[derive(Debug, Default)]
pub(crate) struct LivePeak(Mutex<Peaks>);

/// Highest figures so far, in bytes.
#[derive(Debug, Default)]
struct Peaks {
    live: u64,
    /// Since [`LivePeak::take_recent`] asked last.
    recent: u64,
    /// By so much streams may still rise beyond their marks.
    kept_back: u64,
}

impl LivePeak {
    /// `stream` has risen above its mark.
    #[cold]
    pub fn rose(&self, streams: &Streams, stream: &Stream) {
        {
            let mut peaks = self.0.lock();
            let (live, mark) = (stream.live.load(Ordering::Relaxed), stream.mark.load(Ordering::Relaxed));
            let wanted = (live + SLACK).saturating_sub(mark);
            if wanted <= peaks.kept_back {
                peaks.kept_back -= wanted;
                stream.mark.store(mark + wanted, Ordering::Relaxed);
                return;
            }
        }
        self.look(streams);
    }

    fn look(&self, streams: &Streams) {
        let list = streams.read();
        let mut peaks = self.0.lock();
        let total: u64 = list.all().map(|stream| stream.live.load(Ordering::Relaxed)).sum();
        peaks.live = peaks.live.max(total);
        peaks.recent = peaks.recent.max(total);
        let count = list.all().count().max(1) as u64;
        let below = peaks.live.min(peaks.recent) - total;
        let share = if count > 1 {
            let dealt = (below + count * SLACK) / 2;
            peaks.kept_back = dealt;
            dealt / count
        } else {
            peaks.kept_back = 0;
            below
        };
        for stream in list.all() {
            stream.mark.store(stream.live.load(Ordering::Relaxed) + share, Ordering::Relaxed);
        }
    }

    /// Bytes live now, and the most there were.
    pub fn get(&self, streams: &Streams) -> (u64, u64) {
        self.look(streams);
        let live = streams.read().all().map(|stream| stream.live.load(Ordering::Relaxed)).sum();
        (live, self.0.lock().live)
    }

    /// The most bytes that were live since this was asked last, as exact as the peak.
    pub fn take_recent(&self, streams: &Streams) -> u64 {
        self.look(streams);
        let recent = std::mem::take(&mut self.0.lock().recent);
        self.look(streams);
        recent
    }

    /// Makes the bytes live now the most that were.
    pub fn reset(&self, streams: &Streams) {
        self.0.lock().live = 0;
        for stream in streams.read().all() {
            stream.cache_state.lock().counts.live_peak = stream.live.load(Ordering::Relaxed);
        }
        self.look(streams);
    }
}
