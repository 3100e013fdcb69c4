//! What the host driver has beyond the trait: its clock, its faults and lies, its ledger, its strictness.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use forebay::driver::host::{Call, Clock, HostDriver, HostOptions};
use forebay::driver::{Capture, Driver, ErrorKind, Physical, Result};
use forebay::units::{Address, DeviceId, StreamHandle};

const DEVICE: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;

fn driver(clock: Clock) -> Arc<HostDriver> {
    Arc::new(HostDriver::new(HostOptions { capacity: 64 * MIB, devices: 2, clock, ..HostOptions::default() }).unwrap())
}

/// One granted chunk.
fn chunk(driver: &HostDriver) -> (Address, Physical) {
    let at = driver.reserve(DEVICE, GRANULE).unwrap();
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, at, GRANULE, physical).unwrap();
    driver.grant(DEVICE, at, GRANULE).unwrap();
    (at, physical)
}

fn byte(at: Address) -> u8 {
    // SAFETY: the tests pass addresses that they have mapped and granted.
    unsafe { std::ptr::read_volatile(at.0 as *const u8) }
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T>, text: &str) {
    let error = result.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.detail.contains(text), "{error} does not say {text:?}");
}

/// A closure that notes that it ran, and when.
fn note(log: &Arc<parking_lot::Mutex<Vec<u32>>>, number: u32) -> Box<dyn FnOnce() + Send> {
    let log = Arc::clone(log);
    Box::new(move || log.lock().push(number))
}

// ---- the clock -----------------------------------------------------------------------------------------

#[test]
fn the_manual_clock_runs_nothing_until_it_is_stepped() {
    let driver = driver(Clock::Manual);
    let (at, _) = chunk(&driver);
    let stream = driver.stream_create(DEVICE).unwrap();
    let event = driver.event_create(DEVICE).unwrap();
    driver.fill(DEVICE, at, 1, 64, stream).unwrap();
    driver.event_record(DEVICE, event, stream).unwrap();
    driver.fill(DEVICE, at, 2, 64, stream).unwrap();
    assert_eq!((byte(at), driver.queued(DEVICE, stream).unwrap()), (0, 3));
    assert!(driver.step(DEVICE, stream).unwrap());
    assert_eq!(byte(at), 1);
    assert!(!driver.event_passed(DEVICE, event).unwrap(), "the record itself has not run");
    assert!(driver.step(DEVICE, stream).unwrap());
    assert!(driver.event_passed(DEVICE, event).unwrap());
    assert_eq!(byte(at), 1);
    assert_eq!(driver.run_stream(DEVICE, stream).unwrap(), 1);
    assert_eq!(byte(at), 2);
    assert!(!driver.step(DEVICE, stream).unwrap());
}

#[test]
fn a_wait_is_for_the_record_made_before_it() {
    let driver = driver(Clock::Manual);
    let (first, second) = (driver.stream_create(DEVICE).unwrap(), driver.stream_create(DEVICE).unwrap());
    let event = driver.event_create(DEVICE).unwrap();
    let log = Arc::default();
    driver.host_call(DEVICE, first, note(&log, 1)).unwrap();
    driver.event_record(DEVICE, event, first).unwrap();
    driver.stream_wait(DEVICE, second, event).unwrap();
    driver.host_call(DEVICE, second, note(&log, 3)).unwrap();
    // This record moves the event on, and the wait above not.
    driver.host_call(DEVICE, first, note(&log, 2)).unwrap();
    driver.event_record(DEVICE, event, first).unwrap();
    assert!(!driver.step(DEVICE, second).unwrap(), "blocked by the first record");
    assert!(driver.step(DEVICE, first).unwrap() && driver.step(DEVICE, first).unwrap());
    assert_eq!(driver.run_stream(DEVICE, second).unwrap(), 2);
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    driver.run_all();
    assert_eq!(*log.lock(), [1, 3, 2]);
    assert!(driver.event_passed(DEVICE, event).unwrap());
}

