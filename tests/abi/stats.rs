//! Figures and reports.

use std::ffi::c_void;
use std::time::Duration;

use forebay::driver::{Choice, open};

use crate::kit::abi::*;
use crate::kit::memory::block_bytes;

#[test]
fn the_figures_add_up_after_every_step() {
    let pool = Pool::new();
    let streams = [pool.stream(), pool.stream(), LEGACY];
    let mut blocks = Vec::new();
    let mut live = 0;
    for step in 0..300u64 {
        let stream = streams[step as usize % 3];
        if step % 5 < 3 {
            let bytes = (step * 7919) % (3 * MIB) + 1;
            blocks.push((pool.malloc(bytes, stream).unwrap(), block_bytes(bytes)));
            live += block_bytes(bytes);
        } else if let Some((block, bytes)) = blocks.pop() {
            pool.free(block, stream).unwrap();
            live -= bytes;
        }
        let stats = pool.stats();
        assert_eq!(stats.live, live);
        assert_eq!(stats.live + stats.free_bytes, stats.physical);
        assert_eq!(stats.live_by_framework, [live, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(streams.map(|stream| pool.stream_stats(stream).live).iter().sum::<u64>(), live);
        assert_eq!(stats.allocations - stats.frees, blocks.len() as u64);
        assert_eq!(stats.hits + stats.misses, stats.allocations);
        assert!(stats.live_peak >= live && stats.physical_peak >= stats.physical);
        assert!(stats.largest_free <= stats.free_bytes);
        pool.check();
    }
    blocks.into_iter().for_each(|(block, _)| pool.free(block, LEGACY).unwrap());
    let stats = pool.stats();
    assert_eq!((stats.live, stats.streams, stats.out_of_memory), (0, 3, 0));
    streams[..2].iter().for_each(|&stream| pool.destroy_stream(stream).unwrap());
}

#[test]
fn peaks_are_exact_and_can_be_reset() {
    let pool = Pool::new();
    let (small, big) = (pool.malloc(2 * MIB, LEGACY).unwrap(), pool.malloc(10 * MIB, LEGACY).unwrap());
    pool.free(big, LEGACY).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.live, stats.live_peak, stats.physical_peak), (2 * MIB, 12 * MIB, 12 * MIB));
    assert_eq!(pool.stream_stats(LEGACY).live_peak, 12 * MIB);
    pool.trim(0).unwrap();
    pool.reset_peaks().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.live_peak, stats.physical_peak), (2 * MIB, 2 * MIB));
    assert_eq!(pool.stream_stats(LEGACY).live_peak, 2 * MIB);
    let again = pool.malloc(4 * MIB, LEGACY).unwrap();
    pool.free(again, LEGACY).unwrap();
    assert_eq!((pool.stats().live_peak, pool.stats().physical_peak), (6 * MIB, 6 * MIB));
    pool.free(small, LEGACY).unwrap();
    pool.check();
}

/// Gives nothing, after a while. The host driver's time does not pass by itself.
unsafe extern "C" fn takes_a_millisecond(_user: *mut c_void, _device: i32, _bytes: u64) -> bool {
    let time = Duration::from_millis(1);
    if on_cuda() {
        std::thread::sleep(time)
    } else {
        open(Choice::Host).unwrap().pass(time)
    }
    false
}

#[test]
fn time_that_requests_cost_is_told() {
    let pool = Pool::limited(64 * MIB);
    let before = pool.stats();
    assert_eq!((before.making_ns, before.waiting_ns), (0, 0));
    let block = pool.malloc(32 * MIB, LEGACY).unwrap();
    let grown = pool.stats();
    assert!(grown.making_ns > 0 && grown.waiting_ns == 0);
    pool.free(block, LEGACY).unwrap();
    let block = pool.malloc(32 * MIB, LEGACY).unwrap();
    assert_eq!(pool.stats().making_ns, grown.making_ns, "a hit makes no room");
    let id = pool.add_callback(Some(takes_a_millisecond), &pool).unwrap();
    refused(pool.malloc(64 * MIB, LEGACY), Status::OutOfMemory, &["limit"]);
    let refused = pool.stats();
    assert!(refused.making_ns >= grown.making_ns && refused.waiting_ns >= 1_000_000, "everything was tried");
    pool.remove_callback(id).unwrap();
    pool.free(block, LEGACY).unwrap();
}

#[test]
fn a_struct_of_another_layout_is_refused() {
    let pool = Pool::new();
    let size = size_of::<ForebayPoolStats>() as u32;
    for (size, version) in [(0, 1), (size - 8, 1), (size + 8, 1), (size, 0), (size, 2)] {
        let words = [&format!("size {size}"), &format!("version {version}"), "set both"];
        refused(pool.try_stats(DEVICE, size, version), Status::InvalidArgument, &words.map(|word| word as &str));
    }
    let size = size_of::<ForebayStreamStats>() as u32;
    for (size, version) in [(0, 1), (size + 8, 1), (size, 0), (size, 2)] {
        refused(pool.try_stream_stats(LEGACY, size, version), Status::InvalidArgument, &["set both"]);
    }
}

#[test]
fn a_stream_that_was_never_used_has_zeros() {
    let pool = Pool::new();
    let stream = pool.stream();
    let stats = pool.stream_stats(stream);
    assert_eq!((stats.live, stats.live_peak, stats.allocations, stats.frees, stats.hits), (0, 0, 0, 0, 0));
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn a_report_fits_any_buffer() {
    let pool = Pool::limited(100 * MIB);
    let block = pool.malloc(3 * MIB, LEGACY).unwrap();
    let (nothing, needed) = pool.report(0).unwrap();
    assert!(nothing.is_empty() && needed > 50);
    let (whole, needed) = pool.report(needed + 100).unwrap();
    assert_eq!(whole[..needed].iter().position(|&byte| byte == 0), Some(needed - 1), "one NUL, at the end");
    let text = String::from_utf8(whole[..needed - 1].to_vec()).unwrap();
    for word in ["live 3.00 MiB", "held", "limit 100.00 MiB", "device 0", "C 3.00 MiB", "largest free block"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    // From here on it also says what other pools and programs leave free, which may change at any time.
    let own = text.find("free on device").unwrap();
    for capacity in [1, 2, 17, own, own + 20, needed + 100] {
        let (part, needed) = pool.report(capacity).unwrap();
        let kept = capacity.min(needed) - 1;
        assert_eq!((&part[..kept.min(own)], part[kept]), (&whole[..kept.min(own)], 0), "{capacity}");
    }
    pool.free(block, LEGACY).unwrap();
}
