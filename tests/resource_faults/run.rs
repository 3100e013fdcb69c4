//! One run of a scenario: calls that are made until they work, and what must not have changed when they did not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::driver::host::{HostDriver, HostOptions, Usage};
use forebay::driver::{Access, Driver, PoolAttribute};
use forebay::error::{Error, Result};
use forebay::resource::buffer::{Buffer, BufferInfo, From, export, export_legacy};
use forebay::resource::memory_resource::MemoryResource;
use forebay::units::DeviceId;

use crate::kit::driver::{LEGACY, sized};
use crate::kit::process::{becomes, open_fds};

pub const GRANULE: u64 = 64 << 10;
pub const BYTES: u64 = 3 * GRANULE;

pub fn small() -> HostOptions {
    HostOptions { devices: 2, granularity: GRANULE, host_capacity: 64 << 20, ..sized(2 << 20) }
}

/// Open descriptors, and mappings of the host drivers' memory.
pub fn of_process() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (open_fds().len(), maps.lines().filter(|line| line.contains("memfd:forebay-host")).count())
}

/// Waits until the exchange's thread for a peer has ended, which closes its descriptors in its own time.
fn settle() {
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    let peers = || {
        std::fs::read_dir("/proc/self/task").unwrap().flatten().map(name).any(|name| name.trim() == "forebay-ipc-pee")
    };
    let started = Instant::now();
    while peers() && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A buffer that is open, and what must be in it.
pub struct Live {
    pub buffer: Arc<Buffer>,
    pub info: BufferInfo,
    pub byte: u8,
}

pub struct Run {
    pub home: Arc<HostDriver>,
    pub away: Arc<HostDriver>,
    /// What the calls that failed said.
    pub failures: Vec<Error>,
    pub live: Vec<Live>,
    /// Whether a failed call must leave the driver as it was. A pool of Forebay's own may keep what it made.
    pub strict: bool,
    /// Whether pools of the driver are in use, which keep what is idle.
    pub pooled: bool,
    /// No fault is planned: what has a way round a failure need not go it.
    pub calm: bool,
}

pub type Resource = Arc<dyn MemoryResource>;

impl Run {
    pub fn home(&self) -> Arc<dyn Driver> {
        self.home.clone()
    }

    pub fn away(&self) -> Arc<dyn Driver> {
        self.away.clone()
    }

    /// Makes the call until it works. One that fails changed nothing.
    #[track_caller]
    pub fn until_done<T>(&mut self, what: &str, call: impl Fn() -> Result<T>) -> T {
        for _ in 0..4 {
            let usage = || [&self.home, &self.away].map(|driver| self.figures(driver));
            let before = (usage(), of_process());
            match call() {
                Ok(value) => {
                    if what == "import" {
                        settle();
                    }
                    return value;
                }
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

    pub fn figures(&self, driver: &HostDriver) -> Usage {
        let usage = driver.usage();
        if self.pooled { Usage { bytes: 0, host_bytes: 0, ..usage } } else { usage }
    }

    /// Every open buffer is as it was.
    #[track_caller]
    pub fn check(&self, what: &str) {
        for Live { buffer, info, byte } in &self.live {
            assert_eq!(buffer.info(), *info, "after {what}");
            // SAFETY: open, of the host driver, mapped for the process, and nothing is queued.
            let bytes = unsafe { std::slice::from_raw_parts(info.at.0 as *const u8, info.bytes as usize) };
            assert!(bytes.iter().all(|found| found == byte), "after {what}: other bytes than {byte}");
        }
    }

    pub fn keep(&mut self, buffer: Arc<Buffer>, byte: u8) -> Arc<Buffer> {
        self.live.push(Live { buffer: Arc::clone(&buffer), info: buffer.info(), byte });
        self.check("a new buffer");
        buffer
    }

    #[track_caller]
    pub fn allocate(&mut self, resource: &Resource, bytes: u64, byte: u8) -> Arc<Buffer> {
        let buffer = self.until_done("allocate", || Buffer::allocate(resource, bytes, LEGACY));
        self.until_done("fill", || buffer.fill(byte.into(), 1, LEGACY));
        self.keep(Arc::new(buffer), byte)
    }

    pub fn place(&mut self, buffer: &Arc<Buffer>) -> &mut Live {
        self.live.iter_mut().find(|live| Arc::ptr_eq(&live.buffer, buffer)).unwrap()
    }

    #[track_caller]
    pub fn fill(&mut self, buffer: &Arc<Buffer>, byte: u8) {
        self.until_done("fill", || buffer.fill(u32::from_le_bytes([byte; 4]), 4, LEGACY));
        self.place(buffer).byte = byte;
        self.check("fill");
    }

    #[track_caller]
    pub fn copy_into(&mut self, target: &Arc<Buffer>, source: &Arc<Buffer>) {
        self.until_done("copy", || target.copy_from(source, LEGACY));
        self.place(target).byte = self.place(source).byte;
        self.check("copy");
    }

    /// Grows or shrinks; answers whether it moved.
    #[track_caller]
    pub fn modify(&mut self, resource: &Resource, buffer: &Arc<Buffer>, bytes: u64) -> bool {
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
    pub fn close(&mut self, buffer: &Arc<Buffer>) {
        self.until_done("close", || buffer.close(Some(LEGACY)));
        self.live.retain(|live| !Arc::ptr_eq(&live.buffer, buffer));
        buffer.close(None).unwrap();
        self.check("close");
    }

    /// Whoever forgets to close.
    pub fn drop_open(&mut self, buffer: Arc<Buffer>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.buffer, &buffer));
        assert_eq!(Arc::strong_count(&buffer), 1);
        drop(buffer);
        self.check("drop");
    }

    /// What every resource does: buffers, copies, tensors, pointers.
    pub fn life(&mut self, resource: &Resource) {
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

    pub fn attributes(&mut self, resource: &Resource) {
        self.until_done("attribute", || resource.attribute(PoolAttribute::UsedHigh));
        self.until_done("set_attribute", || resource.set_attribute(PoolAttribute::UsedHigh, 0));
        let peer = DeviceId(1);
        self.until_done("peer_access", || resource.peer_access(peer));
        self.until_done("set_peer_access", || resource.set_peer_access(peer, Access::ReadWrite));
        assert_eq!(self.until_done("peer_access", || resource.peer_access(peer)), Access::ReadWrite);
    }

    pub fn end(&mut self, resource: &Resource) {
        let last = self.allocate(resource, BYTES, 9);
        self.until_done("close", || resource.close());
        assert!(matches!(resource.allocate(BYTES, LEGACY), Err(Error::Closed(_))));
        self.close(&last);
    }
}
