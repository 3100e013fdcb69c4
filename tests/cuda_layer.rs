//! The CUDA layer on a libcuda that lacks or refuses one function: each in turn.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use std::fmt::Debug;
use std::os::fd::AsFd;

use forebay::driver::{
    Access, Choice, DriverError, ErrorKind, HostFlags, PhysicalOptions, Place, PoolAttribute, PoolOptions, Result,
    Share, open,
};
use forebay::units::{Address, StreamHandle};

use kit::driver::{HOME as DEVICE, PEER};
use kit::memory::MIB;
use kit::process::{role, say};
use kit::programs::says;
use kit::standin::{Libcuda, Shape, Standin, functions};

#[test]
#[ignore = "its parents run it in a process of its own"]
fn child_opens() {
    match open(Choice::Cuda) {
        Ok(driver) => say(format!("{:?}", driver.capabilities(DEVICE).unwrap())),
        Err(error) => say(format!("{:?} {error}", error.kind)),
    }
}

/// What a process with this libcuda finds.
fn found(libcuda: &Libcuda) -> String {
    let text = says(libcuda.serve(&mut role("child_opens")), "1 passed");
    text.lines().find_map(|line| line.split_once("SAYS: ")).unwrap().1.into()
}

#[test]
fn a_group_of_functions_is_there_as_a_whole_or_not_at_all() {
    let whole = found(&Libcuda::new("all"));
    // Each is seen elsewhere than in capabilities.
    let unseen = ["PartUuid", "CaptureInfo"];
    for (group, names) in functions().into_iter().filter(|(group, _)| *group != "Base") {
        let without_it = found(&Libcuda::new(group).without(&names));
        assert_eq!(without_it == whole, unseen.contains(&group), "{group}");
        let libcuda = Libcuda::new(group);
        for name in names {
            libcuda.take(name);
            assert_eq!(found(&libcuda), without_it, "without {name} alone");
            libcuda.put_back(name);
        }
    }
}

#[test]
fn a_libcuda_that_lacks_what_every_one_has_is_refused_by_its_name() {
    let (_, names) = functions().remove(0);
    let libcuda = Libcuda::new("base");
    for name in names {
        libcuda.take(name);
        let text = found(&libcuda);
        assert!(text.starts_with("NoDriver ") && text.contains(&format!("libcuda lacks {name}:")), "{name}: {text}");
        libcuda.put_back(name);
    }
}

/// Calls on the stand-in, of which one is refused.
struct Calls {
    standin: Standin,
    /// The function, as errors name it.
    refused: String,
    seen: u32,
}

impl Calls {
    /// Makes a call that must succeed, at the second time where it was refused. `None` where the device cannot do it.
    #[track_caller]
    fn make<T: Debug>(&mut self, call: impl Fn(&Standin) -> Result<T>) -> Option<T> {
        let first = call(&self.standin);
        self.is_as_before();
        let error = match first {
            Ok(value) => return Some(value),
            Err(error) if error.kind == ErrorKind::Unsupported && error.code == 0 => return None,
            Err(error) => error,
        };
        self.see(&error);
        Some(call(&self.standin).unwrap())
    }

    /// Makes a call that fails, refused or not.
    #[track_caller]
    fn fails<T: Debug>(&mut self, call: impl Fn(&Standin) -> Result<T>) {
        let error = call(&self.standin).unwrap_err();
        self.is_as_before();
        if error.code == REFUSED {
            self.see(&error);
        }
    }

    #[track_caller]
    fn is_as_before(&self) {
        let thread = self.standin.thread();
        assert!(thread == (0, 0) || self.refused == "cuCtxPopCurrent", "contexts and capture mode left: {thread:?}");
    }

    #[track_caller]
    fn see(&mut self, error: &DriverError) {
        assert_eq!((error.call, error.code), (self.refused.as_str(), REFUSED), "{error}");
        self.seen += 1;
        assert_eq!(self.seen, 1, "refused once, and reported twice");
    }
}

const REFUSED: i32 = 999;

fn standin() -> Result<Standin> {
    Standin::new(&Shape { capacity: 64 * MIB, granularity: 2 * MIB, has_vmm: true, is_held_back: false })
}

