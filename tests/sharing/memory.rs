//! Memory to export: of the host driver, and descriptors of nothing.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::driver::host::{HostDriver, HostOptions, Usage};
use forebay::driver::{
    Access, Driver, DriverError, ErrorKind, Physical, PhysicalOptions, Place, Share, Sharing, VirtualMemory,
};
use forebay::error::Result;
use forebay::resource::ipc::{Descriptor, Exported, Form, Handle, Location, Pieces, Route, Ticket, fetch, offer};
use forebay::units::{Address, DeviceId};

pub const DEVICE: DeviceId = DeviceId(0);
pub const GRANULE: u64 = 1 << 16;
pub const BOTH: [(Place, Access); 1] = [(Place::Device(DEVICE), Access::ReadWrite)];

/// The same in every process.
pub fn host_driver() -> Arc<HostDriver> {
    let options = HostOptions { granularity: GRANULE, fabric: true, ..HostOptions::default() };
    Arc::new(HostDriver::new(options).unwrap())
}

/// A word at each of these steps.
pub fn words(at: Address, bytes: u64) -> impl Iterator<Item = *mut u64> {
    (0..bytes).step_by(GRANULE as usize / 2).map(move |step| at.plus(step).0 as *mut u64)
}

pub fn write(at: Address, bytes: u64, first: u64) {
    words(at, bytes).zip(first..).for_each(|(word, value)| unsafe { word.write_volatile(value) });
}

#[track_caller]
pub fn holds(at: Address, bytes: u64, first: u64) {
    for (word, value) in words(at, bytes).zip(first..) {
        assert_eq!(unsafe { word.read_volatile() }, value, "at {word:p} of {at}+{bytes}");
    }
}

/// A buffer of the host driver in pieces of one, two, three, one … granules, mapped.
pub struct Buffer {
    pub driver: Arc<HostDriver>,
    pub start: Address,
    pub offset: u64,
    pub bytes: u64,
    pub place: Place,
    pub share: Share,
    physical: Vec<(Physical, u64)>,
}

impl Buffer {
    pub fn new(driver: &Arc<HostDriver>, pieces: u64, offset: u64, place: Place, share: Share) -> Arc<Self> {
        let sizes: Vec<u64> = (0..pieces).map(|index| (1 + index % 3) * GRANULE).collect();
        let span = sizes.iter().sum();
        let start = driver.reserve(DEVICE, span).unwrap();
        let (options, mut at) = (PhysicalOptions { place, share, rdma: false }, start);
        let mut physical = Vec::new();
        for bytes in sizes {
            let created = driver.create_with(DEVICE, bytes, &options).unwrap();
            driver.map(DEVICE, at, bytes, created).unwrap();
            physical.push((created, bytes));
            at = at.plus(bytes);
        }
        driver.grant_access(DEVICE, start, span, &BOTH).unwrap();
        let driver = Arc::clone(driver);
        Arc::new(Self { driver, start, offset, bytes: span - offset, place, share, physical })
    }

    pub fn at(&self) -> Address {
        self.start.plus(self.offset)
    }

    pub fn describe(&self, ticket: Ticket) -> Descriptor {
        let location = Location::of(self.driver.as_ref(), self.place).unwrap();
        Descriptor::new(Route::exchange(ticket, self.share == Share::Fabric), self.bytes, location).unwrap()
    }

    pub fn offer(self: &Arc<Self>) -> (Descriptor, Ticket) {
        let ticket = offer(Arc::clone(self) as Arc<dyn Exported>).unwrap();
        (self.describe(ticket), ticket)
    }
}

impl Exported for Buffer {
    fn pieces(&self) -> Result<Pieces> {
        let (driver, physical) = (Arc::clone(&self.driver), self.physical.clone());
        let sizes = physical.iter().map(|&(_, bytes)| bytes).collect();
        let form = if self.share == Share::Fabric { Form::Fabric } else { Form::Fd };
        Pieces::lazy(self.offset, self.bytes, form, sizes, move |index| {
            Ok(match form {
                Form::Fd => Handle::Fd(driver.export_fd(DEVICE, physical[index].0)?),
                Form::Fabric => Handle::Fabric(driver.export_fabric(DEVICE, physical[index].0)?),
            })
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let span = self.offset + self.bytes;
        self.driver.unmap(DEVICE, self.start, span).unwrap();
        self.driver.unreserve(DEVICE, self.start, span).unwrap();
        self.physical.iter().for_each(|&(physical, _)| self.driver.release(DEVICE, physical).unwrap());
    }
}

/// Descriptors of nothing, for what happens on the way.
pub struct Nothing(pub u64);

impl Nothing {
    pub fn offer(pieces: u64) -> (Descriptor, Ticket) {
        let ticket = offer(Arc::new(Self(pieces))).unwrap();
        (Descriptor::new(Route::exchange(ticket, false), pieces * GRANULE, Location::Host).unwrap(), ticket)
    }
}

impl Exported for Nothing {
    fn pieces(&self) -> Result<Pieces> {
        let sizes = vec![GRANULE; self.0 as usize];
        Pieces::lazy(0, self.0 * GRANULE, Form::Fd, sizes, |_| {
            let file = File::open("/dev/null").map_err(|error| {
                let (code, detail) = (error.raw_os_error().unwrap_or(0), error.to_string());
                DriverError { kind: ErrorKind::Failed, call: "open", code, detail }
            })?;
            Ok(Handle::Fd(OwnedFd::from(file)))
        })
    }
}

/// Takes all pieces, closes them, and answers how many came.
pub fn take_all(descriptor: &Descriptor) -> Result<u64> {
    fetch(descriptor)?.try_fold(0, |count, piece| piece.map(|_| count + 1))
}

/// The open descriptors of this process.
pub fn open_fds() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
    let mut fds: Vec<String> = entries
        .filter_map(|entry| {
            let to = std::fs::read_link(entry.path()).ok()?;
            // The one that reads this folder.
            let own = to.to_string_lossy().ends_with("/fd");
            (!own).then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect();
    fds.sort();
    fds
}

/// Waits until no more descriptors are open than these: a thread of the service closes its own a little later.
#[track_caller]
pub fn same_fds(before: &[String]) {
    let started = std::time::Instant::now();
    while open_fds() != before {
        assert!(started.elapsed().as_secs() < 20, "open before: {before:?}; now: {:?}", open_fds());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The driver has back what it gave out, once the service's threads have let go of what they were sending.
#[track_caller]
pub fn settles(driver: &HostDriver, before: Usage) {
    let patience = Instant::now() + Duration::from_secs(10);
    while driver.usage() != before && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(driver.usage(), before);
}
