//! Streams: handles, identities, captures, forks.

use std::sync::Arc;
use std::thread;

use forebay::driver::host::Clock;
use forebay::driver::{Capture, Driver, ErrorKind};
use forebay::units::{DeviceId, StreamHandle};

use crate::kit::process::forked;
use crate::{DEVICE, GRANULE, byte, chunk, driver, invalid, note};

#[test]
fn a_handle_comes_back_and_an_identity_does_not() {
    let driver = driver(Clock::Immediate);
    let old = driver.stream_create(DEVICE).unwrap();
    let identity = driver.stream_identity(DEVICE, old).unwrap();
    driver.stream_destroy(DEVICE, old).unwrap();
    invalid(driver.stream_identity(DEVICE, old), "is destroyed");
    invalid(driver.fill(DEVICE, driver.allocate(DEVICE, 512).unwrap(), 0, 512, old), "is destroyed");
    assert_eq!(driver.dead_stream_uses(), 2);
    let new = driver.stream_create(DEVICE).unwrap();
    assert_eq!(new, old, "the handle is used again");
    assert_ne!(driver.stream_identity(DEVICE, new).unwrap(), identity);
    assert_eq!(driver.dead_stream_uses(), 2);
    invalid(driver.stream_synchronize(DeviceId(1), new), "belongs to device 0");
}

#[test]
fn a_destroyed_streams_work_runs_when_its_time_comes() {
    let driver = driver(Clock::Manual);
    let stream = driver.stream_create(DEVICE).unwrap();
    let event = driver.event_create(DEVICE).unwrap();
    let log = Arc::default();
    driver.host_call(DEVICE, stream, note(&log, 1)).unwrap();
    driver.event_record(DEVICE, event, stream).unwrap();
    driver.stream_destroy(DEVICE, stream).unwrap();
    // The handle's next stream is another one.
    assert_eq!(driver.stream_create(DEVICE).unwrap(), stream);
    assert!(!driver.step(DEVICE, stream).unwrap());
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    driver.event_wait(DEVICE, event).unwrap();
    assert_eq!(*log.lock(), [1]);
}

#[test]
fn the_per_thread_stream_belongs_to_the_thread() {
    let driver = driver(Clock::Manual);
    let log = Arc::default();
    driver.host_call(DEVICE, StreamHandle::PER_THREAD, note(&log, 1)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            driver.host_call(DEVICE, StreamHandle::PER_THREAD, note(&log, 2)).unwrap();
            driver.stream_synchronize(DEVICE, StreamHandle::PER_THREAD).unwrap();
        });
    });
    assert_eq!(*log.lock(), [2], "the other thread's stream alone was waited for");
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(*log.lock(), [2, 1]);
}

#[test]
fn a_forked_child_does_not_disturb_its_parent() {
    let driver = driver(Clock::Immediate);
    let (at, _) = chunk(&driver);
    driver.fill(DEVICE, at, 5, GRANULE, StreamHandle::LEGACY).unwrap();
    let identity = driver.stream_identity(DEVICE, StreamHandle::PER_THREAD).unwrap();
    forked(|| assert_eq!(driver.stream_identity(DEVICE, StreamHandle::PER_THREAD).unwrap(), identity));
    assert_eq!(byte(at.plus(GRANULE - 1)), 5);
}

#[test]
fn a_capture_is_reported_and_forbids_what_cuda_forbids() {
    let driver = driver(Clock::Immediate);
    let (stream, other) = (driver.stream_create(DEVICE).unwrap(), driver.stream_create(DEVICE).unwrap());
    let event = driver.event_create(DEVICE).unwrap();
    let log = Arc::default();
    let number = driver.begin_capture(DEVICE, stream).unwrap();
    assert_eq!(driver.stream_capture(DEVICE, stream).unwrap(), Capture::Active(number));
    assert_eq!(driver.stream_capture(DEVICE, other).unwrap(), Capture::None);
    driver.host_call(DEVICE, stream, note(&log, 1)).unwrap();
    for result in [
        driver.event_record(DEVICE, event, stream),
        driver.stream_wait(DEVICE, stream, event),
        driver.stream_synchronize(DEVICE, stream),
        driver.synchronize(DEVICE),
        driver.event_record_all(DEVICE, event),
    ] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Capturing);
    }
    driver.event_record(DEVICE, event, other).unwrap();
    assert!(driver.event_passed(DEVICE, event).unwrap());
    driver.synchronize(DeviceId(1)).unwrap();
    assert_eq!(driver.end_capture(DEVICE, stream).unwrap(), 1);
    assert!(log.lock().is_empty(), "captured work does not run");
    assert_eq!(driver.stream_capture(DEVICE, stream).unwrap(), Capture::None);
    driver.synchronize(DEVICE).unwrap();
    assert_ne!(driver.begin_capture(DEVICE, stream).unwrap(), number);
    assert!(driver.begin_capture(DEVICE, StreamHandle::LEGACY).is_err());
}
