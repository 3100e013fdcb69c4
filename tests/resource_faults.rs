//! A fault on every driver call in turn, under resources, buffers and sharing: the call that failed says so and changed
//! nothing, the same call works when it is made again, and nothing leaks.
//!
//! Two host drivers stand for two processes: what the first one exports, the second one imports.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay::driver::host::{Call, HostDriver, HostOptions, Usage};
use forebay::driver::{Access, Driver, HostFlags, Place, PoolAttribute, VirtualMemory};
use forebay::resource::buffer::{
    Buffer, BufferInfo, From, Owner, export, export_foreign, export_legacy, export_pointer,
};
use forebay::resource::driver_pool::{self, DeviceOptions, ManagedOptions, PinnedOptions, Source};
use forebay::resource::memory_resource::{Kind, MemoryResource};
use forebay::resource::own_pool::OwnPool;
use forebay::resource::plain::{Plain, PlainResource};
use forebay::resource::sharing::serve;
use forebay::resource::virtual_memory::{VirtualLocation, VirtualOptions, VirtualResource};
use forebay::resource::{Error, Options, Pool, Result};
use forebay::units::{Address, DeviceId, StreamHandle};

const HOME: DeviceId = DeviceId(0);
const LEGACY: StreamHandle = StreamHandle::LEGACY;
const GRANULE: u64 = 64 << 10;
const BYTES: u64 = 3 * GRANULE;

/// Descriptors and mappings are the whole process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn small() -> HostOptions {
    HostOptions {
        devices: 2,
        granularity: GRANULE,
        capacity: 2 << 20,
        host_capacity: 64 << 20,
        ..HostOptions::default()
    }
}

/// Open descriptors, and mappings of the host drivers' memory.
fn of_process() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("memfd:forebay-host")).count())
}

/// Threads of the exchange close their descriptors in their own time.
#[track_caller]
fn becomes<T: PartialEq + std::fmt::Debug>(what: &str, right: &T, now: impl Fn() -> T) {
    let started = Instant::now();
    while now() != *right && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(now(), *right, "{what}");
}

// ---- a run ---------------------------------------------------------------------------------------------

/// A buffer that is open, and what must be in it.
struct Live {
    buffer: Arc<Buffer>,
    info: BufferInfo,
    byte: u8,
}

struct Run {
    home: Arc<HostDriver>,
    away: Arc<HostDriver>,
    /// What the calls that failed said.
    failures: Vec<Error>,
    live: Vec<Live>,
    /// Whether a failed call must leave the driver as it was. A pool of Forebay's own may keep what it made.
    strict: bool,
    /// Whether pools of the driver are in use, which keep what is idle.
    pooled: bool,
    /// No fault is planned: what has a way round a failure need not go it.
    calm: bool,
}

type Resource = Arc<dyn MemoryResource>;

impl Run {
    fn home(&self) -> Arc<dyn Driver> {
        self.home.clone()
    }

    fn away(&self) -> Arc<dyn Driver> {
        self.away.clone()
    }

    /// Makes the call until it works. One that fails changed nothing.
    #[track_caller]
    fn until_done<T>(&mut self, what: &str, call: impl Fn() -> Result<T>) -> T {
        for _ in 0..4 {
            let usage = || [&self.home, &self.away].map(|driver| self.figures(driver));
            let before = (usage(), of_process());
            match call() {
                Ok(value) => return value,
                Err(error) => {
                    assert!(error.to_string().contains("planned fault"), "{what} failed by itself: {error}");
                    if self.strict {
                        becomes(&format!("left by {what}, which failed: {error}"), &before, || (usage(), of_process()));
                    }
                    self.failures.push(error);
                }
            }
            self.check(what);
        }
        panic!("{what} fails again and again: {:?}", self.failures);
    }

    fn figures(&self, driver: &HostDriver) -> Usage {
        let usage = driver.usage();
        if self.pooled { Usage { bytes: 0, host_bytes: 0, ..usage } } else { usage }
    }

