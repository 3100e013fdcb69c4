//! The driver on RAM: not a mock, but the same contract kept by the operating system.
//!
//! Physical memory is a memfd, a reservation is `mmap` of nothing, a mapping is `mmap` of the memfd over
//! it: aliasing, access rights and data are real. Streams are queues ([`Clock`] says when they run), so a
//! test can hold work back and see what a missing wait would have corrupted. What CUDA leaves undefined
//! is an error or a counter here: use of a dead stream handle, work on memory that is no longer mapped.
//!
//! Two locks, never held together except memory's read half under running work: `memory` for the books of
//! addresses, `streams` for queues and events. Work runs under neither.

mod access;
mod blocks;
mod clock;
mod fault;
mod file;
mod gate;
mod host_memory;
mod ledger;
mod memory;
mod options;
mod pool_books;
mod pools;
mod sharing;
mod stream;
mod ticket;
mod usage;
mod virtual_memory;
mod vmm;
mod zone;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

pub use self::fault::Call;
pub use self::options::{Clock, HostOptions};
pub use self::usage::Usage;

use self::fault::Faults;
use self::ledger::Books;
use self::memory::Memory;
use self::stream::{Streams, Work};
use super::{
    Access, Capabilities, Capture, Driver, ErrorKind, Event, Ledger, MemoryInfo, Physical, PhysicalOptions, Place,
    PoolOptions, Result, Share,
};
use crate::units::{Address, DeviceId, StreamHandle};

/// The host driver. Dropping it unmaps everything that it gave out.
pub struct HostDriver {
    options: HostOptions,
    memory: RwLock<Memory>,
    streams: Mutex<Streams>,
    /// Signalled whenever an item of work is done.
    progress: Condvar,
    faults: Faults,
    books: Books,
    /// Nanoseconds that a program let pass.
    passed: AtomicU64,
    events_pass: AtomicBool,
    ignore_waits: AtomicBool,
    bad_accesses: AtomicU64,
}

impl HostDriver {
    /// A driver with devices of its own. errors: [`ErrorKind::Invalid`] for options that make no sense.
    pub fn new(options: HostOptions) -> Result<Self> {
        options.check(memory::page_size())?;
        Ok(Self {
            memory: RwLock::new(Memory::new(options)?),
            streams: Mutex::new(Streams::new(options.devices, options.clock)),
            progress: Condvar::new(),
            faults: Faults::new(),
            books: Books::default(),
            passed: AtomicU64::new(0),
            events_pass: AtomicBool::new(false),
            ignore_waits: AtomicBool::new(false),
            bad_accesses: AtomicU64::new(0),
            options,
        })
    }

    /// Makes the `nth` call of this kind from now on fail (1 is the next one) with [`ErrorKind::Failed`],
    /// changing nothing.
    pub fn fail(&self, call: Call, nth: u64) {
        self.fail_with(call, nth, ErrorKind::Failed);
    }

    /// [`HostDriver::fail`] with an error of a chosen kind.
    pub fn fail_with(&self, call: Call, nth: u64, kind: ErrorKind) {
        self.faults.plan(call, nth, kind);
    }

