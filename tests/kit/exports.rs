//! Memory to export: of the host driver, and descriptors of nothing.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay::driver::host::{HostDriver, HostOptions, Usage};
use forebay::driver::{
    Access, Driver, DriverError, ErrorKind, Physical, PhysicalOptions, Place, Share, Sharing, VirtualMemory,
};
use forebay::error::Result;
use forebay::resource::ipc::{Descriptor, Exported, Form, Handle, Location, Pieces, Route, Ticket, fetch, offer};
use forebay::units::{Address, DeviceId};

use super::driver::{HOME, host};
use super::memory::{mark, wrong_marks};
use super::process::{becomes, open_fds};

pub const DEVICE: DeviceId = HOME;
pub const GRANULE: u64 = 1 << 16;
pub const BOTH: [(Place, Access); 1] = [(Place::Device(DEVICE), Access::ReadWrite)];

/// The same in every process.
pub fn host_driver() -> Arc<HostDriver> {
    host(HostOptions { granularity: GRANULE, fabric: true, ..HostOptions::default() })
}

pub fn write(at: Address, bytes: u64, owner: u64) {
    mark(at, bytes, GRANULE / 2, owner);
}

#[track_caller]
pub fn holds(at: Address, bytes: u64, owner: u64) {
    assert_eq!(wrong_marks(at, bytes, GRANULE / 2, owner), 0, "{at}+{bytes} holds another's words");
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

/// Waits until no more descriptors are open than these: a thread of the service closes its own a little later.
#[track_caller]
pub fn same_fds(before: &[String]) {
    becomes("open descriptors", &before.to_vec(), open_fds);
}

/// The driver has back what it gave out, once the service's threads have let go of what they were sending.
#[track_caller]
pub fn settles(driver: &HostDriver, before: Usage) {
    becomes("the driver's usage", &before, || driver.usage());
}