    /// Every open buffer is as it was.
    #[track_caller]
    fn check(&self, what: &str) {
        for Live { buffer, info, byte } in &self.live {
            assert_eq!(buffer.info(), *info, "after {what}");
            // SAFETY: open, of the host driver, mapped for the process, and nothing is queued.
            let bytes = unsafe { std::slice::from_raw_parts(info.at.0 as *const u8, info.bytes as usize) };
            assert!(bytes.iter().all(|found| found == byte), "after {what}: other bytes than {byte}");
        }
    }

    fn keep(&mut self, buffer: Arc<Buffer>, byte: u8) -> Arc<Buffer> {
        self.live.push(Live { buffer: Arc::clone(&buffer), info: buffer.info(), byte });
        self.check("a new buffer");
        buffer
    }

    #[track_caller]
    fn allocate(&mut self, resource: &Resource, bytes: u64, byte: u8) -> Arc<Buffer> {
        let buffer = self.until_done("allocate", || Buffer::allocate(resource, bytes, LEGACY));
        self.until_done("fill", || buffer.fill(byte.into(), 1, LEGACY));
        self.keep(Arc::new(buffer), byte)
    }

    fn place(&mut self, buffer: &Arc<Buffer>) -> &mut Live {
        self.live.iter_mut().find(|live| Arc::ptr_eq(&live.buffer, buffer)).unwrap()
    }

    #[track_caller]
    fn fill(&mut self, buffer: &Arc<Buffer>, byte: u8) {
        self.until_done("fill", || buffer.fill(u32::from_le_bytes([byte; 4]), 4, LEGACY));
        self.place(buffer).byte = byte;
        self.check("fill");
    }

    #[track_caller]
    fn copy_into(&mut self, target: &Arc<Buffer>, source: &Arc<Buffer>) {
        self.until_done("copy", || target.copy_from(source, LEGACY));
        self.place(target).byte = self.place(source).byte;
        self.check("copy");
    }

    /// Grows or shrinks; answers whether it moved.
    #[track_caller]
    fn modify(&mut self, resource: &Resource, buffer: &Arc<Buffer>, bytes: u64) -> bool {
        let (before, byte) = (buffer.info(), self.place(buffer).byte);
        self.until_done("modify", || buffer.modify(resource, bytes, None, LEGACY));
        let after = buffer.info();
        assert_eq!((after.bytes, after.is_closed), (bytes, false));
        let kept = before.bytes.min(bytes);
        // SAFETY: as in `check`.
        let found = unsafe { std::slice::from_raw_parts(after.at.0 as *const u8, kept as usize) };
        assert!(found.iter().all(|found| *found == byte), "contents are lost");
        self.live.retain(|live| !Arc::ptr_eq(&live.buffer, buffer));
        self.until_done("fill", || buffer.fill(byte.into(), 1, LEGACY));
        self.keep(Arc::clone(buffer), byte);
        after.at != before.at
    }

    #[track_caller]
    fn close(&mut self, buffer: &Arc<Buffer>) {
        self.until_done("close", || buffer.close(Some(LEGACY)));
        self.live.retain(|live| !Arc::ptr_eq(&live.buffer, buffer));
        buffer.close(None).unwrap();
        self.check("close");
    }

