//! A fault on every driver call in turn, under resources, buffers and sharing: the call that failed says so and changed
//! nothing, the same call works when it is made again, and nothing leaks.
//!
//! Two host drivers stand for two processes: what the first one exports, the second one imports.

#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

#[path = "../kit/mod.rs"]
mod kit;
mod run;
mod scenarios;

use std::sync::{Arc, Mutex, PoisonError};

use forebay::driver::host::{Call, Usage};
use forebay::resource::ipc::serve;

use kit::driver::host;
use kit::process::becomes;
use run::{Run, of_process, small};
use scenarios::{device_pool, own_pools, pinned_pool, plain, unshared_pools, virtual_memory};

/// Descriptors and mappings are the whole process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

type Scenario = fn(&mut Run);
/// The kind of call, which one of them, and whether on the importing side.
type Fault = (Call, u64, bool);

/// Runs a scenario with a fault on the `nth` call of a kind on one of the two drivers; answers how often each made it.
fn run(name: &str, scenario: Scenario, fault: Option<Fault>) -> [Vec<u64>; 2] {
    let before = of_process();
    let (home, away) = (host(small()), host(small()));
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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