#[test]
#[ignore = "its parent runs it in a process of its own"]
fn child_is_refused() {
    let refused = std::env::var("STANDIN_REFUSE").unwrap();
    let refused = refused.split(':').next().unwrap().trim_end_matches("_v2").to_owned();
    let (standin, early) = match standin() {
        Ok(standin) => (standin, None),
        Err(error) => (self::standin().unwrap(), Some(error)),
    };
    let mut calls = Calls { standin, refused, seen: 0 };
    early.iter().for_each(|error| calls.see(error));
    every_call(&mut calls);
    assert!(calls.standin.is_idle(), "something is left");
    say(format!("refused {}", calls.seen));
}

/// Every function of libcuda that the layer looks up.
fn every_call(calls: &mut Calls) {
    devices(calls);
    streams(calls);
    plain_and_host_memory(calls);
    virtual_memory(calls);
    pools(calls);
}

fn devices(calls: &mut Calls) {
    calls.make(|on| on.driver.capabilities(DEVICE));
    calls.make(|on| on.driver.device_uuid(DEVICE));
    calls.make(|on| on.driver.can_access_peer(DEVICE, PEER));
    calls.make(|on| on.driver.memory_info(DEVICE));
    calls.make(|on| on.driver.synchronize(DEVICE));
}

fn streams(calls: &mut Calls) {
    let stream = calls.make(|on| on.driver.stream_create(DEVICE)).unwrap();
    let event = calls.make(|on| on.driver.event_create(DEVICE)).unwrap();
    calls.make(|on| on.driver.event_record(DEVICE, event, stream));
    calls.make(|on| on.driver.event_record(DEVICE, event, StreamHandle::LEGACY));
    calls.make(|on| on.driver.event_record_all(DEVICE, event));
    calls.make(|on| on.driver.event_passed(DEVICE, event));
    calls.make(|on| on.driver.event_wait(DEVICE, event));
    calls.make(|on| on.driver.stream_wait(DEVICE, stream, event));
    calls.make(|on| on.driver.stream_idle(DEVICE, stream));
    calls.make(|on| on.driver.stream_identity(DEVICE, stream));
    calls.make(|on| on.driver.stream_capture(DEVICE, stream));
    calls.standin.begin_capture(stream);
    calls.make(|on| on.driver.stream_capture(DEVICE, stream));
    calls.standin.end_capture(stream);
    calls.make(|on| on.driver.stream_synchronize(DEVICE, stream));
    // These two have no error to report.
    calls.standin.driver.stream_device(DEVICE, stream);
    calls.standin.driver.current_device();
    calls.is_as_before();
    calls.make(|on| on.driver.event_destroy(DEVICE, event));
    calls.make(|on| on.driver.stream_destroy(DEVICE, stream));
}

fn plain_and_host_memory(calls: &mut Calls) {
    let at = calls.make(|on| on.driver.allocate(DEVICE, MIB)).unwrap();
    for width in [1, 2, 4] {
        calls.make(|on| on.driver.fill_pattern(DEVICE, at, 7, width, MIB, StreamHandle::LEGACY));
    }
    calls.make(|on| on.driver.copy(DEVICE, at, at.plus(4096), 4096, StreamHandle::LEGACY));
    calls.make(|on| on.driver.pointer(DEVICE, at));
    if let Some(blob) = calls.make(|on| on.driver.ipc_export(DEVICE, at)) {
        // What is this process's own cannot be opened here.
        calls.fails(|on| on.driver.ipc_open(DEVICE, &blob));
        calls.fails(|on| on.driver.ipc_close(DEVICE, at));
    }
    calls.make(|on| on.driver.free(DEVICE, at));
    let at = calls.make(|on| on.driver.managed_allocate(DEVICE, MIB)).unwrap();
    calls.make(|on| on.driver.free(DEVICE, at));
    let mapped = HostFlags { mapped: true, ..HostFlags::default() };
    let at = calls.make(|on| on.driver.host_allocate(DEVICE, MIB, mapped)).unwrap();
    calls.make(|on| on.driver.host_device_address(DEVICE, at));
    calls.make(|on| on.driver.host_free(DEVICE, at));
    let own = vec![0_u8; 8192];
    let at = Address(own.as_ptr() as u64);
    calls.make(|on| on.driver.host_register(DEVICE, at, 8192, mapped));
    calls.make(|on| on.driver.host_unregister(DEVICE, at));
}

