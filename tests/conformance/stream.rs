//! Checks of streams and events: order, waits, identities.

use std::collections::HashSet;
use std::thread;

use forebay::driver::{Capture, Driver, ErrorKind, Event};
use forebay::units::{Address, DeviceId, StreamHandle};

use super::kit::{DEVICE, Stream, all, ok, read, refused};

pub(super) fn default_streams_work(driver: &dyn Driver) {
    let at = ok("allocate", driver.allocate(DEVICE, 4096));
    for (value, stream) in [(1, StreamHandle(0)), (2, StreamHandle(1)), (3, StreamHandle(2))] {
        ok("fill", driver.fill(DEVICE, at, value, 4096, stream));
        ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream));
        all("fill on a default stream", &read(driver, at, 4096), value);
        assert_eq!(ok("stream_capture", driver.stream_capture(DEVICE, stream)), Capture::None);
        assert!(driver.stream_destroy(DEVICE, stream).is_err(), "default stream {stream} was destroyed");
    }
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn a_stream_knows_its_device(driver: &dyn Driver) {
    for device in (0..driver.device_count()).map(DeviceId) {
        let stream = ok("stream_create", driver.stream_create(device));
        // Whichever context the question is asked in.
        assert_eq!(driver.stream_device(DEVICE, stream), Some(device));
        assert_eq!(driver.stream_device(device, stream), Some(device));
        ok("stream_destroy", driver.stream_destroy(device, stream));
    }
    for handle in [0, 1, 2].map(StreamHandle) {
        assert_eq!(driver.stream_device(DEVICE, handle), None, "each device has a default stream");
    }
}

pub(super) fn an_event_never_recorded_has_passed(driver: &dyn Driver) {
    let event = ok("event_create", driver.event_create(DEVICE));
    assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "a fresh event has not passed");
    ok("event_wait", driver.event_wait(DEVICE, event));
    let stream = Stream::new(driver);
    ok("stream_wait", driver.stream_wait(DEVICE, stream.1, event));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    ok("event_destroy", driver.event_destroy(DEVICE, event));
}

pub(super) fn an_event_waited_for_has_passed(driver: &dyn Driver) {
    let bytes = 32 << 20;
    let at = ok("allocate", driver.allocate(DEVICE, bytes));
    let stream = Stream::new(driver);
    let event = ok("event_create", driver.event_create(DEVICE));
    for value in 1..=20 {
        ok("fill", driver.fill(DEVICE, at, value, bytes, stream.1));
        // Each record moves the same event on.
        ok("event_record", driver.event_record(DEVICE, event, stream.1));
    }
    ok("event_wait", driver.event_wait(DEVICE, event));
    assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "an event that was waited for has not passed");
    all("the last fill", &read(driver, at.plus(bytes - 4096), 4096), 20);
    // Destroying an event that is on its way is fine.
    ok("fill", driver.fill(DEVICE, at, 21, bytes, stream.1));
    ok("event_record", driver.event_record(DEVICE, event, stream.1));
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn a_stream_waits_for_another(driver: &dyn Driver) {
    let bytes = 64 << 20;
    let (from, to) = (ok("allocate", driver.allocate(DEVICE, bytes)), ok("allocate", driver.allocate(DEVICE, bytes)));
    let (first, second) = (Stream::new(driver), Stream::new(driver));
    let event = ok("event_create", driver.event_create(DEVICE));
    for round in 1..=10u8 {
        // A long tail of work, of which only the last fill has the value that the other stream must see.
        for filler in [0xf0, 0xf1, 0xf2] {
            ok("fill", driver.fill(DEVICE, from, filler, bytes, first.1));
        }
        ok("fill", driver.fill(DEVICE, from, round, bytes, first.1));
        ok("event_record", driver.event_record(DEVICE, event, first.1));
        ok("stream_wait", driver.stream_wait(DEVICE, second.1, event));
        ok("copy", driver.copy(DEVICE, to, from, bytes, second.1));
        // The way back, so that the next round does not write what is still being read.
        ok("event_record", driver.event_record(DEVICE, event, second.1));
        ok("stream_wait", driver.stream_wait(DEVICE, first.1, event));
        ok("stream_synchronize", driver.stream_synchronize(DEVICE, second.1));
        for place in [0, bytes / 2, bytes - 4096] {
            all("what the waiting stream copied", &read(driver, to.plus(place), 4096), round);
        }
    }
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    ok("free", driver.free(DEVICE, from));
    ok("free", driver.free(DEVICE, to));
}

