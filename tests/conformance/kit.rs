//! What the checks are made of: memory and streams that end with their scope, data, and ways to judge an answer.

use forebay::driver::{Driver, ErrorKind, Physical, Result};
use forebay::units::{Address, DeviceId, StreamHandle};

pub(super) const DEVICE: DeviceId = DeviceId(0);

/// Unwraps with the call's name in the message.
#[track_caller]
pub(super) fn ok<T>(what: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} failed: {error} ({:?})", error.kind),
    }
}

#[track_caller]
pub(super) fn refused<T>(what: &str, kind: ErrorKind, result: Result<T>) {
    match result {
        Ok(_) => panic!("{what} succeeded, expected {kind:?}"),
        Err(error) => assert_eq!(error.kind, kind, "{what}: {error}"),
    }
}

/// The granularity, or `None` after a note: the device has no virtual memory management.
pub(super) fn granule(driver: &dyn Driver) -> Option<u64> {
    let capabilities = ok("capabilities", driver.capabilities(DEVICE));
    if !capabilities.vmm {
        eprintln!("skipped: device 0 has no virtual memory management");
        return None;
    }
    Some(capabilities.granularity)
}

/// A stream of its own, destroyed at the end.
pub(super) struct Stream<'a>(pub(super) &'a dyn Driver, pub(super) StreamHandle);

impl<'a> Stream<'a> {
    pub(super) fn new(driver: &'a dyn Driver) -> Self {
        Self(driver, ok("stream_create", driver.stream_create(DEVICE)))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = self.0.stream_destroy(DEVICE, self.1);
    }
}

/// One chunk, mapped and granted; taken apart at the end.
pub(super) struct Chunk<'a> {
    driver: &'a dyn Driver,
    pub(super) at: Address,
    bytes: u64,
    pub(super) physical: Physical,
}

impl<'a> Chunk<'a> {
    pub(super) fn new(driver: &'a dyn Driver, bytes: u64) -> Self {
        let at = ok("reserve", driver.reserve(DEVICE, bytes));
        let physical = ok("create", driver.create(DEVICE, bytes));
        ok("map", driver.map(DEVICE, at, bytes, physical));
        ok("grant", driver.grant(DEVICE, at, bytes));
        Self { driver, at, bytes, physical }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        let _ = self.driver.unmap(DEVICE, self.at, self.bytes);
        let _ = self.driver.release(DEVICE, self.physical);
        let _ = self.driver.unreserve(DEVICE, self.at, self.bytes);
    }
}

pub(super) fn write(driver: &dyn Driver, at: Address, bytes: &[u8]) {
    let stream = Stream::new(driver);
    let from = Address(bytes.as_ptr() as u64);
    ok("copy to device", driver.copy(DEVICE, at, from, bytes.len() as u64, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
}

pub(super) fn read(driver: &dyn Driver, at: Address, bytes: u64) -> Vec<u8> {
    let mut buffer = vec![0; bytes as usize];
    let stream = Stream::new(driver);
    let to = Address(buffer.as_mut_ptr() as u64);
    ok("copy to host", driver.copy(DEVICE, to, at, bytes, stream.1));
    ok("stream_synchronize", driver.stream_synchronize(DEVICE, stream.1));
    buffer
}

/// Bytes that differ from one place to the next, and from one seed to the next.
pub(super) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

#[track_caller]
pub(super) fn all(what: &str, bytes: &[u8], value: u8) {
    if let Some(place) = bytes.iter().position(|&byte| byte != value) {
        panic!("{what}: byte {place} is {:#x}, expected {value:#x}", bytes[place]);
    }
}