    /// Whoever forgets to close.
    fn drop_open(&mut self, buffer: Arc<Buffer>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.buffer, &buffer));
        assert_eq!(Arc::strong_count(&buffer), 1);
        drop(buffer);
        self.check("drop");
    }

    /// What every resource does: buffers, copies, tensors, pointers.
    fn life(&mut self, resource: &Resource) {
        let first = self.allocate(resource, BYTES, 1);
        let copy = self.until_done("copy", || first.copy(LEGACY));
        let second = self.keep(Arc::new(copy), 1);
        self.fill(&second, 2);
        self.copy_into(&first, &second);
        let tensor = self.until_done("to DLPack", || export(&first)) as usize;
        let legacy = self.until_done("to DLPack", || export_legacy(&second)) as usize;
        self.close(&first);
        self.drop_open(second);
        let (tensor, legacy) =
            (tensor as *mut dlpark::ffi::DLManagedTensorVersioned, legacy as *mut dlpark::ffi::DLManagedTensor);
        // SAFETY: tensors made just above, deleted once.
        unsafe {
            (*tensor).deleter.unwrap()(tensor);
            (*legacy).deleter.unwrap()(legacy);
        }
        let pointer = self.until_done("allocate", || resource.allocate(BYTES, LEGACY));
        let driver = self.home();
        let wrapped = self.until_done("from_handle", || {
            let from = From::Resource(Arc::clone(resource));
            Buffer::from_handle(&driver, pointer, BYTES, from, LEGACY)
        });
        drop(wrapped);
        let pointer = self.until_done("allocate", || resource.allocate(BYTES, LEGACY));
        self.until_done("deallocate", || resource.deallocate(pointer, BYTES, LEGACY));
        self.until_done("trim", || resource.trim(0));
    }

    fn attributes(&mut self, resource: &Resource) {
        self.until_done("attribute", || resource.attribute(PoolAttribute::UsedHigh));
        self.until_done("set_attribute", || resource.set_attribute(PoolAttribute::UsedHigh, 0));
        let peer = DeviceId(1);
        self.until_done("peer_access", || resource.peer_access(peer));
        self.until_done("set_peer_access", || resource.set_peer_access(peer, Access::ReadWrite));
        assert_eq!(self.until_done("peer_access", || resource.peer_access(peer)), Access::ReadWrite);
    }

    fn end(&mut self, resource: &Resource) {
        let last = self.allocate(resource, BYTES, 9);
        self.until_done("close", || resource.close());
        assert!(matches!(resource.allocate(BYTES, LEGACY), Err(Error::Closed(_))));
        self.close(&last);
    }
}

// ---- scenarios -----------------------------------------------------------------------------------------

/// A pool of the driver, and the other side of it.
fn shared_pool(run: &mut Run, kind: Kind) {
    run.pooled = true;
    let home = run.home();
    let resource = run.until_done("create", || match kind {
        Kind::Device => {
            driver_pool::device(home.clone(), 0, DeviceOptions { source: Source::New, ipc: true, max_size: 0 })
        }
        _ => driver_pool::pinned(
            home.clone(),
            PinnedOptions { source: Source::New, ipc: true, ..PinnedOptions::default() },
        ),
    });
    run.attributes(&resource);
    run.life(&resource);
    let (fd, uuid) = run.until_done("export", || {
        let pool = resource.as_driver_pool().unwrap();
        pool.allocation_handle(|fd, uuid| (fd.try_clone_to_owned().unwrap(), uuid))
    });
    let buffer = run.allocate(&resource, BYTES, 3);
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let away = run.away();
    let mapped = run.until_done("import of a pool", || {
        driver_pool::from_allocation_handle(away.clone(), kind, 0, std::os::fd::AsFd::as_fd(&fd), Some(uuid))
    });
    let mapped: Resource = mapped;
    for by_drop in [false, true] {
        let import = || Buffer::from_ipc_descriptor(&away, Some(&mapped), &descriptor, LEGACY);
        let imported = run.until_done("import", import);
        let imported = run.keep(Arc::new(imported), 3);
        run.fill(&imported, 3);
        if by_drop { run.drop_open(imported) } else { run.close(&imported) }
    }
    if kind == Kind::Device {
        run.until_done("close", || mapped.close());
    }
    drop((mapped, fd));
    run.close(&buffer);
    run.end(&resource);
}

fn device_pool(run: &mut Run) {
    shared_pool(run, Kind::Device);
}

fn pinned_pool(run: &mut Run) {
    shared_pool(run, Kind::Pinned);
}

