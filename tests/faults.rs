//! A fault on every driver call in turn: the call that failed says so, the next one works, and nothing leaks.
//!
//! The pool runs on the host driver, which can make the n-th call of a kind fail. One workload takes it through
//! growth, moved chunks, frees across streams, recorded uses, private pools, trimming and running out.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay::driver::host::{Call, Clock, HostDriver, HostOptions, Usage};
use forebay::driver::{Driver, ErrorKind};
use forebay::error::{Error, Result};
use forebay::pool::{Options, Pool};
use forebay::units::{Address, StreamHandle};

use kit::driver::{self, HOME, LEGACY, host, sized, small};
use kit::memory::MIB;
use kit::pool::{PINNED, PoolOnHost, pool_on};
use kit::random::Random;
use kit::streams::{LateRead, write_early};

const DEVICE: i32 = 0;

// ---- the workload --------------------------------------------------------------------------------------

/// The pool and the fault that is planned for it.
struct Run {
    driver: Arc<HostDriver>,
    pool: Arc<Pool>,
    has_private_pools: bool,
    /// What the calls that failed said.
    failures: Vec<Error>,
}

impl Run {
    /// Makes the call until it works: a failed call changed nothing, so it can simply be made again.
    #[track_caller]
    fn until_done<T>(&mut self, what: &str, call: impl Fn(&Pool) -> Result<T>) -> T {
        for _ in 0..4 {
            match call(&self.pool) {
                Ok(value) => return value,
                Err(error) => {
                    let told = error.to_string();
                    let planned = told.contains("planned fault");
                    assert!(planned, "{what} failed for a reason of its own: {told}");
                    self.failures.push(error);
                }
            }
            self.check(what);
        }
        panic!("{what} fails again and again: {:?}", self.failures);
    }

    #[track_caller]
    fn check(&self, what: &str) {
        if let Err(error) = self.pool.check(DEVICE) {
            assert!(error.to_string().contains("planned fault"), "after {what}: {error}");
        }
    }

    #[track_caller]
    fn malloc(&mut self, bytes: u64, stream: StreamHandle) -> Address {
        let at = self.until_done("malloc", |pool| pool.malloc(bytes, DEVICE, stream, 0));
        // The memory is really there: a write through the pointer faults where it is not mapped.
        for offset in (0..bytes).step_by(MIB as usize).chain([bytes - 1]) {
            // SAFETY: inside a live block of `bytes` bytes on the host driver, which this thread alone uses.
            unsafe { ((at.0 + offset) as *mut u8).write(0xC3) };
        }
        self.check("malloc");
        at
    }

    #[track_caller]
    fn free(&mut self, at: Address, stream: StreamHandle) {
        self.until_done("free", |pool| pool.free(at, stream));
        let twice = self.pool.free(at, stream);
        assert!(matches!(twice, Err(Error::BadFree(_))) || told_of_fault(&twice), "freed twice: {twice:?}");
        self.check("free");
    }

    /// A stream of the program's own. The fault may hit the program's call: then it is not the pool's to report.
    fn stream(&self) -> StreamHandle {
        self.driver.stream_create(HOME).or_else(|_| self.driver.stream_create(HOME)).unwrap()
    }

    fn destroy(&self, stream: StreamHandle) {
        self.driver.stream_destroy(HOME, stream).or_else(|_| self.driver.stream_destroy(HOME, stream)).unwrap();
    }

    fn private_pool(&mut self, first: StreamHandle, second: StreamHandle) {
        self.until_done("private_begin", |pool| pool.private_begin(DEVICE, 9, Box::new(move |s| s == first)));
        let (graph, used) = (self.malloc(2 * MIB, first), self.malloc(MIB, first));
        self.until_done("record_use", |pool| pool.record_use(used, second));
        self.free(used, first);
        self.free(graph, first);
        self.until_done("private_end", |pool| pool.private_end(DEVICE, 9));
        self.until_done("private_release", |pool| pool.private_release(DEVICE, 9));
    }