pub(super) fn a_stream_is_idle_when_its_work_is_done(driver: &dyn Driver) {
    let bytes = 32 << 20;
    let at = ok("allocate", driver.allocate(DEVICE, bytes));
    let stream = Stream::new(driver);
    assert!(ok("stream_idle", driver.stream_idle(DEVICE, stream.1)), "nothing was queued on it");
    for round in 1..=5u8 {
        let event = ok("event_create", driver.event_create(DEVICE));
        for value in [0xf0, 0xf1, 0xf2, round] {
            ok("fill", driver.fill(DEVICE, at, value, bytes, stream.1));
        }
        ok("event_record", driver.event_record(DEVICE, event, stream.1));
        // Perhaps never: a held-back driver runs nothing for a question.
        if (0..100_000).any(|_| ok("stream_idle", driver.stream_idle(DEVICE, stream.1))) {
            assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "idle before its work was done");
        }
        ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
        assert!(ok("stream_idle", driver.stream_idle(DEVICE, stream.1)), "waited for, and not idle");
        all("the last fill", &read(driver, at.plus(bytes - 4096), 4096), round);
        ok("event_destroy", driver.event_destroy(DEVICE, event));
    }
    for handle in [StreamHandle::LEGACY, StreamHandle::PER_THREAD] {
        ok("stream_synchronize", driver.stream_synchronize(DEVICE, handle));
        assert!(ok("stream_idle", driver.stream_idle(DEVICE, handle)), "a default stream, waited for");
    }
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn synchronize_waits_for_every_stream(driver: &dyn Driver) {
    let bytes = 32 << 20;
    let streams: Vec<Stream> = (0..4).map(|_| Stream::new(driver)).collect();
    let mut events: Vec<Event> = Vec::new();
    let blocks: Vec<Address> = streams.iter().map(|_| ok("allocate", driver.allocate(DEVICE, bytes))).collect();
    for (stream, &at) in streams.iter().zip(&blocks) {
        ok("fill", driver.fill(DEVICE, at, 9, bytes, stream.1));
        let event = ok("event_create", driver.event_create(DEVICE));
        ok("event_record", driver.event_record(DEVICE, event, stream.1));
        events.push(event);
    }
    ok("synchronize", driver.synchronize(DEVICE));
    for event in events {
        assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "a stream was still busy after synchronize");
        ok("event_destroy", driver.event_destroy(DEVICE, event));
    }
    for at in blocks {
        ok("free", driver.free(DEVICE, at));
    }
}

pub(super) fn work_of_a_destroyed_stream_still_runs(driver: &dyn Driver) {
    let bytes = 64 << 20;
    let at = ok("allocate", driver.allocate(DEVICE, bytes));
    let event = ok("event_create", driver.event_create(DEVICE));
    let stream = ok("stream_create", driver.stream_create(DEVICE));
    for value in [1, 2, 3] {
        ok("fill", driver.fill(DEVICE, at, value, bytes, stream));
    }
    ok("event_record", driver.event_record(DEVICE, event, stream));
    ok("stream_destroy", driver.stream_destroy(DEVICE, stream));
    ok("event_wait", driver.event_wait(DEVICE, event));
    all("the destroyed stream's last fill", &read(driver, at.plus(bytes - 4096), 4096), 3);
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    ok("free", driver.free(DEVICE, at));
}

/// An event that `event_record_all` works on, or `None` after a note: the driver is too old.
fn device_event(driver: &dyn Driver) -> Option<Event> {
    let event = ok("event_create", driver.event_create(DEVICE));
    match driver.event_record_all(DEVICE, event) {
        Err(error) if error.kind == ErrorKind::Unsupported => {
            let version = ok("capabilities", driver.capabilities(DEVICE)).version;
            assert!(version < 12_050, "driver {version} has events for a device: {error}");
            assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "the refused call recorded something");
            ok("event_destroy", driver.event_destroy(DEVICE, event));
            eprintln!("skipped: no events for a whole device");
            None
        }
        result => {
            ok("event_record_all", result);
            Some(event)
        }
    }
}