fn virtual_memory(calls: &mut Calls) {
    let place = Place::Device(DEVICE);
    let Some(at) = calls.make(|on| on.driver.reserve(DEVICE, 2 * MIB)) else { return };
    let options = PhysicalOptions { place, share: Share::Fd, rdma: false };
    calls.make(|on| on.driver.granularity(DEVICE, &options, true));
    let physical = calls.make(|on| on.driver.create_with(DEVICE, 2 * MIB, &options));
    let physical = physical.or_else(|| calls.make(|on| on.driver.create(DEVICE, 2 * MIB))).unwrap();
    calls.make(|on| on.driver.map(DEVICE, at, 2 * MIB, physical));
    calls.make(|on| on.driver.grant(DEVICE, at, 2 * MIB));
    calls.make(|on| on.driver.grant_access(DEVICE, at, 2 * MIB, &[(place, Access::ReadWrite)]));
    if let Some(fd) = calls.make(|on| on.driver.export_fd(DEVICE, physical)) {
        let imported = calls.make(|on| on.driver.import_fd(DEVICE, fd.as_fd())).unwrap();
        calls.make(|on| on.driver.release(DEVICE, imported));
    }
    calls.make(|on| on.driver.unmap(DEVICE, at, 2 * MIB));
    calls.make(|on| on.driver.release(DEVICE, physical));
    calls.make(|on| on.driver.unreserve(DEVICE, at, 2 * MIB));
}

fn pools(calls: &mut Calls) {
    let (place, stream) = (Place::Device(DEVICE), StreamHandle::LEGACY);
    calls.make(|on| on.driver.trim_driver_pools(DEVICE));
    calls.make(|on| on.driver.pool_default(DEVICE, Some(Place::HostNuma(0)), false));
    calls.make(|on| on.driver.pool_current(DEVICE, Some(Place::HostNuma(0)), false));
    let shared = PoolOptions { place: Some(place), managed: false, share: true, max_size: 0 };
    let Some(pool) = calls.make(|on| on.driver.pool_create(DEVICE, &shared)) else { return };
    let threshold = PoolAttribute::ReleaseThreshold;
    calls.make(|on| on.driver.pool_set_attribute(DEVICE, pool, threshold, 0));
    calls.make(|on| on.driver.pool_attribute(DEVICE, pool, threshold));
    calls.make(|on| on.driver.pool_place(DEVICE, pool));
    calls.make(|on| on.driver.pool_access(DEVICE, pool, place));
    calls.make(|on| on.driver.pool_set_access(DEVICE, pool, place, Access::ReadWrite));
    let at = calls.make(|on| on.driver.pool_allocate(DEVICE, pool, MIB, stream)).unwrap();
    if let Some(fd) = calls.make(|on| on.driver.pool_export_fd(DEVICE, pool)) {
        let imported = calls.make(|on| on.driver.pool_import_fd(DEVICE, fd.as_fd())).unwrap();
        let blob = calls.make(|on| on.driver.pool_export_pointer(DEVICE, at)).unwrap();
        let seen = calls.make(|on| on.driver.pool_import_pointer(DEVICE, imported, &blob)).unwrap();
        calls.make(|on| on.driver.pool_free(DEVICE, seen, stream));
        calls.make(|on| on.driver.pool_destroy(DEVICE, imported));
    }
    calls.make(|on| on.driver.pool_free(DEVICE, at, stream));
    calls.make(|on| on.driver.stream_synchronize(DEVICE, stream));
    calls.make(|on| on.driver.pool_trim(DEVICE, pool, 0));
    calls.make(|on| on.driver.pool_destroy(DEVICE, pool));
}

/// Functions of whose refusal no caller hears: what they say counts as unknown, or another function says it, or they
/// undo what the call did to the thread.
const UNHEARD: [&str; 7] = [
    "cuGetErrorName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuCtxGetDevice",
    "cuStreamGetCtx",
    "cuMemGetAllocationGranularity",
    "cuCtxPopCurrent_v2",
];

#[test]
fn a_refused_function_is_reported_by_its_name_and_changes_nothing() {
    let libcuda = Libcuda::new("refusals");
    for name in functions().into_iter().flat_map(|(_, names)| names) {
        let refusal = format!("{name}:1={REFUSED}");
        let mut child = role("child_is_refused");
        child.env("STANDIN_REFUSE", &refusal).env("STANDIN_DEVICES", "2");
        let reported = u32::from(!UNHEARD.contains(&name));
        let text = says(libcuda.serve(&mut child), "1 passed");
        assert!(
            text.contains(&format!("SAYS: refused {reported}\n")),
            "{refusal}: not reported {reported} times: {text}"
        );
    }
}