    /// Everything a pool does, on a device of 64 MiB.
    fn workload(&mut self) {
        let (first, second, third) = (self.stream(), self.stream(), self.stream());
        self.until_done("register", |pool| pool.stream_register(DEVICE, first));
        self.until_done("register", |pool| pool.stream_register(DEVICE, second));

        // Growth, small and large.
        let mut blocks: Vec<Address> = (0..6).map(|_| self.malloc(2 * MIB, first)).collect();
        let smalls: Vec<Address> = (0..20).map(|number| self.malloc(700 * (number + 1), second)).collect();
        // Every other one is freed, and the holes between are moved together under one large block.
        for index in [0, 2, 4] {
            self.free(blocks[index], first);
        }
        let large = self.malloc(6 * MIB, first);
        self.free(large, first);
        // Frees across streams, recorded uses, an unregistered stream.
        let crossing = self.malloc(3 * MIB, third);
        self.until_done("record_use", |pool| pool.record_use(crossing, first));
        self.until_done("record_use", |pool| pool.record_use(crossing, LEGACY));
        self.free(crossing, second);
        for small in smalls {
            self.free(small, third);
        }
        // More than is left: fronts are emptied, fences looked at, memory lent from stream to stream.
        let lent = self.malloc(40 * MIB, third);
        self.free(lent, third);
        let lent = self.malloc(44 * MIB, second);
        self.free(lent, second);
        let foreign = self.malloc(3 * MIB, third);
        self.until_done("free_behind_both", |pool| pool.free_behind_both(foreign, second));
        // More than is left of what there is: the whole ladder, and then an error.
        let held = self.malloc(MIB, first);
        let all =
            if self.pool.is_host() { Ok(129 * MIB) } else { self.driver.memory_info(HOME).map(|info| info.total) };
        let wanted = self.pool.malloc(all.unwrap_or(129 * MIB), DEVICE, first, 0);
        assert!(matches!(wanted, Err(Error::OutOfMemory(_))) || told_of_fault(&wanted), "{wanted:?}");
        self.failures.extend(wanted.err().filter(|error| matches!(error, Error::Driver(_))));
        self.check("malloc of too much");
        self.free(held, first);
        if self.has_private_pools {
            self.private_pool(first, second);
        }
        // A stream that ends, and one that takes its handle over.
        let passing = self.malloc(MIB, third);
        self.free(passing, third);
        self.destroy(third);
        let third = self.stream();
        let next = self.malloc(2 * MIB, third);
        self.free(next, third);
        self.until_done("unregister", |pool| pool.stream_unregister(DEVICE, second));
        self.destroy(second);
        // Figures, reports, trims.
        self.until_done("stats", |pool| pool.stats(DEVICE));
        self.until_done("report", |pool| pool.report(DEVICE));
        self.until_done("trim", |pool| pool.trim(DEVICE, 8 * MIB));
        for index in [1, 3, 5] {
            self.free(blocks[index], first);
        }
        blocks.clear();
        self.until_done("unregister", |pool| pool.stream_unregister(DEVICE, first));
        self.until_done("trim", |pool| pool.trim(DEVICE, 0));
        // What a fault has put off is done by the next trim.
        self.until_done("trim", |pool| pool.trim(DEVICE, 0));
        let stats = self.until_done("stats", |pool| pool.stats(DEVICE));
        assert_eq!((stats.live, stats.physical), (0, 0), "something was never given back: {stats:?}");
        self.destroy(first);
        self.destroy(third);
        // And leaves with a live block, and memory in the fronts.
        let last = self.malloc(2 * MIB, LEGACY);
        self.malloc(512, LEGACY);
        self.free(last, LEGACY);
    }
}

fn told_of_fault<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().contains("planned fault"))
}

/// The driver, and the pool on it.
type Setting = (HostOptions, Options);

/// Runs the workload with a fault on the `nth` call of a kind. Returns whether the fault happened, and what was told.
fn run(setting: &Setting, fault: Option<(Call, u64)>) -> (bool, Vec<Error>, Arc<HostDriver>) {
    let PoolOnHost { driver, pool } = PoolOnHost::new(setting.0, setting.1.clone());
    if let Some((call, nth)) = fault {
        driver.fail(call, nth);
    }
    let has_private_pools = setting.0.vmm;
    let mut run = Run { driver: Arc::clone(&driver), pool, has_private_pools, failures: Vec::new() };
    run.workload();
    let Run { pool, failures, .. } = run;
    drop(pool);
    let happened = fault.is_some_and(|(call, nth)| driver.calls(call) >= nth);
    assert_eq!(driver.usage(), Usage::default(), "left after a fault on {fault:?}");
    assert_eq!((driver.bad_accesses(), driver.dead_stream_uses()), (0, 0), "after a fault on {fault:?}");
    (happened, failures, driver)
}