/// Resources that are dropped without having been closed, or that are not owned.
fn unshared_pools(run: &mut Run) {
    run.pooled = true;
    let home = run.home();
    let managed = run.until_done("create", || {
        driver_pool::managed(home.clone(), ManagedOptions { source: Source::New, ..ManagedOptions::default() })
    });
    run.life(&managed);
    // What the driver makes for itself when first asked stays.
    let _ = home.pool_default(HOME, Some(Place::Device(HOME)), false);
    let _ = home.pool_default(HOME, Some(Place::Host), false);
    let current = run.until_done("create", || driver_pool::device(home.clone(), 0, DeviceOptions::default()));
    let of_host = run.until_done("create", || driver_pool::pinned(home.clone(), PinnedOptions::default()));
    let (first, second) = (run.allocate(&current, BYTES, 1), run.allocate(&of_host, BYTES, 2));
    run.copy_into(&first, &second);
    run.close(&first);
    run.drop_open(second);
    for resource in [current, of_host] {
        // The driver's own pools keep what is idle.
        run.until_done("trim", || resource.trim(0));
    }
    let forgotten = run.allocate(&managed, BYTES, 3);
    drop(managed);
    run.drop_open(forgotten);
}

fn plain(run: &mut Run) {
    let home = run.home();
    for what in [Plain::Managed, Plain::Host(HostFlags { mapped: true, ..HostFlags::default() })] {
        let resource = run.until_done("create", || PlainResource::new(home.clone(), 0, what));
        let resource: Resource = Arc::new(resource);
        run.life(&resource);
        run.end(&resource);
    }
    // Memory that belongs to somebody else, and plain memory for the legacy way.
    let told = Arc::new(Mutex::new(0));
    let mut data = vec![7u8; BYTES as usize];
    let at = Address(data.as_mut_ptr() as u64);
    let wrapped = run.until_done("from_handle", || {
        let told = Arc::clone(&told);
        let owner = Owner::new(move || *told.lock().unwrap() += 1);
        Buffer::from_handle(&home, at, BYTES, From::Owner(owner), LEGACY)
    });
    let wrapped = run.keep(Arc::new(wrapped), 7);
    run.fill(&wrapped, 8);
    assert_eq!(*told.lock().unwrap(), 0);
    run.close(&wrapped);
    assert_eq!(*told.lock().unwrap(), 1);
    let at = run.until_done("allocate", || Ok(home.allocate(HOME, BYTES)?));
    run.until_done("export", || export_foreign(&home, at, BYTES));
    run.until_done("free", || Ok(home.free(HOME, at)?));
}

fn virtual_memory(run: &mut Run) {
    let (home, away) = (run.home(), run.away());
    // Memory of the host may be more than the device has, whose size says how many addresses are set aside.
    let options = VirtualOptions { location: VirtualLocation::HostNuma, ..VirtualOptions::default() };
    let headroom = small().capacity;
    let resource = run.until_done("create", || VirtualResource::new(home.clone(), 0, &options));
    let resource: Resource = Arc::new(resource);
    run.life(&resource);
    let buffer = run.allocate(&resource, GRANULE, 4);
    let moved = run.modify(&resource, &buffer, 3 * GRANULE);
    assert!(!moved || !run.calm, "in place");
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let fetched = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    let imported = run.keep(Arc::new(fetched), 4);
    let moved = run.modify(&resource, &buffer, headroom);
    assert!(!moved || !run.calm, "in place, up to the last address");
    run.modify(&resource, &buffer, headroom + 2 * GRANULE);
    // Behind all that it has, in one reservation or two, somebody else has an address.
    let start = buffer.info().at;
    let mut walls = Vec::new();
    for end in [headroom, headroom + 2 * GRANULE, 2 * headroom, 2 * (headroom + 2 * GRANULE)] {
        walls.extend(run.home.reserve_at(HOME, GRANULE, 0, start.plus(end)).ok());
    }
    let moved = run.modify(&resource, &buffer, 3 * headroom);
    assert!(moved || !run.calm, "it had to move");
    run.check("a move");
    for wall in walls {
        run.until_done("unreserve", || Ok(home.unreserve(HOME, wall, GRANULE)?));
    }
    for bytes in [headroom, headroom + GRANULE, 2 * GRANULE, 5 * GRANULE, GRANULE] {
        run.modify(&resource, &buffer, bytes);
    }
    // What was mapped before all this is still there.
    run.until_done("fill", || imported.fill(5, 1, LEGACY));
    run.place(&imported).byte = 5;
    run.place(&buffer).byte = 5;
    run.check("a write to memory of both");
    run.close(&imported);
    let descriptor = run.until_done("export", || buffer.ipc_descriptor());
    let again = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    let again = run.keep(Arc::new(again), 5);
    run.drop_open(again);
    // A pointer that nobody gives back ends with its resource.
    run.until_done("allocate", || resource.allocate(BYTES, LEGACY));
    run.end(&resource);
    run.drop_open(buffer);
}