pub(super) fn a_device_event_stands_for_every_stream(driver: &dyn Driver) {
    let Some(event) = device_event(driver) else { return };
    let bytes = 32 << 20;
    let streams = [Stream::new(driver), Stream::new(driver)];
    let blocks = [(); 2].map(|()| ok("allocate", driver.allocate(DEVICE, bytes)));
    let own = [(); 2].map(|()| ok("event_create", driver.event_create(DEVICE)));
    // Either stream is once the one that is busy for longer.
    for (round, fills) in [(1, [20, 1]), (2, [1, 20])] {
        for index in 0..2 {
            for last in (0..fills[index]).rev() {
                let value = if last == 0 { round } else { 0xff };
                ok("fill", driver.fill(DEVICE, blocks[index], value, bytes, streams[index].1));
            }
            ok("event_record", driver.event_record(DEVICE, own[index], streams[index].1));
        }
        ok("event_record_all", driver.event_record_all(DEVICE, event));
        // Perhaps never: a held-back driver runs nothing for a question.
        if (0..100_000).any(|_| ok("event_passed", driver.event_passed(DEVICE, event))) {
            for own in own {
                assert!(ok("event_passed", driver.event_passed(DEVICE, own)), "it passed before a stream was done");
            }
        }
        ok("event_wait", driver.event_wait(DEVICE, event));
        assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "waited for, it has not passed");
        for (own, at) in own.into_iter().zip(blocks) {
            assert!(ok("event_passed", driver.event_passed(DEVICE, own)), "it was waited for, a stream is not done");
            all("the last fill", &read(driver, at.plus(bytes - 4096), 4096), round);
        }
    }
    // It is an event as any other: the next record may be for one stream.
    ok("event_record", driver.event_record(DEVICE, event, streams[0].1));
    ok("event_wait", driver.event_wait(DEVICE, event));
    for event in own.into_iter().chain([event]) {
        ok("event_destroy", driver.event_destroy(DEVICE, event));
    }
    for at in blocks {
        ok("free", driver.free(DEVICE, at));
    }
}

pub(super) fn a_device_event_knows_destroyed_streams(driver: &dyn Driver) {
    let Some(event) = device_event(driver) else { return };
    let bytes = 64 << 20;
    let at = ok("allocate", driver.allocate(DEVICE, bytes));
    let stream = ok("stream_create", driver.stream_create(DEVICE));
    for value in 1..=10 {
        ok("fill", driver.fill(DEVICE, at, value, bytes, stream));
    }
    ok("stream_destroy", driver.stream_destroy(DEVICE, stream));
    ok("event_record_all", driver.event_record_all(DEVICE, event));
    ok("event_wait", driver.event_wait(DEVICE, event));
    all("the destroyed stream's last fill", &read(driver, at.plus(bytes - 4096), 4096), 10);
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    ok("free", driver.free(DEVICE, at));
}

pub(super) fn a_stream_waits_for_a_device_event(driver: &dyn Driver) {
    let Some(event) = device_event(driver) else { return };
    let bytes = 32 << 20;
    let block = || ok("allocate", driver.allocate(DEVICE, bytes));
    let (from, to) = ([block(), block()], [block(), block()]);
    let (writers, reader) = ([Stream::new(driver), Stream::new(driver)], Stream::new(driver));
    for (writer, at) in writers.iter().zip(from) {
        for value in [0xf0, 0xf1, 0xf2, 0xf3, 6] {
            ok("fill", driver.fill(DEVICE, at, value, bytes, writer.1));
        }
    }
    ok("event_record_all", driver.event_record_all(DEVICE, event));
    ok("stream_wait", driver.stream_wait(DEVICE, reader.1, event));
    for (from, to) in from.into_iter().zip(to) {
        ok("copy", driver.copy(DEVICE, to, from, bytes, reader.1));
    }
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, reader.1));
    for at in to {
        for place in [0, bytes / 2, bytes - 4096] {
            all("what the waiting stream copied", &read(driver, at.plus(place), 4096), 6);
        }
    }
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    for at in from.into_iter().chain(to) {
        ok("free", driver.free(DEVICE, at));
    }
}