/// Calls whose failure has nobody to be told to: what they give back is tried again, what they ask counts as "no",
/// and a free that could not be fenced waits for the whole device.
const QUIET: [Call; 8] = [
    Call::EventDestroy,
    Call::EventPassed,
    Call::EventRecordAll,
    Call::EventWait,
    Call::Unmap,
    Call::StreamIdle,
    Call::TrimDriverPools,
    Call::Unreserve,
];

/// The same on devices without virtual memory: a free that fails, in whichever of its calls, waits for the whole device,
/// and what the end of a pool gives back is tried again.
const QUIET_WITHOUT_VMM: [Call; 5] =
    [Call::EventCreate, Call::EventRecord, Call::PoolFree, Call::PoolDestroy, Call::StreamSynchronize];

/// A fault on each call of each kind, one run for each.
fn every_fault(options: HostOptions) -> Vec<(Call, u64)> {
    every_fault_in(&(options, Options::default()))
}

fn every_fault_in(setting: &Setting) -> Vec<(Call, u64)> {
    let (_, failures, driver) = run(setting, None);
    assert!(failures.is_empty(), "{failures:?}");
    let mut made = Vec::new();
    for call in Call::ALL {
        let calls = driver.calls(call);
        made.push((call, calls));
        let mut told = 0;
        for nth in 1..=calls {
            let (happened, failures, _) = run(setting, Some((call, nth)));
            assert!(happened, "{call:?} was called {calls} times without a fault, and not {nth} times with one");
            assert!(failures.len() <= 1, "one fault, told more than once: {failures:?}");
            for failure in &failures {
                assert!(failure.to_string().contains(call.name()), "{call:?}: {failure}");
                told += 1;
            }
        }
        let quiet = is_quiet(call) || !setting.0.vmm && QUIET_WITHOUT_VMM.contains(&call);
        assert!(calls == 0 || told > 0 || quiet, "{call:?} failed {calls} times and nobody was told");
    }
    made
}

fn is_quiet(call: Call) -> bool {
    QUIET.contains(&call) || is_the_programs(call)
}

/// Calls that only the workload itself makes, or whose failure has another way round.
fn is_the_programs(call: Call) -> bool {
    matches!(call, Call::StreamCreate | Call::StreamDestroy | Call::Synchronize | Call::StreamWait)
}

/// The kinds that the workload must reach, or the test proves nothing.
#[track_caller]
fn reached(made: &[(Call, u64)], kinds: &[Call]) {
    for kind in kinds {
        let calls = made.iter().find(|(call, _)| call == kind).map_or(0, |&(_, calls)| calls);
        assert!(calls > 0, "the workload never makes {kind:?}");
    }
}

const EVERYWHERE: [Call; 10] = [
    Call::MemoryInfo,
    Call::EventCreate,
    Call::EventDestroy,
    Call::EventRecord,
    Call::EventRecordAll,
    Call::EventPassed,
    Call::TrimDriverPools,
    Call::StreamCapture,
    Call::Synchronize,
    Call::StreamCreate,
];
const VIRTUAL: [Call; 7] =
    [Call::Reserve, Call::Unreserve, Call::Create, Call::Release, Call::Map, Call::Grant, Call::Unmap];

#[test]
fn a_fault_on_any_call_is_told_or_made_up_for_and_leaks_nothing() {
    let made = every_fault(small());
    reached(&made, &EVERYWHERE);
    reached(&made, &VIRTUAL);
    reached(&made, &[Call::StreamIdentity]);
}

#[test]
fn the_same_holds_without_virtual_memory() {
    for (clock, device_events, limit) in
        [(Clock::Immediate, true, 0), (Clock::Immediate, false, 60 * MIB), (Clock::Manual, true, 60 * MIB)]
    {
        let host = HostOptions { vmm: false, clock, device_events, ..small() };
        let made = every_fault_in(&(host, Options { limit, ..Options::default() }));
        reached(
            &made,
            &[Call::MemoryInfo, Call::StreamCapture, Call::EventCreate, Call::EventRecord, Call::StreamWait],
        );
        reached(&made, &[Call::PoolCreate, Call::PoolSetAttribute, Call::PoolAttribute, Call::PoolAllocate]);
        reached(&made, &[Call::PoolFree, Call::PoolTrim, Call::PoolDestroy, Call::Synchronize, Call::TrimDriverPools]);
    }
}

#[test]
fn the_same_holds_without_stream_identities() {
    let made = every_fault(HostOptions { stream_identity: false, ..small() });
    reached(&made, &EVERYWHERE);
    reached(&made, &VIRTUAL);
}

