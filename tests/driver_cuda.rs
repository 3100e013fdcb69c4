//! The CUDA driver against a libcuda made for the purpose: what no healthy GPU machine will show.
//!
//! A C library with libcuda's symbols is compiled and put first in the search path of a child process, which
//! runs one of the ignored tests below. It notes the context and the capture mode of each call, answers any
//! code it is told to, and can be built without the newer functions. Data and memory are not its business:
//! `driver_conformance.rs` has those, on a GPU.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay::driver::{Capture, Choice, Driver, ErrorKind, Event, Physical, open};
use forebay::units::{Address, DeviceId, StreamHandle};

const DEVICE: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;
const STREAM: StreamHandle = StreamHandle(0x5000);

/// Every call appends `name:mode:depth ` to the log, where depth counts contexts pushed on the thread.
const FAKE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
static char log_[1 << 16];
static char failing[64]; static int failing_code;
static int mode = 0, depth = 0, capturing = 0;
static void *current = 0;
const char *fake_log(void) { return log_; }
void fake_clear(void) { log_[0] = 0; }
void fake_answer(const char *name, int code) { strncpy(failing, name, 63); failing_code = code; }
void fake_current(void *context) { current = context; }
void *fake_get_current(void) { return current; }
void fake_mode(int m) { mode = m; }
int fake_get_mode(void) { return mode; }
void fake_capture(int c) { capturing = c; }
static int called(const char *name) {
  char line[128]; snprintf(line, sizeof line, "%s:%d:%d ", name, mode, depth); strcat(log_, line);
  return (!strcmp(failing, name) || !strcmp(failing, "*")) ? failing_code : 0;
}
#define F(name, args, ...) int name args { int wrong = called(#name); if (wrong) return wrong; __VA_ARGS__; return 0; }
int cuInit(unsigned f) { called("cuInit"); const char *c = getenv("FAKE_INIT"); return c ? atoi(c) : 0; }
F(cuDriverGetVersion, (int *v), *v = VERSION)
int cuGetErrorName(int code, const char **name) {
  *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" :
          code == 4 ? "CUDA_ERROR_DEINITIALIZED" : code == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : 0;
  return *name ? 0 : 1;
}
F(cuDeviceGet, (int *d, int o), *d = o + 70)
F(cuDeviceGetCount, (int *n), *n = getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 2)
F(cuDeviceGetAttribute, (int *v, int a, int d), *v = 1)
F(cuDevicePrimaryCtxRetain, (void **c, int d), *c = (void *)(u64)(0xc000 + d))
F(cuCtxGetCurrent, (void **c), *c = current)
static void *below[8];
F(cuCtxPushCurrent_v2, (void *c), below[depth++] = current; current = c)
F(cuCtxPopCurrent_v2, (void **c), *c = current; current = below[--depth])
F(cuCtxSynchronize, (void))
F(cuThreadExchangeStreamCaptureMode, (int *m), int old = mode; mode = *m; *m = old)
F(cuMemGetInfo_v2, (size_t *f, size_t *t), *f = 1 << 30; *t = 2 << 29)
F(cuMemAlloc_v2, (u64 *p, size_t n), *p = 0xa000)
F(cuMemFree_v2, (u64 p))
F(cuMemcpyAsync, (u64 t, u64 f, size_t n, void *s))
F(cuMemsetD8Async, (u64 t, unsigned char v, size_t n, void *s))
F(cuStreamCreate, (void **s, unsigned f), *s = (void *)(0x5000ull + f))
F(cuStreamDestroy_v2, (void *s))
F(cuStreamSynchronize, (void *s))
F(cuStreamWaitEvent, (void *s, void *e, unsigned f))
F(cuStreamIsCapturing, (void *s, int *c), *c = capturing)
F(cuEventCreate, (void **e, unsigned f), *e = (void *)(0xe000ull + f))
F(cuEventDestroy_v2, (void *e))
F(cuEventRecord, (void *e, void *s))
#ifndef BROKEN
F(cuEventQuery, (void *e))
#endif
F(cuEventSynchronize, (void *e))
F(cuMemGetAllocationGranularity, (size_t *g, void *p, unsigned o), *g = 2 << 20)
F(cuMemAddressReserve, (u64 *p, size_t n, size_t a, u64 h, u64 f), *p = 0x200000)
F(cuMemAddressFree, (u64 p, size_t n))
static unsigned seen[8];
unsigned fake_prop(int word) { return seen[word]; }
F(cuMemCreate, (u64 *h, size_t n, void *p, u64 f), *h = 0x77; memcpy(seen, p, 32))
F(cuMemRelease, (u64 h))
F(cuMemMap, (u64 p, size_t n, size_t o, u64 h, u64 f))
F(cuMemUnmap, (u64 p, size_t n))
F(cuMemSetAccess, (u64 p, size_t n, void *d, size_t c), memcpy(seen, d, 12))
#ifndef OLD
F(cuDeviceGetDefaultMemPool, (void **p, int d), *p = (void *)0xb0)
F(cuDeviceGetMemPool, (void **p, int d), *p = (void *)0xb1)
F(cuMemPoolTrimTo, (void *p, size_t n))
F(cuStreamGetCaptureInfo_v2, (void *s, int *c, u64 *id, void *g, void *d, size_t *n), *c = capturing; *id = 42)
F(cuStreamGetId, (void *s, u64 *id), *id = 1000 + (u64)s)
static void *recorded;
void *fake_recorded(void) { return recorded; }
F(cuCtxRecordEvent, (void *c, void *e), recorded = (void *)((u64)c << 16 | (u64)e & 0xffff))
#endif
"#;