#[test]
fn a_host_wait_runs_what_it_needs_and_no_more() {
    let driver = driver(Clock::Manual);
    let streams: Vec<StreamHandle> = (0..3).map(|_| driver.stream_create(DEVICE).unwrap()).collect();
    let event = driver.event_create(DEVICE).unwrap();
    let log = Arc::default();
    driver.host_call(DEVICE, streams[0], note(&log, 1)).unwrap();
    driver.event_record(DEVICE, event, streams[0]).unwrap();
    driver.host_call(DEVICE, streams[0], note(&log, 4)).unwrap();
    driver.stream_wait(DEVICE, streams[1], event).unwrap();
    driver.host_call(DEVICE, streams[1], note(&log, 2)).unwrap();
    driver.event_record(DEVICE, event, streams[1]).unwrap();
    driver.host_call(DEVICE, streams[1], note(&log, 5)).unwrap();
    driver.host_call(DEVICE, streams[2], note(&log, 6)).unwrap();
    driver.event_wait(DEVICE, event).unwrap();
    assert_eq!(*log.lock(), [1, 2]);
    driver.stream_synchronize(DEVICE, streams[2]).unwrap();
    assert_eq!(*log.lock(), [1, 2, 6]);
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(*log.lock(), [1, 2, 6, 4, 5]);
}

#[test]
fn a_device_event_is_for_what_was_queued_on_every_stream() {
    let driver = driver(Clock::Manual);
    let (first, second) = (driver.stream_create(DEVICE).unwrap(), driver.stream_create(DEVICE).unwrap());
    let (gone, event) = (driver.stream_create(DEVICE).unwrap(), driver.event_create(DEVICE).unwrap());
    let (passed, log) = (|| driver.event_passed(DEVICE, event).unwrap(), Arc::default());
    driver.event_record_all(DEVICE, event).unwrap();
    assert!(passed(), "nothing was queued");
    for (stream, number) in [(first, 1), (second, 2), (gone, 3)] {
        driver.host_call(DEVICE, stream, note(&log, number)).unwrap();
    }
    driver.stream_destroy(DEVICE, gone).unwrap();
    driver.event_record_all(DEVICE, event).unwrap();
    // Neither the work of another device nor work from now on is its business.
    driver.host_call(DeviceId(1), StreamHandle::LEGACY, note(&log, 4)).unwrap();
    driver.host_call(DEVICE, first, note(&log, 5)).unwrap();
    assert!(driver.step(DEVICE, second).unwrap() && !passed());
    assert!(driver.step(DEVICE, first).unwrap() && !passed());
    driver.event_wait(DEVICE, event).unwrap();
    assert!(passed());
    assert_eq!(*log.lock(), [2, 1, 3]);
    assert_eq!((driver.queued(DEVICE, first).unwrap(), driver.queued(DEVICE, second).unwrap()), (1, 0));
    // Stepped instead of waited for.
    driver.host_call(DEVICE, second, note(&log, 6)).unwrap();
    driver.event_record_all(DEVICE, event).unwrap();
    assert!(driver.step(DEVICE, second).unwrap() && !passed());
    assert!(driver.step(DEVICE, first).unwrap() && passed());
    invalid(driver.event_record_all(DeviceId(1), event), "belongs to device 0");
    driver.event_destroy(DEVICE, event).unwrap();
    invalid(driver.event_record_all(DEVICE, event), "is destroyed");
}