#[test]
fn the_same_holds_with_work_held_back_on_the_streams() {
    let made = every_fault(driver::held_back(small()));
    reached(&made, &EVERYWHERE);
    reached(&made, &VIRTUAL);
    reached(&made, &[Call::EventWait, Call::StreamIdle, Call::StreamWait]);
}

#[test]
fn the_same_holds_for_pinned_memory() {
    let pinned = Options { location: PINNED, ..Options::default() };
    let made = every_fault_in(&(HostOptions { host_capacity: 64 * MIB, ..small() }, pinned));
    reached(&made, &[Call::CreateWith, Call::Map, Call::GrantAccess, Call::Unmap, Call::Release]);
}

// ---- two faults ----------------------------------------------------------------------------------------

/// Where the pools of the tests below have their memory, and the call that makes a mapping of theirs accessible.
fn places() -> [(Options, Call); 2] {
    let pinned = Options { location: PINNED, ..Options::default() };
    [(Options::default(), Call::Grant), (pinned, Call::GrantAccess)]
}

#[test]
fn a_place_that_could_not_be_unmapped_after_a_fault_is_not_used_and_is_unmapped_later() {
    for (options, grant) in places() {
        let PoolOnHost { driver, pool } = PoolOnHost::new(HostOptions { host_capacity: 64 * MIB, ..small() }, options);
        driver.fail(grant, 1);
        // The one on the way back, and the next try.
        driver.fail(Call::Unmap, 1);
        driver.fail(Call::Unmap, 2);
        let error = pool.malloc(2 * MIB, DEVICE, LEGACY, 0).unwrap_err();
        assert!(error.to_string().contains(grant.name()), "{error}");
        assert_eq!(driver.usage().mappings, 1, "no second fault");
        pool.check(DEVICE).unwrap();
        let held = driver.usage().bytes + driver.usage().host_bytes;
        assert_eq!(pool.stats(DEVICE).unwrap().physical, held, "memory that is mapped is held");
        for _ in 0..2 {
            let block = pool.malloc(2 * MIB, DEVICE, LEGACY, 0).unwrap();
            // SAFETY: a live block of the host driver, which this thread alone uses.
            unsafe { (block.0 as *mut u8).write_bytes(1, 2 * MIB as usize) };
            pool.check(DEVICE).unwrap();
        }
        let held = driver.usage().bytes + driver.usage().host_bytes;
        assert_eq!((driver.usage().mappings, held), (2, 4 * MIB), "the stray mapping is gone");
        drop(pool);
        assert_eq!(driver.usage(), Usage::default());
    }
}

#[test]
fn two_faults_in_any_allocation_of_many_leave_no_mapping_behind() {
    for (options, grant) in places() {
        let PoolOnHost { driver, pool } = PoolOnHost::new(sized(1 << 30), options);
        let mut run = Run { driver: Arc::clone(&driver), pool, has_private_pools: true, failures: Vec::new() };
        let mut random = Random(7);
        let mut live = Vec::new();
        for step in 0..400 {
            if step % 20 == 0 {
                run.until_done("trim", |pool| pool.trim(DEVICE, 0));
            }
            if live.len() < 40 && random.below(100) < 60 {
                let most = 1 << (13 + random.below(11));
                let bytes = 4096 + random.below(most);
                driver.fail(if step % 2 == 0 { grant } else { Call::Map }, 1 + random.below(2));
                (0..4).for_each(|_| driver.fail(Call::Unmap, 1 + random.below(4)));
                live.push(run.malloc(bytes, LEGACY));
                driver.clear_faults();
            } else if !live.is_empty() {
                run.free(live.swap_remove(random.below(live.len() as u64) as usize), LEGACY);
            }
        }
        assert!(run.failures.len() > 10, "{} allocations failed", run.failures.len());
        live.into_iter().for_each(|at| run.free(at, LEGACY));
        for _ in 0..2 {
            run.until_done("trim", |pool| pool.trim(DEVICE, 0));
        }
        assert_eq!((driver.usage().mappings, run.pool.stats(DEVICE).unwrap().physical), (0, 0));
    }
}

// ---- what a failed allocation says ---------------------------------------------------------------------

