//! Statuses, their texts, and the last error of a thread.

use std::ffi::CStr;

use crate::kit::abi::*;
use forebay::abi::core::status::{forebay_last_error_message, forebay_status_text};
use forebay::abi::pool::create::*;
use forebay::abi::pool::limits::{forebay_pool_add_pressure_callback, forebay_pool_get_limit};
use forebay::abi::pool::stats::{forebay_pool_check, forebay_pool_report};
use forebay::abi::pool::streams::{forebay_pool_copy, forebay_pool_fill, forebay_stream_create};

fn text(status: u32) -> &'static str {
    unsafe { CStr::from_ptr(forebay_status_text(status)) }.to_str().unwrap()
}

#[test]
fn every_status_has_a_text_of_its_own_and_any_other_number_is_unknown() {
    let texts: Vec<&str> = (0..=Status::Peer as u32).map(text).collect();
    for (number, one) in texts.iter().enumerate() {
        assert!(!one.is_empty() && *one != "unknown status", "{number}");
        assert_eq!(texts.iter().filter(|other| *other == one).count(), 1, "{one}");
    }
    assert_eq!(text(0), "ok");
    for number in [Status::Peer as u32 + 1, u32::MAX, 1 << 31] {
        assert_eq!(text(number), "unknown status");
    }
}

#[test]
fn the_last_error_is_the_threads_own_and_a_good_call_leaves_it() {
    let pool = Pool::new();
    refused(pool.malloc_on(512, -5, LEGACY), Status::BadDevice, &["-5"]);
    let ours = last_error();
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            assert_eq!(last_error(), "", "none failed on this thread yet");
            refused(pool.malloc_on(512, -6, LEGACY), Status::BadDevice, &["-6"]);
            last_error()
        });
        assert!(theirs.join().unwrap().contains("-6"));
    });
    assert_eq!(last_error(), ours);
    let block = pool.malloc(512, LEGACY).unwrap();
    pool.free(block, LEGACY).unwrap();
    assert_eq!(last_error(), ours);
    assert!(!forebay_last_error_message().is_null());
}

#[test]
fn a_null_pool_is_refused_by_every_call() {
    let pool = Pool::null();
    let null = |result: Outcome| drop(refused(result, Status::NullPointer, &["pool is NULL"]));
    null(pool.device_count().map(drop));
    null(pool.memory_info(0).map(drop));
    null(pool.malloc(512, LEGACY).map(drop));
    null(pool.free(0, LEGACY));
    null(pool.free(512, LEGACY));
    null(pool.record_use(512, LEGACY));
    null(pool.block_size(512).map(drop));
    null(pool.base_address(512).map(drop));
    null(pool.trim(0).map(drop));
    null(pool.set_limit(0));
    null(pool.set_fraction(0.5));
    null(pool.limit().map(drop));
    null(pool.add_callback(None, &0).map(drop));
    null(pool.remove_callback(1));
    null(pool.try_stats(0, size_of::<ForebayPoolStats>() as u32, 1).map(drop));
    null(pool.try_stream_stats(LEGACY, size_of::<ForebayStreamStats>() as u32, 1).map(drop));
    null(pool.reset_peaks());
    null(pool.report(10).map(drop));
    null(outcome(unsafe { forebay_pool_check(std::ptr::null(), 0) }));
    null(pool.try_stream(0).map(drop));
    null(pool.destroy_stream(LEGACY));
    null(pool.register(LEGACY));
    null(pool.unregister(LEGACY));
    null(pool.synchronize(LEGACY));
    null(pool.fill(512, 0, 1, LEGACY));
    null(pool.copy(512, 1024, 1, LEGACY));
    null(pool.private_begin(1, LEGACY));
    null(pool.private_end(1));
    null(pool.private_release(1));
    assert_eq!(pool.driver_name(), None);
    unsafe { forebay_pool_destroy(std::ptr::null_mut()) };
}

#[test]
fn null_outputs_and_arguments_are_refused_by_name() {
    let pool = Pool::new();
    let null = |status, name: &str| drop(refused(outcome(status), Status::NullPointer, &[name]));
    unsafe {
        null(forebay_pool_options_init(std::ptr::null_mut()), "options is NULL");
        null(forebay_pool_create(std::ptr::null(), std::ptr::null_mut()), "out is NULL");
        null(forebay_pool_device_count(pool.0, std::ptr::null_mut()), "out is NULL");
        let mut one = 0u64;
        null(forebay_pool_memory_info(pool.0, 0, std::ptr::null_mut(), &raw mut one), "free_bytes is NULL");
        null(forebay_pool_memory_info(pool.0, 0, &raw mut one, std::ptr::null_mut()), "total_bytes is NULL");
        null(forebay_pool_get_limit(pool.0, 0, std::ptr::null_mut()), "out is NULL");
        null(forebay_pool_add_pressure_callback(pool.0, None, std::ptr::null_mut(), &raw mut one), "callback is NULL");
        null(forebay_stream_create(pool.0, 0, std::ptr::null_mut()), "out is NULL");
        null(forebay_pool_report(pool.0, 0, std::ptr::null_mut(), 1, std::ptr::null_mut()), "buffer is NULL");
        let (nowhere, legacy) = (std::ptr::null_mut(), std::ptr::null_mut());
        null(forebay_pool_fill(pool.0, 0, nowhere, 1, 1, legacy), "to is NULL");
        null(forebay_pool_copy(pool.0, 0, nowhere, (&raw const one).cast(), 1, legacy), "to is NULL");
        null(forebay_pool_copy(pool.0, 0, (&raw mut one).cast(), nowhere, 1, legacy), "from is NULL");
        assert_eq!(forebay_pool_fill(pool.0, 0, nowhere, 1, 0, legacy), Status::Ok, "no bytes");
        assert_eq!(forebay_pool_copy(pool.0, 0, nowhere, nowhere, 0, legacy), Status::Ok, "no bytes");
        assert_eq!(one, 0, "written by a call that failed");
    }
}
