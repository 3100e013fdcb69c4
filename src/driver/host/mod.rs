//! The driver on RAM: not a mock, but the same contract kept by the operating system.
//!
//! Physical memory is a memfd, a reservation is `mmap` of nothing, a mapping is `mmap` of the memfd over
//! it: aliasing, access rights and data are real. Streams are queues ([`Clock`] says when they run), so a
//! test can hold work back and see what a missing wait would have corrupted. What CUDA leaves undefined
//! is an error or a counter here: use of a dead stream handle, work on memory that is no longer mapped.
//!
//! Two locks, never held together except memory's read half under running work: `memory` for the books of
//! addresses, `streams` for queues and events. Work runs under neither.

mod clock;
mod fault;
mod ledger;
mod memory;
mod options;
mod stream;
mod vmm;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};

pub use self::fault::Call;
pub use self::options::{Clock, HostOptions};

use self::fault::Faults;
use self::ledger::Books;
use self::memory::Memory;
use self::stream::{Streams, Work};
use super::{Capabilities, Capture, Driver, DriverError, ErrorKind, Event, Ledger, MemoryInfo, Physical, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// What the driver has given out and not got back. Equal before and after means that nothing leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Reservations.
    pub reservations: u64,
    /// Mappings: one handle at two addresses counts twice.
    pub mappings: u64,
    /// Physical handles created and not released.
    pub handles: u64,
    /// Bytes counted against the capacity, on all devices: handles held or mapped, and plain allocations.
    pub bytes: u64,
    /// Plain allocations.
    pub allocations: u64,
    /// Events.
    pub events: u64,
    /// Streams made by `stream_create`.
    pub streams: u64,
}

/// The host driver. Dropping it unmaps everything that it gave out.
pub struct HostDriver {
    options: HostOptions,
    memory: RwLock<Memory>,
    streams: Mutex<Streams>,
    /// Signalled whenever an item of work is done.
    progress: Condvar,
    faults: Faults,
    books: Books,
    events_pass: AtomicBool,
    ignore_waits: AtomicBool,
    bad_accesses: AtomicU64,
}

impl HostDriver {
    /// A driver with devices of its own. errors: [`ErrorKind::Invalid`] for options that make no sense.
    pub fn new(options: HostOptions) -> Result<Self> {
        options.check(memory::page_size())?;
        Ok(Self {
            memory: RwLock::new(Memory::new(options.devices, options.capacity, options.granularity)?),
            streams: Mutex::new(Streams::new(options.devices, options.clock)),
            progress: Condvar::new(),
            faults: Faults::new(),
            books: Books::default(),
            events_pass: AtomicBool::new(false),
            ignore_waits: AtomicBool::new(false),
            bad_accesses: AtomicU64::new(0),
            options,
        })
    }