#[test]
fn a_stream_waits_for_a_device_event_also_for_its_own_work() {
    let driver = driver(Clock::Manual);
    let streams: Vec<StreamHandle> = (0..3).map(|_| driver.stream_create(DEVICE).unwrap()).collect();
    let event = driver.event_create(DEVICE).unwrap();
    let log = Arc::default();
    for (&stream, number) in streams.iter().zip(1..) {
        driver.host_call(DEVICE, stream, note(&log, number)).unwrap();
    }
    driver.event_record_all(DEVICE, event).unwrap();
    // All wait for all, and the next event is for these waits too.
    for (&stream, number) in streams.iter().zip(4..) {
        driver.stream_wait(DEVICE, stream, event).unwrap();
        driver.host_call(DEVICE, stream, note(&log, number)).unwrap();
    }
    driver.event_record_all(DEVICE, event).unwrap();
    driver.stream_wait(DEVICE, streams[0], event).unwrap();
    driver.host_call(DEVICE, streams[0], note(&log, 7)).unwrap();
    assert_eq!(driver.run_stream(DEVICE, streams[0]).unwrap(), 1, "blocked by the other two");
    assert!(driver.step(DEVICE, streams[2]).unwrap() && !driver.step(DEVICE, streams[0]).unwrap());
    driver.stream_synchronize(DEVICE, streams[0]).unwrap();
    let log = log.lock().clone();
    assert_eq!((&log[..3], log[6], log.len()), (&[1, 3, 2][..], 7, 7), "{log:?}");
}

#[test]
fn the_clock_can_be_switched() {
    let driver = driver(Clock::Immediate);
    let stream = driver.stream_create(DEVICE).unwrap();
    let log = Arc::default();
    driver.host_call(DEVICE, stream, note(&log, 1)).unwrap();
    assert_eq!(*log.lock(), [1]);
    driver.set_clock(Clock::Manual);
    driver.host_call(DEVICE, stream, note(&log, 2)).unwrap();
    assert_eq!(*log.lock(), [1]);
    driver.set_clock(Clock::Immediate);
    assert_eq!(*log.lock(), [1, 2]);
}

#[test]
fn work_runs_beside_other_threads_and_is_waited_for() {
    let driver = driver(Clock::Immediate);
    let stream = driver.stream_create(DEVICE).unwrap();
    let (done, (start, started), (finish, wait)) = (Arc::new(AtomicBool::new(false)), mpsc::channel(), mpsc::channel());
    let (kernel, flag) = (Arc::clone(&driver), Arc::clone(&done));
    let runner = thread::spawn(move || {
        let call = move || {
            start.send(()).unwrap();
            wait.recv().unwrap();
            flag.store(true, Ordering::Release);
        };
        kernel.host_call(DEVICE, stream, Box::new(call)).unwrap();
    });
    started.recv().unwrap();
    // The stream is busy on the other thread; everything else goes on.
    let event = driver.event_create(DEVICE).unwrap();
    driver.event_record(DEVICE, event, stream).unwrap();
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    let whole = driver.event_create(DEVICE).unwrap();
    driver.event_record_all(DEVICE, whole).unwrap();
    assert!(!driver.event_passed(DEVICE, whole).unwrap());
    let at = driver.allocate(DEVICE, 4096).unwrap();
    driver.fill(DEVICE, at, 1, 4096, StreamHandle::LEGACY).unwrap();
    driver.free(DEVICE, at).unwrap();
    finish.send(()).unwrap();
    driver.event_wait(DEVICE, whole).unwrap();
    assert!(driver.event_passed(DEVICE, event).unwrap());
    assert!(done.load(Ordering::Acquire));
    runner.join().unwrap();
}

#[test]
fn threads_with_waits_across_their_streams_all_get_home() {
    for clock in [Clock::Immediate, Clock::Manual] {
        let driver = driver(clock);
        let streams: Vec<StreamHandle> = (0..6).map(|_| driver.stream_create(DEVICE).unwrap()).collect();
        let events: Vec<_> = (0..6).map(|_| driver.event_create(DEVICE).unwrap()).collect();
        let ran = Arc::new(AtomicU64::new(0));
        thread::scope(|scope| {
            for seed in 1..=4u64 {
                let (driver, streams, events, ran) = (&driver, &streams, &events, &ran);
                scope.spawn(move || {
                    let mut random = seed;
                    for _ in 0..2000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let (stream, event) =
                            (streams[(random >> 33) as usize % 6], events[(random >> 40) as usize % 6]);
                        let ran = Arc::clone(ran);
                        let count = Box::new(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        driver.host_call(DEVICE, stream, count).unwrap();
                        match (random >> 50) % 9 {
                            0..=2 => driver.event_record(DEVICE, event, stream).unwrap(),
                            3..=5 => driver.stream_wait(DEVICE, stream, event).unwrap(),
                            6 => driver.event_record_all(DEVICE, event).unwrap(),
                            7 => driver.event_wait(DEVICE, event).unwrap(),
                            _ => assert!(driver.step(DEVICE, stream).is_ok()),
                        }
                    }
                });
            }
        });
        driver.synchronize(DEVICE).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 8000);
    }
}