    /// Forgets planned faults that have not happened.
    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    /// How many calls of this kind were made, failed ones included.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.faults.calls(call)
    }

    /// A lie for tests that must notice it: every event has passed.
    pub fn lie_events_pass(&self, lie: bool) {
        self.events_pass.store(lie, Ordering::Relaxed);
    }

    /// A lie for tests that must notice it: `stream_wait` succeeds and does nothing.
    pub fn lie_ignore_waits(&self, lie: bool) {
        self.ignore_waits.store(lie, Ordering::Relaxed);
    }

    /// How many copies and fills found their memory unmapped when they ran, and did nothing. CUDA would
    /// have ended the context with an illegal address.
    #[must_use]
    pub fn bad_accesses(&self) -> u64 {
        self.bad_accesses.load(Ordering::Relaxed)
    }

    fn bad_access(&self) {
        self.bad_accesses.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Driver for HostDriver {
    fn name(&self) -> &'static str {
        "host"
    }

    fn memory(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.books.read().nanoseconds + self.passed.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.passed.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn device_count(&self) -> u32 {
        self.options.devices
    }

    fn capabilities(&self, device: DeviceId) -> Result<Capabilities> {
        self.known(Call::MemoryInfo, device)?;
        let host = &self.options;
        Ok(Capabilities {
            vmm: host.vmm,
            granularity: host.granularity,
            stream_identity: host.stream_identity,
            device_events: host.device_events,
            driver_pools: host.driver_pools,
            version: host.version,
            posix_fd: host.vmm && host.posix_fd,
            fabric: host.vmm && host.fabric,
            rdma: host.vmm && host.rdma,
            host_numa: host.vmm && host.host_numa,
            numa_node: host.host_numa.then(|| device.0 % host.numa_nodes),
            pool_fd: host.driver_pools && host.pool_fd,
            host_pools: host.driver_pools && host.host_pools,
            managed_pools: host.driver_pools && host.managed_pools,
            managed: host.managed,
            legacy_ipc: host.legacy_ipc,
        })
    }

    fn current_device(&self) -> Option<DeviceId> {
        None
    }

    fn stream_device(&self, _device: DeviceId, stream: StreamHandle) -> Option<DeviceId> {
        self.streams.lock().device_of(stream)
    }

    fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]> {
        self.enter(Call::DeviceUuid, device)?;
        let mut uuid = *b"forebay host\0\0\0\0";
        uuid[12..].copy_from_slice(&device.0.to_le_bytes());
        Ok(uuid)
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.enter(Call::MemoryInfo, device)?;
        Ok(self.memory.read().info(Place::Device(device)))
    }

    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.enter(Call::Reserve, device)?;
        self.memory.write().reserve(Call::Reserve, device, bytes, 0, Address(0))
    }

    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Unreserve, device)?;
        self.memory.write().unreserve(device, at, bytes)
    }

    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical> {
        self.enter(Call::Create, device)?;
        let share = if self.options.posix_fd { Share::Fd } else { Share::None };
        let options = PhysicalOptions { place: Place::Device(device), share, rdma: self.options.rdma };
        let physical = self.memory.write().create(Call::Create, bytes, &options)?;
        self.books.charge(Call::Create, bytes);
        Ok(physical)
    }

    fn release(&self, device: DeviceId, physical: Physical) -> Result<()> {
        self.enter(Call::Release, device)?;
        let (place, bytes) = self.memory.write().release(device, physical)?;
        self.books.charge_at(Call::Release, place, bytes);
        Ok(())
    }

    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.enter(Call::Map, device)?;
        let place = self.memory.write().map(device, at, bytes, physical)?;
        self.books.charge_at(Call::Map, place, bytes);
        Ok(())
    }

    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Grant, device)?;
        let access = [(Place::Device(device), Access::ReadWrite)];
        let handles = self.memory.write().grant(Call::Grant, at, bytes, &access)?;
        handles.into_iter().for_each(|(place, bytes)| self.books.charge_at(Call::Grant, place, bytes));
        Ok(())
    }

    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Unmap, device)?;
        let handles = self.memory.write().unmap(at, bytes)?;
        handles.into_iter().for_each(|(place, bytes)| self.books.charge_at(Call::Unmap, place, bytes));
        Ok(())
    }

    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.enter(Call::Allocate, device)?;
        let at = self.memory.write().allocate(device, bytes)?;
        self.books.charge(Call::Allocate, bytes);
        Ok(at)
    }

    fn free(&self, device: DeviceId, at: Address) -> Result<()> {
        self.enter(Call::Free, device)?;
        let bytes = self.memory.write().free(device, at)?;
        self.books.charge(Call::Free, bytes);
        Ok(())
    }

    fn stream_create(&self, device: DeviceId) -> Result<StreamHandle> {
        self.enter(Call::StreamCreate, device)?;
        Ok(self.streams.lock().create(device))
    }

    fn stream_destroy(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.enter(Call::StreamDestroy, device)?;
        self.streams.lock().destroy(device, stream)
    }

    fn stream_synchronize(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.enter(Call::StreamSynchronize, device)?;
        self.books.charge(Call::StreamSynchronize, 0);
        let mark = {
            let mut streams = self.streams.lock();
            let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
            streams.refuse_capture(Call::StreamSynchronize, identity)?;
            streams.tail(identity)
        };
        self.wait(Call::StreamSynchronize, mark)?;
        self.settle();
        Ok(())
    }

    fn stream_idle(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        self.enter(Call::StreamIdle, device)?;
        self.books.charge(Call::StreamIdle, 0);
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamIdle, device, stream)?;
        streams.refuse_capture(Call::StreamIdle, identity)?;
        let idle = streams.pending(&[streams.tail(identity)]).is_none();
        Ok(self.answer(streams, idle))
    }

    fn stream_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.enter(Call::StreamIdentity, device)?;
        self.books.charge(Call::StreamIdentity, 0);
        self.streams.lock().resolve(Call::StreamIdentity, device, stream)
    }

    fn stream_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture> {
        self.enter(Call::StreamCapture, device)?;
        self.books.charge(Call::StreamCapture, 0);
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        Ok(streams.capture(identity))
    }

    fn event_create(&self, device: DeviceId) -> Result<Event> {
        self.enter(Call::EventCreate, device)?;
        Ok(self.streams.lock().event_create(device))
    }

    fn event_destroy(&self, device: DeviceId, event: Event) -> Result<()> {
        self.enter(Call::EventDestroy, device)?;
        self.streams.lock().event_destroy(event)
    }

    fn event_record(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()> {
        self.enter(Call::EventRecord, device)?;
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::EventRecord, device, stream)?;
        streams.refuse_capture(Call::EventRecord, identity)?;
        streams.event_record(device, event, identity)?;
        self.books.charge(Call::EventRecord, 0);
        self.pump(streams);
        Ok(())
    }

    fn event_record_all(&self, device: DeviceId, event: Event) -> Result<()> {
        self.enter(Call::EventRecordAll, device)?;
        let mut streams = self.streams.lock();
        streams.refuse_any_capture(Call::EventRecordAll, device)?;
        streams.event_record_all(device, event)?;
        self.books.charge(Call::EventRecordAll, 0);
        Ok(())
    }

    fn event_passed(&self, device: DeviceId, event: Event) -> Result<bool> {
        self.enter(Call::EventPassed, device)?;
        self.books.charge(Call::EventPassed, 0);
        let streams = self.streams.lock();
        let marks = streams.event_marks(Call::EventPassed, event)?;
        let passed = marks.is_none_or(|marks| streams.pending(&marks).is_none());
        Ok(self.answer(streams, passed) || self.events_pass.load(Ordering::Relaxed))
    }

    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()> {
        self.enter(Call::EventWait, device)?;
        self.books.charge(Call::EventWait, 0);
        let marks = self.streams.lock().event_marks(Call::EventWait, event)?;
        marks.iter().flat_map(|marks| marks.iter()).try_for_each(|&mark| self.wait(Call::EventWait, mark))?;
        self.settle();
        Ok(())
    }

    fn stream_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()> {
        self.enter(Call::StreamWait, device)?;
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamWait, device, stream)?;
        let marks = streams.event_marks(Call::StreamWait, event)?;
        streams.refuse_capture(Call::StreamWait, identity)?;
        self.books.charge(Call::StreamWait, 0);
        if let Some(marks) = marks
            && !self.ignore_waits.load(Ordering::Relaxed)
        {
            streams.push(identity, Work::Wait(marks));
            self.pump(streams);
        }
        Ok(())
    }

    fn synchronize(&self, device: DeviceId) -> Result<()> {
        self.enter(Call::Synchronize, device)?;
        let marks = {
            let streams = self.streams.lock();
            streams.refuse_any_capture(Call::Synchronize, device)?;
            streams.tails(device)
        };
        marks.into_iter().try_for_each(|mark| self.wait(Call::Synchronize, mark))?;
        self.settle();
        Ok(())
    }

    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.enter(Call::Copy, device)?;
        self.check_access(Call::Copy, device, to, bytes, true)?;
        self.check_access(Call::Copy, device, from, bytes, false)?;
        self.enqueue(Call::Copy, device, stream, Work::Copy { device, to, from, bytes })
    }

    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.enter(Call::Fill, device)?;
        self.check_access(Call::Fill, device, to, bytes, true)?;
        self.enqueue(Call::Fill, device, stream, Work::Fill { device, to, value: value.into(), width: 1, bytes })
    }

    fn fill_pattern(
        &self,
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::FillPattern;
        self.enter(call, device)?;
        if !matches!(width, 1 | 2 | 4) {
            return Err(call.invalid(format!("a pattern of {width} bytes: 1, 2 and 4 are possible")));
        }
        if !to.0.is_multiple_of(width.into()) || !bytes.is_multiple_of(width.into()) {
            return Err(call.invalid(format!("{to}+{bytes} does not begin and end at a multiple of {width}")));
        }
        self.check_access(call, device, to, bytes, true)?;
        self.enqueue(call, device, stream, Work::Fill { device, to, value, width, bytes })
    }

    /// The default pool alone: a pool of the program's keeps what its threshold says.
    fn trim_driver_pools(&self, device: DeviceId) -> Result<()> {
        self.enter(Call::TrimDriverPools, device)?;
        let options = PoolOptions { place: Some(Place::Device(device)), managed: false, share: false, max_size: 0 };
        self.memory.write().trim_default_pool(options);
        Ok(())
    }

    fn ledger(&self) -> Option<Ledger> {
        Some(self.books.read())
    }
}