    /// What is given out now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (events, streams) = {
            let streams = self.streams.lock();
            (streams.event_count(), streams.created_count())
        };
        let memory = self.memory.read();
        Usage {
            reservations: memory.reservations.len() as u64,
            mappings: memory.mappings.len() as u64,
            handles: memory.ranges.values().filter(|range| range.held).count() as u64,
            bytes: memory.devices.iter().map(|device| device.used).sum(),
            allocations: memory.plain_count(),
            events,
            streams,
        }
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

    /// Counts a call and refuses it where a fault is due, the device unknown or the feature missing.
    fn enter(&self, call: Call, device: DeviceId) -> Result<()> {
        self.books.count();
        self.faults.enter(call)?;
        self.known(call, device)?;
        let lacks = match call {
            Call::Reserve | Call::Unreserve | Call::Create | Call::Release | Call::Map | Call::Grant | Call::Unmap => {
                !self.options.vmm
            }
            Call::StreamIdentity => !self.options.stream_identity,
            Call::TrimDriverPools => !self.options.driver_pools,
            Call::EventRecordAll => !self.options.device_events,
            _ => false,
        };
        if lacks {
            return Err(DriverError::new(ErrorKind::Unsupported, call.name(), "switched off in HostOptions"));
        }
        Ok(())
    }

    fn known(&self, call: Call, device: DeviceId) -> Result<()> {
        if device.0 < self.options.devices {
            return Ok(());
        }
        Err(call.invalid(format!("device {device} of {}", self.options.devices)))
    }

    fn check_access(&self, call: Call, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.memory.read().check_access(device, at.0, bytes).map_err(|why| call.invalid(why))
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

    fn device_count(&self) -> u32 {
        self.options.devices
    }

    fn capabilities(&self, device: DeviceId) -> Result<Capabilities> {
        self.known(Call::MemoryInfo, device)?;
        let HostOptions { vmm, granularity, stream_identity, driver_pools, version, .. } = self.options;
        Ok(Capabilities {
            vmm,
            granularity,
            stream_identity,
            driver_pools,
            version,
            posix_fd: vmm,
            fabric: false,
            rdma: false,
            host_numa: vmm,
            numa_node: Some(0),
            pool_fd: driver_pools,
            host_pools: driver_pools,
            managed_pools: driver_pools,
            managed: true,
            legacy_ipc: true,
        })
    }

    fn device_uuid(&self, _device: DeviceId) -> Result<[u8; 16]> {
        todo!()
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.enter(Call::MemoryInfo, device)?;
        Ok(self.memory.read().info(device))
    }

    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.enter(Call::Reserve, device)?;
        self.memory.write().reserve(device, bytes)
    }

    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Unreserve, device)?;
        self.memory.write().unreserve(device, at, bytes)
    }

    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical> {
        self.enter(Call::Create, device)?;
        let physical = self.memory.write().create(device, bytes)?;
        self.books.charge(Call::Create, bytes);
        Ok(physical)
    }

    fn release(&self, device: DeviceId, physical: Physical) -> Result<()> {
        self.enter(Call::Release, device)?;
        let bytes = self.memory.write().release(device, physical)?;
        self.books.charge(Call::Release, bytes);
        Ok(())
    }

    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.enter(Call::Map, device)?;
        self.memory.write().map(device, at, bytes, physical)?;
        self.books.charge(Call::Map, bytes);
        Ok(())
    }

    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Grant, device)?;
        let handles = self.memory.write().grant(device, at, bytes)?;
        handles.into_iter().for_each(|bytes| self.books.charge(Call::Grant, bytes));
        Ok(())
    }

    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.enter(Call::Unmap, device)?;
        let handles = self.memory.write().unmap(at, bytes)?;
        handles.into_iter().for_each(|bytes| self.books.charge(Call::Unmap, bytes));
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
        self.wait(Call::StreamSynchronize, mark)
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
        Ok(self.events_pass.load(Ordering::Relaxed) || marks.is_none_or(|marks| streams.pending(&marks).is_none()))
    }

    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()> {
        self.enter(Call::EventWait, device)?;
        self.books.charge(Call::EventWait, 0);
        let marks = self.streams.lock().event_marks(Call::EventWait, event)?;
        marks.iter().flat_map(|marks| marks.iter()).try_for_each(|&mark| self.wait(Call::EventWait, mark))
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
        marks.into_iter().try_for_each(|mark| self.wait(Call::Synchronize, mark))
    }

    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.enter(Call::Copy, device)?;
        self.check_access(Call::Copy, device, to, bytes)?;
        self.check_access(Call::Copy, device, from, bytes)?;
        self.enqueue(Call::Copy, device, stream, Work::Copy { device, to, from, bytes })
    }

    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.enter(Call::Fill, device)?;
        self.check_access(Call::Fill, device, to, bytes)?;
        self.enqueue(Call::Fill, device, stream, Work::Fill { device, to, value, bytes })
    }

    fn fill_pattern(
        &self,
        _device: DeviceId,
        _to: Address,
        _value: u32,
        _width: u32,
        _bytes: u64,
        _stream: StreamHandle,
    ) -> Result<()> {
        todo!()
    }

    fn trim_driver_pools(&self, device: DeviceId) -> Result<()> {
        self.enter(Call::TrimDriverPools, device)
    }

    fn ledger(&self) -> Option<Ledger> {
        Some(self.books.read())
    }
}