#[test]
fn a_closure_may_panic_and_must_not_wait_for_its_own_stream() {
    let driver = driver(Clock::Immediate);
    let stream = driver.stream_create(DEVICE).unwrap();
    let inner = Arc::clone(&driver);
    let call = Box::new(move || {
        let error = inner.stream_synchronize(DEVICE, stream).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Failed, "{error}");
        panic!("as planned");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| driver.host_call(DEVICE, stream, call))).is_err());
    let log = Arc::default();
    driver.host_call(DEVICE, stream, note(&log, 1)).unwrap();
    driver.stream_synchronize(DEVICE, stream).unwrap();
    assert_eq!(*log.lock(), [1]);
}

// ---- streams -------------------------------------------------------------------------------------------

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
    // SAFETY: the child looks at a driver that no other thread has, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let same = driver.stream_identity(DEVICE, StreamHandle::PER_THREAD).is_ok_and(|found| found == identity);
            libc::_exit(i32::from(!same));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
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

// ---- memory --------------------------------------------------------------------------------------------

#[test]
fn the_capacity_counts_what_is_held_or_mapped() {
    let driver = driver(Clock::Immediate);
    let free = || driver.memory_info(DEVICE).unwrap().free;
    let at = driver.reserve(DEVICE, 64 * MIB).unwrap();
    let most = driver.create(DEVICE, 60 * MIB).unwrap();
    driver.map(DEVICE, at, 60 * MIB, most).unwrap();
    driver.release(DEVICE, most).unwrap();
    assert_eq!(free(), 4 * MIB, "still mapped");
    let error = driver.create(DEVICE, 6 * MIB).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(error.detail.contains("6.00 MiB") && error.detail.contains("4.00 MiB"), "{error}");
    assert_eq!(driver.allocate(DEVICE, 5 * MIB).unwrap_err().kind, ErrorKind::OutOfMemory);
    assert_eq!(free(), 4 * MIB, "a refused call counts nothing");
    driver.create(DeviceId(1), 64 * MIB).unwrap();
    driver.unmap(DEVICE, at, 60 * MIB).unwrap();
    assert_eq!(free(), 64 * MIB);
}

#[test]
fn what_cuda_refuses_is_refused_and_changes_nothing() {
    let driver = driver(Clock::Immediate);
    let (at, physical) = chunk(&driver);
    let spare = driver.create(DEVICE, 2 * GRANULE).unwrap();
    let room = driver.reserve(DEVICE, 3 * GRANULE).unwrap();
    driver.map(DEVICE, room, 2 * GRANULE, spare).unwrap();
    let tail = room.plus(2 * GRANULE);
    let before = driver.usage();
    invalid(driver.map(DEVICE, at, GRANULE, physical), "mapped already");
    invalid(driver.map(DEVICE, tail, 2 * GRANULE, spare), "not inside a reservation");
    invalid(driver.map(DEVICE, Address(GRANULE), GRANULE, physical), "not inside a reservation");
    invalid(driver.map(DEVICE, tail, GRANULE, spare), "asked to map");
    invalid(driver.map(DEVICE, tail.plus(4096), GRANULE, physical), "not a multiple");
    invalid(driver.map(DEVICE, tail, GRANULE, Physical(999)), "not held");
    invalid(driver.grant(DEVICE, room, GRANULE), "whole handles only");
    invalid(driver.grant(DEVICE, room, 3 * GRANULE), "no mapping begins");
    invalid(driver.unmap(DEVICE, room, GRANULE), "whole handles only");
    invalid(driver.unmap(DEVICE, room.plus(GRANULE), GRANULE), "no mapping begins");
    invalid(driver.unmap(DEVICE, room, 0), "whole handles only");
    invalid(driver.unreserve(DEVICE, room, 3 * GRANULE), "still mapped");
    invalid(driver.unreserve(DEVICE, at, 2 * GRANULE), "was reserved with");
    invalid(driver.unreserve(DEVICE, room.plus(GRANULE), GRANULE), "not the start");
    invalid(driver.release(DeviceId(1), physical), "belongs to device 0");
    invalid(driver.free(DEVICE, at), "not the start of a plain");
    invalid(driver.create(DEVICE, GRANULE + 1), "not a multiple");
    assert_eq!(driver.usage(), before);
    driver.release(DEVICE, spare).unwrap();
    invalid(driver.release(DEVICE, spare), "released before");
    driver.unmap(DEVICE, room, 2 * GRANULE).unwrap();
    driver.unreserve(DEVICE, room, 3 * GRANULE).unwrap();
}