fn own_pools(run: &mut Run) {
    let (home, away) = (run.home(), run.away());
    run.strict = false;
    let pinned = PinnedOptions { source: Source::New, own: true, ipc: true, ..PinnedOptions::default() };
    let pinned = run.until_done("create", || driver_pool::pinned(home.clone(), pinned));
    let pool = Pool::with_driver(home.clone(), Options::default()).unwrap();
    let of_pool: Resource = Arc::new(run.until_done("create", || OwnPool::new(Arc::clone(&pool), 0, 0)));
    for resource in [&pinned, &of_pool] {
        run.life(resource);
        let buffer = run.allocate(resource, 9 * GRANULE + 77, 3);
        let descriptor = run.until_done("export", || buffer.ipc_descriptor());
        let imported = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
        let imported = run.keep(Arc::new(imported), 3);
        run.close(&imported);
        run.until_done("attribute", || resource.attribute(PoolAttribute::ReservedCurrent));
        run.close(&buffer);
    }
    run.until_done("set_peer_access", || of_pool.set_peer_access(DeviceId(1), Access::Read));
    let block = run.allocate(&of_pool, 5 * GRANULE, 6);
    let descriptor = run.until_done("export", || export_pointer(&pool, block.info().at.plus(GRANULE)));
    let part = run.until_done("import", || Buffer::from_ipc_descriptor(&away, None, &descriptor, LEGACY));
    assert_eq!(part.info().bytes, 4 * GRANULE);
    let part = run.keep(Arc::new(part), 6);
    run.until_done("set_peer_access", || of_pool.set_peer_access(DeviceId(1), Access::None));
    run.drop_open(part);
    run.close(&block);
    run.end(&pinned);
}

// ---- a fault on each call ------------------------------------------------------------------------------

type Scenario = fn(&mut Run);
/// The kind of call, which one of them, and whether on the importing side.
type Fault = (Call, u64, bool);

/// Runs a scenario with a fault on the `nth` call of a kind on one of the two drivers; answers how often each made it.
fn run(name: &str, scenario: Scenario, fault: Option<Fault>) -> [Vec<u64>; 2] {
    let before = of_process();
    let (home, away) = (Arc::new(HostDriver::new(small()).unwrap()), Arc::new(HostDriver::new(small()).unwrap()));
    if let Some((call, nth, is_away)) = fault {
        if is_away { &away } else { &home }.fail(call, nth);
    }
    let (first, second) = (Arc::clone(&home), Arc::clone(&away));
    let mut run = Run {
        home: first,
        away: second,
        failures: Vec::new(),
        live: Vec::new(),
        strict: true,
        pooled: false,
        calm: fault.is_none(),
    };
    // On a thread of its own: what a pool remembers for a thread ends with that.
    std::thread::scope(|scope| scope.spawn(|| scenario(&mut run)).join()).unwrap();
    let failures = std::mem::take(&mut run.failures);
    assert!(run.live.is_empty(), "{name} leaves buffers open");
    drop(run);
    assert!(failures.len() <= usize::from(fault.is_some()), "{name}, {fault:?}: told too often: {failures:?}");
    for failure in &failures {
        let call = fault.map_or("", |(call, ..)| call.name());
        assert!(failure.to_string().contains(call), "{name}, {fault:?}: {failure}");
    }
    for driver in [&home, &away] {
        // A thread of the exchange may be the last to let go.
        becomes(&format!("{name}: left after a fault on {fault:?}"), &Usage::default(), || driver.usage());
        assert_eq!((driver.bad_accesses(), driver.dead_stream_uses()), (0, 0), "{name}, {fault:?}");
    }
    let calls = [&home, &away].map(|driver| Call::ALL.map(|call| driver.calls(call)).to_vec());
    drop((home, away));
    becomes(&format!("{name}: descriptors and mappings after a fault on {fault:?}"), &before, of_process);
    calls
}