/// Compiles a libcuda into a directory of its own.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let (source, library) = (place.join("fake.c"), place.join("libcuda.so"));
    std::fs::write(&source, FAKE).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).args(flags);
    assert!(compile.status().expect("a C compiler").success(), "{compile:?}");
    place
}

/// Runs an ignored test of this file in a process that finds the library.
fn run(test: &str, library: &Path, environment: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    child.env("LD_LIBRARY_PATH", library).env("FAKE_LIBRARY", library.join("libcuda.so"));
    child.envs(environment.iter().copied());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
    let _ = std::fs::remove_dir_all(library);
}

#[test]
fn a_whole_libcuda() {
    run("child_whole", &build("whole", &["-DVERSION=13000"]), &[]);
}

#[test]
fn a_libcuda_from_before_the_newer_functions() {
    run("child_old", &build("old", &["-DVERSION=11010", "-DOLD"]), &[]);
}

#[test]
fn a_libcuda_that_lacks_what_every_one_has() {
    run("child_broken", &build("broken", &["-DVERSION=10000", "-DBROKEN"]), &[("EXPECT", "cuEventQuery")]);
}

#[test]
fn a_libcuda_without_a_device() {
    let library = |name| build(name, &["-DVERSION=13000"]);
    run("child_broken", &library("init"), &[("FAKE_INIT", "100"), ("EXPECT", "CUDA_ERROR_NO_DEVICE")]);
    run("child_broken", &library("none"), &[("FAKE_DEVICES", "0"), ("EXPECT", "sees no device")]);
    run("child_broken", &library("unknown"), &[("FAKE_INIT", "54321"), ("EXPECT", "54321")]);
}

// ---- in the child --------------------------------------------------------------------------------------

/// The fake's own functions.
struct Fake(libloading::Library);

impl Fake {
    fn load() -> Self {
        let path = std::env::var_os("FAKE_LIBRARY").expect("run by its parent test");
        // SAFETY: our own library, without initialisers.
        Self(unsafe { libloading::Library::new(path) }.unwrap())
    }