#[test]
fn memory_without_access_cannot_be_touched() {
    let driver = driver(Clock::Manual);
    let at = driver.reserve(DEVICE, GRANULE).unwrap();
    let fill = |device| driver.fill(device, at, 1, 512, StreamHandle::LEGACY);
    invalid(fill(DEVICE), "is not mapped");
    let physical = driver.create(DEVICE, GRANULE).unwrap();
    driver.map(DEVICE, at, GRANULE, physical).unwrap();
    invalid(fill(DEVICE), "no access");
    driver.grant(DEVICE, at, GRANULE).unwrap();
    invalid(fill(DeviceId(1)), "no access");
    invalid(driver.fill(DEVICE, at.plus(GRANULE - 256), 1, 512, StreamHandle::LEGACY), "is not mapped");
    fill(DEVICE).unwrap();
    // Unmapped under queued work, which is what the pool must never do.
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(driver.bad_accesses(), 1);
}

#[test]
fn a_new_handle_never_shows_old_data() {
    let driver = driver(Clock::Immediate);
    let (at, physical) = chunk(&driver);
    driver.fill(DEVICE, at, 9, GRANULE, StreamHandle::LEGACY).unwrap();
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.release(DEVICE, physical).unwrap();
    let next = driver.create(DEVICE, GRANULE).unwrap();
    assert_ne!(next, physical);
    driver.map(DEVICE, at, GRANULE, next).unwrap();
    driver.grant(DEVICE, at, GRANULE).unwrap();
    assert_eq!(byte(at), 0);
}

#[test]
fn an_arena_of_64_tib_can_be_reserved() {
    let driver = driver(Clock::Immediate);
    let at = driver.reserve(DEVICE, 64 << 40).unwrap();
    driver.unreserve(DEVICE, at, 64 << 40).unwrap();
}

#[test]
fn usage_counts_what_is_out() {
    let driver = driver(Clock::Immediate);
    let empty = driver.usage();
    let (at, physical) = chunk(&driver);
    let stream = driver.stream_create(DEVICE).unwrap();
    let event = driver.event_create(DEVICE).unwrap();
    let plain = driver.allocate(DEVICE, 1).unwrap();
    let full = driver.usage();
    assert_eq!((full.reservations, full.mappings, full.handles, full.allocations), (1, 1, 1, 1));
    assert_eq!((full.events, full.streams, full.bytes), (1, 1, GRANULE + 4096));
    driver.free(DEVICE, plain).unwrap();
    driver.event_destroy(DEVICE, event).unwrap();
    driver.stream_destroy(DEVICE, stream).unwrap();
    driver.unmap(DEVICE, at, GRANULE).unwrap();
    driver.release(DEVICE, physical).unwrap();
    driver.unreserve(DEVICE, at, GRANULE).unwrap();
    assert_eq!(driver.usage(), empty);
}

// ---- faults and lies -----------------------------------------------------------------------------------

