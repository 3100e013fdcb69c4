//! The clock: when queued work runs, and what a wait runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use forebay::driver::host::Clock;
use forebay::driver::{Driver, ErrorKind};
use forebay::units::{DeviceId, StreamHandle};

use crate::kit::random::Random;
use crate::{DEVICE, byte, chunk, driver, invalid, note};

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
fn late_work_runs_when_so_much_more_was_queued_or_the_host_waits() {
    let driver = driver(Clock::Late(3));
    let [first, second] = [(); 2].map(|()| driver.stream_create(DEVICE).unwrap());
    let log = Arc::default();
    let event = driver.event_create(DEVICE).unwrap();
    driver.host_call(DEVICE, first, note(&log, 1)).unwrap();
    driver.event_record(DEVICE, event, first).unwrap();
    driver.stream_wait(DEVICE, second, event).unwrap();
    assert!(log.lock().is_empty());
    driver.host_call(DEVICE, second, note(&log, 2)).unwrap();
    assert_eq!(*log.lock(), [1], "one of four, whatever the stream");
    assert!(!driver.event_passed(DEVICE, event).unwrap());
    driver.host_call(DEVICE, first, note(&log, 3)).unwrap();
    assert!(driver.event_passed(DEVICE, event).unwrap());

    driver.stream_synchronize(DEVICE, second).unwrap();
    assert_eq!(*log.lock(), [1, 2], "and no other stream");
    driver.host_call(DEVICE, second, note(&log, 4)).unwrap();
    driver.host_call(DEVICE, second, note(&log, 5)).unwrap();
    assert_eq!(*log.lock(), [1, 2], "the third is the third last");
    driver.host_call(DEVICE, second, note(&log, 6)).unwrap();
    assert_eq!(*log.lock(), [1, 2, 3]);

    // Who asks and asks has an answer in the end.
    driver.event_record(DEVICE, event, second).unwrap();
    let asked = (1..).find(|_| driver.event_passed(DEVICE, event).unwrap());
    assert_eq!((asked, &log.lock()[3..]), (Some(3 * 3 + 1), &[4, 5, 6][..]), "three for each of what is left");

    // What was queued under another clock runs before what comes after it.
    driver.set_clock(Clock::Manual);
    driver.host_call(DEVICE, second, note(&log, 7)).unwrap();
    driver.set_clock(Clock::Late(1));
    driver.host_call(DEVICE, second, note(&log, 8)).unwrap();
    driver.host_call(DEVICE, second, note(&log, 9)).unwrap();
    assert_eq!(*log.lock(), [1, 2, 3, 4, 5, 6, 7, 8]);
    driver.stream_destroy(DEVICE, second).unwrap();
    driver.synchronize(DEVICE).unwrap();
    assert_eq!(*log.lock(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
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
                    let mut random = Random(seed);
                    for _ in 0..2000 {
                        let (stream, event) = (streams[random.below(6) as usize], events[random.below(6) as usize]);
                        let ran = Arc::clone(ran);
                        let count = Box::new(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        driver.host_call(DEVICE, stream, count).unwrap();
                        match random.below(9) {
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