    /// The calls since the last time, as `name:mode:depth`.
    fn calls(&self) -> Vec<String> {
        // SAFETY: the types are those of the source above.
        unsafe {
            let log = self.0.get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(b"fake_log").unwrap();
            let text = std::ffi::CStr::from_ptr(log()).to_string_lossy().into_owned();
            self.0.get::<unsafe extern "C" fn()>(b"fake_clear").unwrap()();
            text.split_whitespace().map(str::to_owned).collect()
        }
    }

    fn answer(&self, name: &std::ffi::CStr, code: i32) {
        // SAFETY: as above.
        unsafe {
            let answer = self.0.get::<unsafe extern "C" fn(*const std::ffi::c_char, i32)>(b"fake_answer").unwrap();
            answer(name.as_ptr(), code);
        }
    }

    fn set(&self, name: &[u8], value: usize) {
        // SAFETY: as above; an `int` and a pointer are passed alike.
        unsafe { self.0.get::<unsafe extern "C" fn(usize)>(name).unwrap()(value) }
    }

    fn get(&self, name: &[u8]) -> usize {
        // SAFETY: as above; the numbers asked for are small or pointers of 16 bits.
        unsafe { self.0.get::<unsafe extern "C" fn() -> usize>(name).unwrap()() }
    }

    fn property(&self, word: i32) -> u32 {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn(i32) -> u32>(b"fake_prop").unwrap()(word) }
    }
}

/// Every call that gives something back.
fn give_back(driver: &dyn Driver) -> [(&'static str, forebay::driver::Result<()>); 7] {
    [
        ("unreserve", driver.unreserve(DEVICE, Address(2 * MIB), 2 * MIB)),
        ("release", driver.release(DEVICE, Physical(0x77))),
        ("unmap", driver.unmap(DEVICE, Address(2 * MIB), 2 * MIB)),
        ("free", driver.free(DEVICE, Address(0xa000))),
        ("stream_destroy", driver.stream_destroy(DEVICE, STREAM)),
        ("event_destroy", driver.event_destroy(DEVICE, Event(0xe000))),
        ("trim_driver_pools", driver.trim_driver_pools(DEVICE)),
    ]
}

/// Every call that asks for something.
fn ask(driver: &dyn Driver) -> Vec<(&'static str, forebay::driver::Result<()>)> {
    let (at, bytes, event) = (Address(2 * MIB), 2 * MIB, Event(0xe000));
    vec![
        ("memory_info", driver.memory_info(DEVICE).map(drop)),
        ("reserve", driver.reserve(DEVICE, bytes).map(drop)),
        ("create", driver.create(DEVICE, bytes).map(drop)),
        ("map", driver.map(DEVICE, at, bytes, Physical(0x77))),
        ("grant", driver.grant(DEVICE, at, bytes)),
        ("allocate", driver.allocate(DEVICE, bytes).map(drop)),
        ("stream_create", driver.stream_create(DEVICE).map(drop)),
        ("stream_synchronize", driver.stream_synchronize(DEVICE, STREAM)),
        ("stream_identity", driver.stream_identity(DEVICE, STREAM).map(drop)),
        ("stream_capture", driver.stream_capture(DEVICE, STREAM).map(drop)),
        ("event_create", driver.event_create(DEVICE).map(drop)),
        ("event_record", driver.event_record(DEVICE, event, STREAM)),
        ("event_record_all", driver.event_record_all(DEVICE, event)),
        ("event_passed", driver.event_passed(DEVICE, event).map(drop)),
        ("event_wait", driver.event_wait(DEVICE, event)),
        ("stream_wait", driver.stream_wait(DEVICE, STREAM, event)),
        ("synchronize", driver.synchronize(DEVICE)),
        ("copy", driver.copy(DEVICE, at, Address(0xa000), 8, STREAM)),
        ("fill", driver.fill(DEVICE, at, 1, 8, STREAM)),
    ]
}

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
    assert_eq!((found.granularity, found.version), (2 * MIB, 13_000));
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
        for name in [
            "cuMemGetInfo_v2",
            "cuMemAlloc_v2",
            "cuMemFree_v2",
            "cuEventQuery",
            "cuEventSynchronize",
            "cuStreamSynchronize",
            "cuCtxSynchronize",
            "cuCtxRecordEvent",
            "cuMemPoolTrimTo",
            "cuMemCreate",
            "cuMemUnmap",
        ] {
            assert!(calls.contains(&format!("{name}:2:{depth}")), "{name} not in relaxed mode: {calls:?}");
        }
        for name in ["cuEventRecord", "cuStreamIsCapturing", "cuStreamWaitEvent", "cuStreamGetId"] {
            assert!(calls.contains(&format!("{name}:{mode}:{depth}")), "{name} took the long way: {calls:?}");
        }
        assert_eq!(calls.iter().filter(|call| call.starts_with("cuMemPoolTrimTo")).count(), 2, "both pools");
    }

    // The properties, as libcuda reads them: type, handle types, location, and the byte for RDMA.
    driver.create(DEVICE, 2 * MIB).unwrap();
    assert_eq!([0, 1, 2, 3].map(|word| fake.property(word)), [1, 1, 1, 70]);
    assert_eq!(fake.property(6) & 0xffff, 0x0100, "not compressed, RDMA");
    driver.grant(DeviceId(1), Address(2 * MIB), 2 * MIB).unwrap();
    assert_eq!([0, 1, 2].map(|word| fake.property(word)), [1, 71, 3]);

    // Streams: non-blocking, and captures have their number.
    assert_eq!(driver.stream_create(DEVICE).unwrap(), StreamHandle(0x5001));
    assert_eq!(driver.event_create(DEVICE).unwrap(), Event(0xe002));
    fake.set(b"fake_capture", 1);
    assert_eq!(driver.stream_capture(DEVICE, STREAM).unwrap(), Capture::Active(42));
    assert_eq!(driver.stream_capture(DEVICE, StreamHandle::LEGACY).unwrap(), Capture::None);
    fake.set(b"fake_capture", 0);

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

    // Codes.
    fake.answer(c"cuEventQuery", 600);
    assert!(!driver.event_passed(DEVICE, Event(0xe000)).unwrap());
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
        // The legacy stream aside, every question reaches the driver.
        assert_eq!(result.expect_err(name).kind, ErrorKind::Deinitialized, "{name}");
    }
}