#[test]
fn a_driver_error_keeps_its_name_and_the_next_call_works() {
    let PoolOnHost { driver, pool } = PoolOnHost::new(small(), Options::default());
    let held = pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    for call in [Call::Create, Call::Map, Call::Grant] {
        driver.fail(call, 1);
        let error = pool.malloc(20 * MIB, DEVICE, LEGACY, 0).unwrap_err();
        assert!(matches!(&error, Error::Driver(told) if told.call == call.name()), "{call:?}: {error}");
        assert_eq!(driver.usage().bytes, pool.stats(DEVICE).unwrap().physical, "{call:?} left memory behind");
        pool.check(DEVICE).unwrap();
        let block = pool.malloc(20 * MIB, DEVICE, LEGACY, 0).unwrap();
        pool.free(block, LEGACY).unwrap();
        pool.trim(DEVICE, 0).unwrap();
    }
    pool.free(held, LEGACY).unwrap();
    pool.check(DEVICE).unwrap();
}

#[test]
fn a_device_that_is_full_is_asked_again_after_others_gave_back() {
    let PoolOnHost { pool, .. } = PoolOnHost::new(small(), Options::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::new(Mutex::new(Some(pool.malloc(48 * MIB, DEVICE, LEGACY, 0).unwrap())));
    for number in 1..=2 {
        let (order, kept, weak) = (Arc::clone(&order), Arc::clone(&kept), Arc::downgrade(&pool));
        pool.add_pressure_callback(Box::new(move |device, bytes| {
            assert_eq!((device, bytes), (HOME, 32 * MIB));
            order.lock().unwrap().push(number);
            let block = if number == 2 { kept.lock().unwrap().take() } else { None };
            block.is_some_and(|block| weak.upgrade().unwrap().free(block, LEGACY).is_ok())
        }));
    }
    let block = pool.malloc(32 * MIB, DEVICE, LEGACY, 0).unwrap();
    assert_eq!(*order.lock().unwrap(), [1, 2], "in the order they were added, each once");
    let error = pool.malloc(32 * MIB, DEVICE, LEGACY, 0).map(drop);
    // 32 of the 64 MiB are live, and 32 are free: it still fits.
    assert!(error.is_ok(), "{error:?}");
    assert_eq!(order.lock().unwrap().len(), 2);
    let text = match pool.malloc(32 * MIB, DEVICE, LEGACY, 0) {
        Err(Error::OutOfMemory(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(order.lock().unwrap().len(), 4, "asked before it was an error");
    for word in ["32.00 MiB (33554432 bytes) asked for", "live 64.00 MiB", "held 64.00 MiB", "limit none", "device 0"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    assert_eq!(pool.stats(DEVICE).unwrap().out_of_memory, 1);
    pool.free(block, LEGACY).unwrap();
    pool.check(DEVICE).unwrap();
}

#[test]
fn out_of_memory_from_the_driver_below_its_capacity_climbs_the_same_ladder() {
    for nth in 1..=3 {
        let PoolOnHost { driver, pool } = PoolOnHost::new(small(), Options::default());
        let calls = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&calls);
        pool.add_pressure_callback(Box::new(move |_, _| counter.fetch_add(1, Ordering::Relaxed) < 1));
        let stream = driver.stream_create(HOME).unwrap();
        let freed = pool.malloc(8 * MIB, DEVICE, stream, 0).unwrap();
        pool.free(freed, stream).unwrap();
        driver.fail_with(Call::Create, nth, ErrorKind::OutOfMemory);
        let block = pool.malloc(24 * MIB, DEVICE, LEGACY, 0).unwrap();
        pool.check(DEVICE).unwrap();
        pool.free(block, LEGACY).unwrap();
        pool.trim(DEVICE, 0).unwrap();
        assert_eq!(driver.usage().bytes, 0);
        driver.stream_destroy(HOME, stream).unwrap();
    }
}

/// A callback that gives nothing back, as far as it says, and changes what every plan from before was made of.
#[test]
fn no_plan_from_before_a_callback_is_carried_out() {
    let bench = PoolOnHost::new(small(), Options { limit: 24 * MIB, ..Options::default() });
    let blocks: Vec<Address> = (0..3).map(|_| bench.malloc(6 * MIB, LEGACY)).collect();
    bench.free(blocks[0], LEGACY);
    bench.free(blocks[2], LEGACY);
    let (middle, weak) = (Mutex::new(Some(blocks[1])), Arc::downgrade(&bench.pool));
    bench.pool.add_pressure_callback(Box::new(move |_, _| {
        let pool = weak.upgrade().unwrap();
        if let Some(block) = middle.lock().unwrap().take() {
            pool.free(block, LEGACY).unwrap();
            pool.trim(DEVICE, 0).unwrap();
        }
        false
    }));
    let all = bench.malloc(20 * MIB, LEGACY);
    bench.free(all, LEGACY);
}

#[test]
fn another_pool_on_the_device_gives_back_before_a_request_fails() {
    let driver = host(small());
    let (first, second) = (pool_on(&driver, Options::default()), pool_on(&driver, Options::default()));
    let block = first.malloc(60 * MIB, DEVICE, LEGACY, 0).unwrap();
    first.free(block, LEGACY).unwrap();
    let block = second.malloc(60 * MIB, DEVICE, LEGACY, 0).unwrap();
    assert!(first.stats(DEVICE).unwrap().physical <= 4 * MIB);
    second.free(block, LEGACY).unwrap();
    first.check(DEVICE).unwrap();
    second.check(DEVICE).unwrap();
}

#[test]
fn a_pool_leaves_pools_on_other_drivers_alone() {
    let (full, bystander) = (host(small()), host(small()));
    let (pool, other) = (pool_on(&full, Options::default()), pool_on(&bystander, Options::default()));
    let block = other.malloc(32 * MIB, DEVICE, LEGACY, 0).unwrap();
    other.free(block, LEGACY).unwrap();
    let before = bystander.calls(Call::Unmap);
    pool.malloc(MIB, DEVICE, LEGACY, 0).unwrap();
    assert!(matches!(pool.malloc(64 * MIB, DEVICE, LEGACY, 0), Err(Error::OutOfMemory(_))));
    assert_eq!((bystander.calls(Call::Unmap), other.stats(DEVICE).unwrap().physical), (before, 32 * MIB));
}

#[test]
fn a_pool_that_ends_leaves_nothing_in_the_driver_though_a_thread_that_used_it_lives_on() {
    let PoolOnHost { driver, pool } = PoolOnHost::new(small(), Options::default());
    let ((used, wait), (end, ended)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    std::thread::scope(|scope| {
        let worker = Arc::clone(&pool);
        scope.spawn(move || {
            let block = worker.malloc(MIB, DEVICE, StreamHandle::PER_THREAD, 0).unwrap();
            worker.free(block, StreamHandle::PER_THREAD).unwrap();
            drop(worker);
            used.send(()).unwrap();
            assert!(ended.recv().is_err(), "nobody sends anything");
        });
        wait.recv().unwrap();
        drop(pool);
        let left = driver.usage();
        drop(end);
        assert_eq!(left, Usage::default());
    });
    assert_eq!(driver.usage(), Usage::default());
}

// ---- the order between streams, with work held back -----------------------------------------------------

/// A pool whose streams run only when stepped, and two registered streams.
fn held_back(options: HostOptions) -> (Arc<HostDriver>, Arc<Pool>, StreamHandle, StreamHandle) {
    let options = HostOptions { capacity: 16 * MIB, ..driver::held_back(options) };
    let made = PoolOnHost::new(options, Options::default());
    let (first, second) = (made.registered(), made.registered());
    (made.driver, made.pool, first, second)
}

/// A block of ones.
fn ones(driver: &HostDriver, pool: &Pool, bytes: u64, stream: StreamHandle) -> Address {
    let block = pool.malloc(bytes, DEVICE, stream, 0).unwrap();
    driver.fill(HOME, block, 1, bytes, stream).unwrap();
    driver.run_all();
    block
}

/// Work that reads the block late finds what it was given: nobody wrote to it before.
#[track_caller]
fn is_read_in_time(driver: &HostDriver, pool: &Pool, block: Address, writer: StreamHandle, read: &LateRead) {
    let next = pool.malloc(14 * MIB, DEVICE, writer, 0).unwrap();
    assert_eq!(next, block, "the test shows nothing: it is not the same memory");
    write_early(driver, next, 14 * MIB, writer);
    read.was_in_time();
    pool.free(next, writer).unwrap();
    pool.check(DEVICE).unwrap();
}

#[test]
fn a_use_recorded_on_the_streams_own_block_holds_when_it_is_freed_on_another() {
    let (driver, pool, home, other) = held_back(small());
    let block = ones(&driver, &pool, 14 * MIB, home);
    pool.record_use(block, home).unwrap();
    let read = LateRead::of(&driver, block, 14 * MIB, home);
    pool.free(block, other).unwrap();
    is_read_in_time(&driver, &pool, block, other, &read);
}

#[test]
fn a_use_recorded_on_a_threads_own_stream_holds_when_another_thread_frees_the_block() {
    for stream_identity in [true, false] {
        let (driver, pool, home, _) = held_back(HostOptions { stream_identity, ..small() });
        let block = ones(&driver, &pool, 14 * MIB, home);
        let read = std::thread::scope(|scope| {
            let work = || {
                pool.record_use(block, StreamHandle::PER_THREAD).unwrap();
                LateRead::of(&driver, block, 14 * MIB, StreamHandle::PER_THREAD)
            };
            scope.spawn(work).join().unwrap()
        });
        pool.free(block, home).unwrap();
        is_read_in_time(&driver, &pool, block, home, &read);
    }
}

#[test]
fn a_private_block_freed_on_another_captured_stream_is_not_reused_before_that_stream_is_done() {
    let (driver, pool, first, second) = held_back(small());
    pool.private_begin(DEVICE, 1, Box::new(|_| true)).unwrap();
    let block = pool.malloc(2 * MIB, DEVICE, first, 0).unwrap();
    pool.free(block, second).unwrap();
    let next = pool.malloc(2 * MIB, DEVICE, first, 0).unwrap();
    assert_ne!(next, block, "the work of the stream that freed it may come after");
    pool.free(next, first).unwrap();
    pool.private_end(DEVICE, 1).unwrap();
    pool.private_release(DEVICE, 1).unwrap();
    pool.check(DEVICE).unwrap();
    driver.run_all();
}

#[test]
fn a_private_block_is_not_used_again_while_another_stream_reads_it() {
    for freed_in_a_capture in [false, true] {
        let (driver, pool, home, other) = held_back(small());
        let begin = || pool.private_begin(DEVICE, 1, Box::new(move |asking| asking == home)).unwrap();
        begin();
        let block = ones(&driver, &pool, 4 * MIB, home);
        pool.record_use(block, other).unwrap();
        let read = LateRead::of(&driver, block, 4 * MIB, other);
        if !freed_in_a_capture {
            pool.private_end(DEVICE, 1).unwrap();
        }
        pool.free(block, home).unwrap();
        if freed_in_a_capture {
            pool.private_end(DEVICE, 1).unwrap();
        }
        pool.check(DEVICE).unwrap();
        begin();
        let next = pool.malloc(4 * MIB, DEVICE, home, 0).unwrap();
        assert_ne!(next, block, "freed in a capture: {freed_in_a_capture}");
        pool.free(next, home).unwrap();
        pool.private_end(DEVICE, 1).unwrap();
        driver.run_all();
        read.was_in_time();
        begin();
        let both = pool.malloc(8 * MIB, DEVICE, home, 0).unwrap();
        assert_eq!(both, block.min(next), "both are free again");
        pool.free(both, home).unwrap();
        pool.private_end(DEVICE, 1).unwrap();
        for _ in 0..3 {
            pool.private_release(DEVICE, 1).unwrap();
        }
        pool.check(DEVICE).unwrap();
        pool.trim(DEVICE, 0).unwrap();
        assert_eq!(pool.stats(DEVICE).unwrap().physical, 0);
    }
}

#[test]
fn a_private_pool_that_is_released_while_another_stream_reads_its_block_waits_for_it() {
    let (driver, pool, home, other) = held_back(small());
    pool.private_begin(DEVICE, 1, Box::new(move |asking| asking == home)).unwrap();
    let block = ones(&driver, &pool, 14 * MIB, home);
    pool.private_end(DEVICE, 1).unwrap();
    pool.record_use(block, other).unwrap();
    let read = LateRead::of(&driver, block, 14 * MIB, other);
    pool.free(block, home).unwrap();
    pool.private_release(DEVICE, 1).unwrap();
    pool.check(DEVICE).unwrap();
    is_read_in_time(&driver, &pool, block, home, &read);
}

#[test]
fn a_stream_that_was_unregistered_is_not_touched_again_by_threads_that_make_room() {
    let PoolOnHost { driver, pool } = PoolOnHost::new(sized(256 * MIB), Options::default());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    // Looks at the fences of every stream.
                    pool.trim(DEVICE, 0).unwrap();
                }
            });
        }
        for _ in 0..1500 {
            let stream = driver.stream_create(HOME).unwrap();
            pool.stream_register(DEVICE, stream).unwrap();
            let block = pool.malloc(2 * MIB, DEVICE, stream, 0).unwrap();
            pool.free(block, stream).unwrap();
            pool.stream_unregister(DEVICE, stream).unwrap();
            driver.stream_destroy(HOME, stream).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(driver.dead_stream_uses(), 0, "CUDA would have crashed");
    pool.check(DEVICE).unwrap();
}

#[test]
fn trim_gives_back_all_that_was_freed_before_it_however_late_the_work_is() {
    let (driver, pool, first, second) = held_back(small());
    for stream in [first, second] {
        let blocks: Vec<Address> = (0..3).map(|_| pool.malloc(2 * MIB, DEVICE, stream, 0).unwrap()).collect();
        for block in blocks {
            driver.fill(HOME, block, 1, 2 * MIB, stream).unwrap();
            pool.free(block, stream).unwrap();
            // Looks at the fences, and raises one for what was freed so far.
            pool.private_begin(DEVICE, 1, Box::new(|_| false)).unwrap();
            pool.private_end(DEVICE, 1).unwrap();
            pool.private_release(DEVICE, 1).unwrap();
        }
    }
    let more = pool.malloc(2 * MIB, DEVICE, first, 0).unwrap();
    driver.fill(HOME, more, 1, 2 * MIB, first).unwrap();
    pool.free(more, first).unwrap();
    pool.trim(DEVICE, 0).unwrap();
    assert_eq!(pool.stats(DEVICE).unwrap().physical, 0, "freed before the trim");
    assert_eq!(driver.bad_accesses(), 0, "unmapped under work that used it");
    driver.run_all();
    assert_eq!(driver.bad_accesses(), 0, "unmapped under work that used it");
}

#[test]
fn a_captured_stream_gets_no_new_memory_without_a_private_pool() {
    for registered in [true, false] {
        let PoolOnHost { driver, pool } = PoolOnHost::new(small(), Options::default());
        let stream = driver.stream_create(HOME).unwrap();
        if registered {
            pool.stream_register(DEVICE, stream).unwrap();
        }
        driver.begin_capture(HOME, stream).unwrap();
        let refused = pool.malloc(MIB, DEVICE, stream, 0);
        assert!(
            matches!(&refused, Err(Error::Capturing(text)) if text.contains("forebay_pool_private_begin")),
            "{refused:?}"
        );
        pool.private_begin(DEVICE, 1, Box::new(move |asking| asking == stream)).unwrap();
        let block = pool.malloc(MIB, DEVICE, stream, 0).unwrap();
        pool.private_end(DEVICE, 1).unwrap();
        driver.end_capture(HOME, stream).unwrap();
        pool.free(block, stream).unwrap();
        let plain = pool.malloc(MIB, DEVICE, stream, 0).unwrap();
        assert_ne!(plain, block);
        pool.free(plain, stream).unwrap();
        pool.private_release(DEVICE, 1).unwrap();
        pool.check(DEVICE).unwrap();
    }
}

/// Random sizes in a pinned pool, which moves chunks of one page, with a fault on the `nth` call of a kind.
fn random_pinned(call: Call, nth: u64) -> bool {
    let PoolOnHost { driver, pool } =
        PoolOnHost::new(HostOptions::default(), Options { location: PINNED, ..Options::default() });
    driver.fail(call, nth);
    let mut run = Run { driver: Arc::clone(&driver), pool, has_private_pools: true, failures: Vec::new() };
    let mut random = Random(nth);
    let mut live = Vec::new();
    for _ in 0..500 {
        let most = 1 << (13 + random.below(11));
        if live.len() < 40 && random.below(100) < 60 {
            live.push(run.malloc(4096 + random.below(most), LEGACY));
        } else if !live.is_empty() {
            let at = live.swap_remove(random.below(live.len() as u64) as usize);
            run.free(at, LEGACY);
        }
    }
    // The trim tries again what a fault has put off.
    for _ in 0..2 {
        run.until_done("trim", |pool| pool.trim(DEVICE, 0));
    }
    assert!(run.failures.len() <= 1, "one fault, told more than once: {:?}", run.failures);
    drop(run);
    assert_eq!(driver.usage(), Usage::default(), "left after a fault on {call:?} {nth}");
    assert_eq!(driver.bad_accesses(), 0, "after a fault on {call:?} {nth}");
    driver.calls(call) >= nth
}

#[test]
fn a_fault_while_a_pinned_pool_moves_chunks_leaks_nothing() {
    let calls = [Call::CreateWith, Call::Map, Call::GrantAccess, Call::Unmap, Call::Release, Call::EventRecord];
    for call in calls {
        let happened = (1..=400).step_by(7).filter(|&nth| random_pinned(call, nth)).count();
        assert!(happened > 1, "{call:?} failed {happened} times");
    }
}