/// A fault on each call of each kind, one run for each. The calls named must be among them, or it proves nothing.
fn every_fault(name: &str, scenario: Scenario, expected: &[Call]) {
    let _alone = ALONE.lock().unwrap();
    serve().unwrap();
    // What the process opens on first use is open before anything is counted.
    run(name, scenario, None);
    let calls = run(name, scenario, None);
    let (mut wrong, mut reached) = (Vec::new(), Vec::new());
    for (is_away, calls) in [(false, &calls[0]), (true, &calls[1])] {
        for (call, &calls) in Call::ALL.into_iter().zip(calls) {
            reached.extend((calls > 0).then_some(call));
            for nth in 1..=calls {
                let fault = (call, nth, is_away);
                let fine = std::panic::catch_unwind(|| run(name, scenario, Some(fault))).is_ok();
                wrong.extend((!fine).then_some(fault));
            }
        }
    }
    assert!(wrong.is_empty(), "{name}: {} faults went wrong: {wrong:?}", wrong.len());
    for call in expected {
        assert!(reached.contains(call), "{name}: {call:?} is never made");
    }
}

/// Calls that every kind of pool of the driver makes.
const POOLS: [Call; 7] =
    [Call::PoolCreate, Call::PoolDestroy, Call::PoolAllocate, Call::PoolFree, Call::PoolTrim, Call::Copy, Call::Fill];
const SHARED_POOLS: [Call; 9] = [
    Call::PoolAttribute,
    Call::PoolSetAttribute,
    Call::PoolAccess,
    Call::PoolSetAccess,
    Call::PoolExportFd,
    Call::PoolImportFd,
    Call::PoolExportPointer,
    Call::PoolImportPointer,
    Call::Pointer,
];
const PHYSICAL: [Call; 10] = [
    Call::ReserveAt,
    Call::CreateWith,
    Call::GrantAccess,
    Call::Map,
    Call::Unmap,
    Call::Release,
    Call::Unreserve,
    Call::ExportFd,
    Call::ImportFd,
    Call::DeviceUuid,
];

#[test]
fn in_a_pool_of_the_device() {
    every_fault(
        "a pool of the device",
        device_pool,
        &[&POOLS[..], &SHARED_POOLS, &[Call::FillPattern, Call::CanAccessPeer]].concat(),
    );
}

#[test]
fn in_a_pinned_pool() {
    every_fault("a pinned pool", pinned_pool, &[&POOLS[..], &SHARED_POOLS].concat());
}

#[test]
fn in_pools_that_are_not_shared() {
    every_fault("pools that are not shared", unshared_pools, &[&POOLS[..], &[Call::PoolCurrent]].concat());
}

#[test]
fn in_plain_memory() {
    let calls = [
        Call::HostAllocate,
        Call::HostFree,
        Call::ManagedAllocate,
        Call::Free,
        Call::Pointer,
        Call::IpcExport,
        Call::StreamSynchronize,
    ];
    every_fault("plain memory", plain, &calls);
}

#[test]
fn in_virtual_memory() {
    every_fault(
        "virtual memory",
        virtual_memory,
        &[&PHYSICAL[..9], &[Call::Granularity, Call::StreamSynchronize, Call::Synchronize]].concat(),
    );
}

#[test]
fn in_pools_of_forebays_own() {
    every_fault(
        "pools of Forebay's own",
        own_pools,
        &[&PHYSICAL[..], &[Call::EventCreate, Call::CanAccessPeer]].concat(),
    );
}
