//! Texts for the user: how much is held, by which framework and stream, and what to do.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::stats::{Stats, stats};
use crate::driver::Place;
use crate::error::Error;
use crate::pool::device::device_pool::DevicePool;
use crate::pool::device::need::Shortage;
use crate::units::{Human, StreamHandle};

/// Names of the frameworks, by tag.
pub(crate) const FRAMEWORKS: [&str; crate::pool::TAGS] =
    ["C", "PyTorch", "CuPy", "Numba", "cuda.core", "RMM", "tag 6", "tag 7"];

/// A few lines about this device.
pub(crate) fn report(pool: &DevicePool) -> String {
    let stats = stats(pool);
    let place = pool.backing.place();
    let beside = match pool.gpu.driver.memory_info(pool.gpu.device) {
        Ok(info) if !place.is_host() => format!("free on {place} {} of {}", Human(info.free), Human(info.total)),
        _ => format!("pinned on {place}, which has {}", Human(pool.backing.total)),
    };
    let streams =
        pool.streams.read().all().map(|stream| (stream.live.load(Ordering::Relaxed), stream.handle)).collect();
    describe(&stats, Some(stats.largest_free), &beside, streams)
}

/// A few lines about any device. `largest`: the longest free block, if known; `beside`: what the device has left;
/// `streams`: live bytes by stream.
pub(crate) fn describe(
    stats: &Stats,
    largest: Option<u64>,
    beside: &str,
    mut streams: Vec<(u64, StreamHandle)>,
) -> String {
    let mut text = String::new();
    let limit = if stats.limit == 0 { "none".to_owned() } else { Human(stats.limit).to_string() };
    let largest = largest.map_or_else(String::new, |bytes| format!(", largest free block {}", Human(bytes)));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "  live {} (peak {}), free {}{largest}",
        Human(stats.live),
        Human(stats.live_peak),
        Human(stats.free)
    );
    let _ = writeln!(
        text,
        "  held {} (peak {}), limit {limit}, {beside}",
        Human(stats.physical),
        Human(stats.physical_peak)
    );
    let by_framework = FRAMEWORKS.iter().zip(stats.live_by_framework).filter(|&(_, bytes)| bytes > 0);
    let holders: Vec<String> = by_framework.map(|(name, bytes)| format!("{name} {}", Human(bytes))).collect();
    if !holders.is_empty() {
        let _ = writeln!(text, "  live by framework: {}", holders.join(", "));
    }
    streams.retain(|&(live, _)| live > 0);
    streams.sort_by_key(|&(live, _)| std::cmp::Reverse(live));
    let listed: Vec<String> =
        streams.iter().take(4).map(|(live, handle)| format!("{handle} {}", Human(*live))).collect();
    if !listed.is_empty() {
        let more = streams.len().saturating_sub(4);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let _ = writeln!(text, "  live by stream: {}{more}", listed.join(", "));
    }
    if stats.private_free > 0 {
        let _ = writeln!(text, "  kept for captured graphs: {}", Human(stats.private_free));
    }
    text
}

/// The error of a request for `bytes` that found no memory, with the reason.
#[cold]
pub(crate) fn out_of_memory(pool: &DevicePool, bytes: u64, shortage: &Shortage) -> Error {
    refusal(pool.backing.place(), pool.backing.total, bytes, shortage, &report(pool))
}

/// The same for memory of `place`, which has `total` bytes, with the pool's report.
pub(crate) fn refusal(place: Place, total: u64, bytes: u64, shortage: &Shortage, report: &str) -> Error {
    let why = match shortage {
        Shortage::Limit(over) => format!("the pool's limit is short by {}", Human(*over)),
        Shortage::Device(error) => format!("{place} has no more ({error})"),
        Shortage::Total => format!("{place} has {} in all", Human(total)),
        Shortage::Addresses => format!("more than the pool's addresses, and {place} has {}", Human(total)),
    };
    let hint = match shortage {
        Shortage::Limit(_) => "raise the limit (forebay_pool_set_limit, FOREBAY_LIMIT) or free memory",
        Shortage::Device(_) => "free memory, or end other programs that use it",
        Shortage::Addresses | Shortage::Total => "ask for less",
    };
    let text = format!(
        "Forebay: out of memory on {place}: {} ({bytes} bytes) asked for, {why}; {hint}.\n{report}",
        Human(bytes)
    );
    Error::OutOfMemory(text.trim_end().into())
}
