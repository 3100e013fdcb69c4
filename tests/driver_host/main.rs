//! What the host driver has beyond the traits: its clock, its faults and lies, its ledger, its strictness, and memory
//! that other processes have.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod clock;
mod faults;
mod host_memory;
#[path = "../kit/mod.rs"]
mod kit;
mod ledger;
mod memory;
mod pools;
mod processes;
mod sharing;
mod streams;
mod virtual_memory;

use std::sync::Arc;

use forebay::driver::host::{Clock, HostDriver, HostOptions};
use forebay::driver::{Driver, ErrorKind, Physical, Result};
use forebay::units::Address;

use kit::driver::{HOME as DEVICE, LEGACY, PEER, host, small};
use kit::memory::MIB;

const GRANULE: u64 = 2 * MIB;

fn driver(clock: Clock) -> Arc<HostDriver> {
    host(HostOptions { devices: 2, clock, ..small() })
}

/// Two devices whose memory can be shared in every way.
fn shareable() -> HostOptions {
    HostOptions { devices: 2, fabric: true, ..small() }
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

/// What the program sees at an address may also be written by it.
fn put(at: Address, value: u8) {
    // SAFETY: as for `byte`, with the right to write.
    unsafe { std::ptr::write_volatile(at.0 as *mut u8, value) }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, text: &str) {
    let error = result.expect_err("refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.detail.contains(text), "{error} does not say {text:?}");
}