pub(super) fn identities_are_never_used_again(driver: &dyn Driver) {
    if !ok("capabilities", driver.capabilities(DEVICE)).stream_identity {
        let stream = Stream::new(driver);
        refused("stream_identity", ErrorKind::Unsupported, driver.stream_identity(DEVICE, stream.1));
        return;
    }
    let identity = |stream| ok("stream_identity", driver.stream_identity(DEVICE, stream));
    assert_eq!(identity(StreamHandle(0)), identity(StreamHandle(1)), "0 and 1 name one stream");
    let mut seen = HashSet::from([identity(StreamHandle(0)), identity(StreamHandle::PER_THREAD)]);
    assert_eq!(seen.len(), 2, "the legacy and the per-thread stream share an identity");
    for _ in 0..50 {
        let stream = Stream::new(driver);
        assert_eq!(identity(stream.1), identity(stream.1), "asked twice, the identity differs");
        assert!(seen.insert(identity(stream.1)), "an identity was used again");
    }
}

pub(super) fn the_per_thread_stream_is_another_on_each_thread(driver: &dyn Driver) {
    if !ok("capabilities", driver.capabilities(DEVICE)).stream_identity {
        return;
    }
    let identity = || ok("stream_identity", driver.stream_identity(DEVICE, StreamHandle::PER_THREAD));
    let here = identity();
    let there = thread::scope(|scope| scope.spawn(identity).join());
    match there {
        Ok(there) => assert_ne!(here, there, "two threads have one per-thread stream"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    assert_eq!(here, identity(), "this thread's stream changed");
}

pub(super) fn an_ordinary_stream_is_not_captured(driver: &dyn Driver) {
    let stream = Stream::new(driver);
    assert_eq!(ok("stream_capture", driver.stream_capture(DEVICE, stream.1)), Capture::None);
}

pub(super) fn a_stream_serves_every_thread(driver: &dyn Driver) {
    let (stream, other) = (Stream::new(driver), Stream::new(driver));
    let event = ok("event_create", driver.event_create(DEVICE));
    let has_identity = ok("capabilities", driver.capabilities(DEVICE)).stream_identity;
    let identity = || has_identity.then(|| ok("stream_identity", driver.stream_identity(DEVICE, stream.1)));
    let known = identity();
    // A fresh thread has no context, whichever of these it calls first.
    let calls: [&(dyn Fn() + Sync); 6] = [
        &|| assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "a fresh event has not passed"),
        &|| assert_eq!(ok("stream_capture", driver.stream_capture(DEVICE, stream.1)), Capture::None),
        &|| assert_eq!(identity(), known, "a stream has two numbers"),
        &|| ok("event_record", driver.event_record(DEVICE, event, stream.1)),
        &|| ok("stream_wait", driver.stream_wait(DEVICE, other.1, event)),
        &|| ok("stream_wait", driver.stream_wait(DEVICE, StreamHandle::PER_THREAD, event)),
    ];
    for call in calls {
        let done = thread::scope(|scope| scope.spawn(call).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, other.1));
    assert!(ok("event_passed", driver.event_passed(DEVICE, event)), "waited for, it has not passed");
    ok("event_destroy", driver.event_destroy(DEVICE, event));
    let beyond = DeviceId(driver.device_count());
    refused("stream_capture", ErrorKind::Invalid, driver.stream_capture(beyond, stream.1));
    refused("event_record", ErrorKind::Invalid, driver.event_record(beyond, event, stream.1));
}

pub(super) fn driver_pools_can_be_trimmed(driver: &dyn Driver) {
    if ok("capabilities", driver.capabilities(DEVICE)).driver_pools {
        ok("trim_driver_pools", driver.trim_driver_pools(DEVICE));
    } else {
        refused("trim_driver_pools", ErrorKind::Unsupported, driver.trim_driver_pools(DEVICE));
    }
}