#[test]
fn every_call_can_be_made_to_fail_and_then_changes_nothing() {
    let driver = driver(Clock::Manual);
    let (at, physical) = chunk(&driver);
    let room = driver.reserve(DEVICE, GRANULE).unwrap();
    let plain = driver.allocate(DEVICE, 4096).unwrap();
    let (stream, event) = (driver.stream_create(DEVICE).unwrap(), driver.event_create(DEVICE).unwrap());
    let attempt = |call| match call {
        Call::MemoryInfo => driver.memory_info(DEVICE).map(drop),
        Call::Reserve => driver.reserve(DEVICE, GRANULE).map(drop),
        Call::Unreserve => driver.unreserve(DEVICE, room, GRANULE),
        Call::Create => driver.create(DEVICE, GRANULE).map(drop),
        Call::Release => driver.release(DEVICE, physical),
        Call::Map => driver.map(DEVICE, room, GRANULE, physical),
        Call::Grant => driver.grant(DEVICE, at, GRANULE),
        Call::Unmap => driver.unmap(DEVICE, at, GRANULE),
        Call::Allocate => driver.allocate(DEVICE, 512).map(drop),
        Call::Free => driver.free(DEVICE, plain),
        Call::StreamCreate => driver.stream_create(DEVICE).map(drop),
        Call::StreamDestroy => driver.stream_destroy(DEVICE, stream),
        Call::StreamSynchronize => driver.stream_synchronize(DEVICE, stream),
        Call::StreamIdentity => driver.stream_identity(DEVICE, stream).map(drop),
        Call::StreamCapture => driver.stream_capture(DEVICE, stream).map(drop),
        Call::EventCreate => driver.event_create(DEVICE).map(drop),
        Call::EventDestroy => driver.event_destroy(DEVICE, event),
        Call::EventRecord => driver.event_record(DEVICE, event, stream),
        Call::EventRecordAll => driver.event_record_all(DEVICE, event),
        Call::EventPassed => driver.event_passed(DEVICE, event).map(drop),
        Call::EventWait => driver.event_wait(DEVICE, event),
        Call::StreamWait => driver.stream_wait(DEVICE, stream, event),
        Call::Synchronize => driver.synchronize(DEVICE),
        Call::Copy => driver.copy(DEVICE, at, plain, 512, stream),
        Call::Fill => driver.fill(DEVICE, at, 1, 512, stream),
        Call::TrimDriverPools => driver.trim_driver_pools(DEVICE),
    };
    let before = driver.usage();
    for call in Call::ALL {
        let calls = driver.calls(call);
        driver.fail(call, 1);
        let error = attempt(call).expect_err("the planned fault");
        assert_eq!((error.kind, error.call), (ErrorKind::Failed, call.name()), "{error}");
        assert_eq!(driver.calls(call), calls + 1, "{call:?}");
    }
    assert_eq!(driver.usage(), before);
    assert_eq!(driver.queued(DEVICE, stream).unwrap(), 0, "a failed call queued something");
    // The faults are used up. What takes things apart comes last, in the order that the rules ask for.
    let apart = [Call::Unreserve, Call::Unmap, Call::Release, Call::Free, Call::StreamDestroy, Call::EventDestroy];
    for call in Call::ALL.into_iter().filter(|call| !apart.contains(call) && *call != Call::Map).chain(apart) {
        attempt(call).unwrap_or_else(|error| panic!("{call:?} after its fault: {error}"));
    }
}

#[test]
fn the_nth_call_fails_with_the_chosen_error() {
    let driver = driver(Clock::Immediate);
    driver.fail_with(Call::Create, 3, ErrorKind::OutOfMemory);
    let kinds: Vec<_> = (0..4).map(|_| driver.create(DEVICE, GRANULE).map_err(|error| error.kind)).collect();
    assert_eq!(kinds.iter().map(|kind| kind.is_ok()).collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(kinds[2], Err(ErrorKind::OutOfMemory));
    driver.fail(Call::Create, 1);
    driver.clear_faults();
    driver.create(DEVICE, GRANULE).unwrap();
}

#[test]
fn a_missing_wait_shows_in_the_data() {
    for lie in [false, true] {
        let driver = driver(Clock::Manual);
        let (at, _) = chunk(&driver);
        let (writer, reader) = (driver.stream_create(DEVICE).unwrap(), driver.stream_create(DEVICE).unwrap());
        let event = driver.event_create(DEVICE).unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&seen);
        driver.lie_ignore_waits(lie);
        driver.fill(DEVICE, at, 7, 512, writer).unwrap();
        driver.event_record(DEVICE, event, writer).unwrap();
        driver.stream_wait(DEVICE, reader, event).unwrap();
        driver.host_call(DEVICE, reader, Box::new(move || note.store(byte(at).into(), Ordering::Relaxed))).unwrap();
        driver.stream_synchronize(DEVICE, reader).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), if lie { 0 } else { 7 });
    }
}

