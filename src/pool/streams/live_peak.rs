//! The live peak: the most bytes live at once over all streams, without a counter that every hit shares.
//!
//! Each stream has a mark up to which its live bytes may rise without an update. The marks add up to at most the peak,
//! so while all streams stay below their marks, the sum stays below the peak. A stream that rises above its mark comes
//! here: the live bytes are summed, the peak is raised if necessary, and the difference to the peak is distributed to
//! the marks again. This is exact for one stream. With several, each mark gets [`MARGIN`] more, since streams whose
//! peaks never coincide would otherwise come here in every iteration; the peak may then be low by that much per stream.
//! Half of the distributed bytes are reserved for the next streams that come here, so that one sum over thousands of
//! streams serves thousands of updates.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::registry::Streams;
use crate::pool::cache::stream::Stream;

/// Bytes that a stream may rise beyond its share if there are several streams.
const MARGIN: u64 = 1 << 20;

/// The live peak. Any thread; its lock is the last in the lock order.
#[derive(Debug, Default)]
pub(crate) struct LivePeak(Mutex<Peaks>);

/// Peaks in bytes.
#[derive(Debug, Default)]
struct Peaks {
    live: u64,
    /// The peak since the last [`LivePeak::take_recent`].
    recent: u64,
    /// Bytes that streams may still add to their marks.
    reserved: u64,
}

impl LivePeak {
    /// Updates the peak after `stream` has risen above its mark.
    #[cold]
    pub fn exceeded_mark(&self, streams: &Streams, stream: &Stream) {
        {
            let mut peaks = self.0.lock();
            let (live, mark) = (stream.live.load(Ordering::Relaxed), stream.mark.load(Ordering::Relaxed));
            let wanted = (live + MARGIN).saturating_sub(mark);
            if wanted <= peaks.reserved {
                peaks.reserved -= wanted;
                stream.mark.store(mark + wanted, Ordering::Relaxed);
                return;
            }
        }
        self.update(streams);
    }

    fn update(&self, streams: &Streams) {
        let list = streams.read();
        let mut peaks = self.0.lock();
        let total: u64 = list.all().map(|stream| stream.live.load(Ordering::Relaxed)).sum();
        peaks.live = peaks.live.max(total);
        peaks.recent = peaks.recent.max(total);
        let count = list.all().count().max(1) as u64;
        let below = peaks.live.min(peaks.recent) - total;
        let share = if count > 1 {
            let dealt = (below + count * MARGIN) / 2;
            peaks.reserved = dealt;
            dealt / count
        } else {
            peaks.reserved = 0;
            below
        };
        for stream in list.all() {
            stream.mark.store(stream.live.load(Ordering::Relaxed) + share, Ordering::Relaxed);
        }
    }

    /// The bytes live now, and the live peak.
    pub fn get(&self, streams: &Streams) -> (u64, u64) {
        self.update(streams);
        let live = streams.read().all().map(|stream| stream.live.load(Ordering::Relaxed)).sum();
        (live, self.0.lock().live)
    }

    /// The live peak since the last call, as exact as the peak.
    pub fn take_recent(&self, streams: &Streams) -> u64 {
        self.update(streams);
        let recent = std::mem::take(&mut self.0.lock().recent);
        self.update(streams);
        recent
    }

    /// Resets the live peaks to the bytes live now.
    pub fn reset(&self, streams: &Streams) {
        self.0.lock().live = 0;
        for stream in streams.read().all() {
            stream.cache_state.lock().counts.live_peak = stream.live.load(Ordering::Relaxed);
        }
        self.update(streams);
    }
}