#[test]
#[ignore = "a_libcuda_from_before_the_newer_functions runs it in a process of its own"]
fn child_old() {
    let fake = Fake::load();
    let driver = open(Choice::Cuda).unwrap();
    let found = driver.capabilities(DEVICE).unwrap();
    assert!(found.vmm && !found.stream_identity && !found.driver_pools, "{found:?}");
    fake.set(b"fake_capture", 1);
    for (error, text) in [
        (driver.stream_identity(DEVICE, STREAM).unwrap_err(), "needs driver API 12.0 or newer, this is 11.1"),
        (driver.event_record_all(DEVICE, Event(0xe000)).unwrap_err(), "needs driver API 12.5 or newer, this is 11.1"),
        (driver.trim_driver_pools(DEVICE).unwrap_err(), "needs driver API 11.2 or newer, this is 11.1"),
        (driver.stream_capture(DEVICE, STREAM).unwrap_err(), "needs driver API 11.3 or newer, this is 11.1"),
    ] {
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::Unsupported, text));
    }
}

#[test]
#[ignore = "its parents run it in a process of its own"]
fn child_broken() {
    let expected = std::env::var("EXPECT").expect("run by its parent test");
    let error = open(Choice::Cuda).expect_err("CUDA is unusable");
    assert_eq!(error.kind, ErrorKind::NoDriver, "{error}");
    let text = error.to_string();
    assert!(text.contains(&expected) && text.contains("FOREBAY_DRIVER=host"), "{text}");
}