#[test]
fn events_can_be_made_to_lie() {
    let driver = driver(Clock::Manual);
    let event = driver.event_create(DEVICE).unwrap();
    driver.event_record(DEVICE, event, StreamHandle::LEGACY).unwrap();
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    driver.lie_events_pass(true);
    assert!(driver.event_passed(DEVICE, event).unwrap());
    driver.lie_events_pass(false);
    assert!(!driver.event_passed(DEVICE, event).unwrap());
}

#[test]
fn switched_off_features_are_unsupported() {
    let bare = HostOptions { vmm: false, stream_identity: false, driver_pools: false, ..HostOptions::default() };
    let bare = HostOptions { device_events: false, ..bare };
    let driver = HostDriver::new(bare).unwrap();
    let unsupported = |result: Result<()>| assert_eq!(result.unwrap_err().kind, ErrorKind::Unsupported);
    unsupported(driver.reserve(DEVICE, GRANULE).map(drop));
    unsupported(driver.create(DEVICE, GRANULE).map(drop));
    unsupported(driver.stream_identity(DEVICE, StreamHandle::LEGACY).map(drop));
    unsupported(driver.trim_driver_pools(DEVICE));
    unsupported(driver.event_record_all(DEVICE, driver.event_create(DEVICE).unwrap()));
    for wrong in [
        HostOptions { devices: 0, ..bare },
        HostOptions { devices: 65, ..bare },
        HostOptions { granularity: 3 << 20, ..bare },
        HostOptions { granularity: 512, ..bare },
    ] {
        assert_eq!(HostDriver::new(wrong).unwrap_err().kind, ErrorKind::Invalid);
    }
}

// ---- the ledger ----------------------------------------------------------------------------------------

#[test]
fn the_ledger_prices_each_handle() {
    let driver = driver(Clock::Immediate);
    let spent = |work: &dyn Fn()| {
        let before = driver.ledger().unwrap();
        work();
        let after = driver.ledger().unwrap();
        (after.calls - before.calls, after.nanoseconds - before.nanoseconds)
    };
    let at = driver.reserve(DEVICE, 4 * GRANULE).unwrap();
    let map = || {
        for place in 0..4 {
            let physical = driver.create(DEVICE, GRANULE).unwrap();
            driver.map(DEVICE, at.plus(place * GRANULE), GRANULE, physical).unwrap();
            driver.release(DEVICE, physical).unwrap();
        }
    };
    assert_eq!(spent(&map), (12, 4 * (10_500 + 1_000 + 12_500)));
    assert_eq!(spent(&|| driver.grant(DEVICE, at, 4 * GRANULE).unwrap()), (1, 4 * 25_000));
    assert_eq!(spent(&|| driver.unmap(DEVICE, at, 4 * GRANULE).unwrap()), (1, 4 * 17_000));
    let event = driver.event_create(DEVICE).unwrap();
    let events = || {
        driver.event_record(DEVICE, event, StreamHandle::LEGACY).unwrap();
        driver.event_passed(DEVICE, event).unwrap();
        driver.stream_wait(DEVICE, StreamHandle::LEGACY, event).unwrap();
    };
    assert_eq!(spent(&events), (3, 170 + 130 + 110));
    assert_eq!(spent(&|| driver.event_record_all(DEVICE, event).unwrap()), (1, 170));
    assert_eq!(spent(&|| assert!(driver.create(DEVICE, 1).is_err())), (1, 0), "a refused call is counted, not priced");
}
