//! The scopes of every call, its errors, and the end of the process.

use forebay::driver::{Capture, Choice, ErrorKind, Event, open};
use forebay::units::{Address, DeviceId, StreamHandle};

use crate::calls::{ANYWHERE, RELAXED, ask, give_back};
use crate::fake::Fake;
use crate::{DEVICE, MIB, STREAM};

#[test]
#[ignore = "a_whole_libcuda runs it in a process of its own"]
fn child_whole() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let driver = &*driver;
    assert_eq!(driver.device_count(), 2);
    let calls = fake.calls();
    assert!(!calls.iter().any(|call| call.contains("Retain")), "opening made a context: {calls:?}");
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.vmm && found.stream_identity && found.driver_pools, "{found:?}");
    assert!(found.posix_fd && found.fabric && found.rdma && found.host_numa, "{found:?}");
    assert!(found.pool_fd && found.host_pools && found.managed_pools, "{found:?}");
    assert!(found.managed && found.legacy_ipc, "{found:?}");
    assert_eq!((found.granularity, found.version, found.numa_node), (2 * MIB, 13_000, Some(1)));
    assert!(!fake.calls().iter().any(|call| call.contains("Retain")), "asking for capabilities made a context");

    // Somebody else's context is current, and a capture mode set: both are as before after every call.
    for (context, mode) in [(0usize, 0usize), (0xd000, 1), (0xc046, 0)] {
        fake.set(b"fake_current", context);
        fake.set(b"fake_mode", mode);
        for (name, result) in ask(driver).into_iter().chain(give_back(driver)) {
            result.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!((fake.get(b"fake_get_current"), fake.get(b"fake_get_mode") & 0xff), (context, mode));
        let calls = fake.calls();
        let depth = if context == 0xc046 { 0 } else { 1 };
        for name in RELAXED {
            assert!(calls.contains(&format!("{name}:2:{depth}")), "{name} not in relaxed mode: {calls:?}");
        }
        // Refused where there is none, and then in the device's.
        let depth = usize::from(context == 0);
        for (name, needed) in ANYWHERE {
            let last = calls.iter().rfind(|call| call.starts_with(name));
            let wanted = format!("{name}:{}:{depth}", needed.unwrap_or(mode));
            assert_eq!(last, Some(&wanted), "{name} took the long way: {calls:?}");
        }
        assert_eq!(calls.iter().filter(|call| call.starts_with("cuMemPoolTrimTo")).count(), 3, "both pools, and one");
    }

    // Memory of the shared pool leaves the process and is reached by network cards where it can.
    driver.create(DEVICE, 2 * MIB).unwrap();
    assert_eq!(fake.said(), "bytes=2097152 type=1 handles=1 place=1:70 compression=0 rdma=1 usage=0");
    driver.grant(DeviceId(1), Address(2 * MIB), 2 * MIB).unwrap();
    assert_eq!(fake.said(), "1:71=3 ");
    driver.reserve(DEVICE, 4 * MIB).unwrap();
    assert_eq!(fake.said(), "bytes=4194304 alignment=2097152 hint=0 flags=0");

    // Streams: non-blocking, and captures have their number.
    assert_eq!(driver.stream_create(DEVICE).unwrap(), StreamHandle(0x5001));
    assert_eq!(driver.event_create(DEVICE).unwrap(), Event(0xe002));
    fake.set(b"fake_capture", 1);
    assert_eq!(driver.stream_capture(DEVICE, STREAM).unwrap(), Capture::Active(42));
    assert_eq!(driver.stream_capture(DEVICE, StreamHandle::LEGACY).unwrap_err().kind, ErrorKind::Capturing);
    fake.set(b"fake_capture", 0);
    assert_eq!(driver.stream_capture(DEVICE, StreamHandle::LEGACY).unwrap(), Capture::None);

    // An event for a device is recorded on its primary context, whichever is current; its refusal leaves no trace.
    for (device, context) in [(DEVICE, 0xc046), (DeviceId(1), 0xc047)] {
        driver.event_record_all(device, Event(0xe002)).unwrap();
        assert_eq!(fake.get(b"fake_recorded"), context << 16 | 0xe002);
    }
    fake.set(b"fake_current", 0xd000);
    fake.set(b"fake_mode", 1);
    fake.answer(c"cuCtxRecordEvent", 900);
    let error = driver.event_record_all(DEVICE, Event(0xe002)).unwrap_err();
    assert_eq!((error.kind, error.call), (ErrorKind::Capturing, "cuCtxRecordEvent"), "{error}");
    assert_eq!((fake.get(b"fake_get_current"), fake.get(b"fake_get_mode") & 0xff), (0xd000, 1));
    fake.answer(c"", 0);
    assert_eq!(driver.event_record_all(DeviceId(2), Event(0xe002)).unwrap_err().kind, ErrorKind::Invalid);

    // A default stream is the current context's, so the device's is entered first.
    fake.calls();
    driver.event_record(DEVICE, Event(0xe002), StreamHandle::PER_THREAD).unwrap();
    driver.event_record(DEVICE, Event(0xe002), StreamHandle::LEGACY).unwrap();
    let records = fake.calls().into_iter().filter(|call| call.starts_with("cuEventRecord"));
    assert!(records.eq(["cuEventRecord:1:1", "cuEventRecord:1:1"]), "not in the device's context");

    // Codes.
    fake.answer(c"cuEventQuery", 600);
    assert!(!driver.event_passed(DEVICE, Event(0xe000)).unwrap());
    fake.answer(c"cuStreamQuery", 600);
    assert!(!driver.stream_idle(DEVICE, STREAM).unwrap());
    fake.answer(c"cuEventRecord", 400);
    let error = driver.event_record(DEVICE, Event(0xe002), STREAM).unwrap_err();
    assert_eq!((error.kind, error.code), (ErrorKind::Invalid, 400), "{error}");
    for (name, code, kind, text) in [
        (c"cuMemCreate", 2, ErrorKind::OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY, asked for 2097152 bytes on device 0"),
        (c"cuMemCreate", 31_337, ErrorKind::Failed, "unknown CUDA error"),
        (c"cuThreadExchangeStreamCaptureMode", 900, ErrorKind::Capturing, "CAPTURE_UNSUPPORTED"),
        (c"cuCtxPushCurrent_v2", 709, ErrorKind::Deinitialized, "device 0"),
    ] {
        fake.set(b"fake_current", 0);
        fake.answer(name, code);
        let error = driver.create(DEVICE, 2 * MIB).unwrap_err();
        assert_eq!((error.kind, error.code), (kind, code), "{error}");
        assert!(error.detail.contains(text), "{error}");
        fake.answer(c"", 0);
        assert_eq!(fake.get(b"fake_get_current"), 0, "{name:?} left a context behind");
    }
    assert_eq!(driver.create(DEVICE, 2 * MIB + 1).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(driver.create(DeviceId(2), 2 * MIB).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(driver.stream_destroy(DEVICE, StreamHandle(2)).unwrap_err().kind, ErrorKind::Invalid);

    // The end of the process.
    fake.answer(c"*", 4);
    for (name, result) in give_back(driver) {
        result.unwrap_or_else(|error| panic!("{name} after the end: {error}"));
    }
    for (name, result) in ask(driver) {
        assert_eq!(result.expect_err(name).kind, ErrorKind::Deinitialized, "{name}");
    }
}
