//! The host driver, on RAM: a second implementation of the driver's contract, by means of the operating system.
//!
//! Physical memory is a memfd, a reservation is `mmap` of nothing, a mapping is `mmap` of the memfd over it: aliasing,
//! access rights and data are real. Streams are queues ([`Clock`] says when they run), so a test can hold work back and
//! see what a missing wait would have corrupted. Undefined behaviour of CUDA is an error or a counter here: use of a
//! destroyed stream's handle, work on unmapped memory.
//!
//! It has two locks: `memory` for all memory, and that of `queues` for streams and events. They are never held
//! together, except that running work takes the read lock of `memory`. Closures run under neither.
//!
//! `memory` consists of independent parts: `places` (physical memory and its capacity), `vmm`, `blocks`, `pool_table`,
//! `registrations`, `foreign`. A function that needs two of them takes both.

mod blocks;
mod clock;
mod fault;
mod file;
mod foreign;
mod gate;
mod host_memory;
mod ledger;
mod memory;
mod options;
mod places;
mod pool_table;
mod pools;
mod queues;
mod registrations;
mod rights;
mod sharing;
mod stream;
mod system;
mod ticket;
mod usage;
mod virtual_memory;
mod vmm;
mod zone;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

pub use self::fault::Call;
pub use self::options::{Clock, HostOptions};
pub use self::usage::Usage;

use self::gate::Gate;
use self::memory::Memory;
use self::queues::Queues;
use self::stream::Work;
use super::{
    Access, Capabilities, Capture, Driver, ErrorKind, Event, Ledger, MemoryInfo, Physical, PhysicalOptions, Place,
    PoolOptions, Result, Share,
};
use crate::units::{Address, DeviceId, StreamHandle};

/// The host driver. Dropping it unmaps all its memory.
pub struct HostDriver {
    gate: Gate,
    memory: Arc<RwLock<Memory>>,
    queues: Queues,
    /// Nanoseconds that a program let pass.
    passed: AtomicU64,
    events_pass: AtomicBool,
    ignore_waits: AtomicBool,
}

impl HostDriver {
    /// A driver with its own devices. errors: [`ErrorKind::Invalid`] for invalid options.
    pub fn new(options: HostOptions) -> Result<Self> {
        options.check(system::page_size())?;
        let memory = Arc::new(RwLock::new(Memory::new(options)?));
        Ok(Self {
            gate: Gate::new(options),
            queues: Queues::new(options, Arc::clone(&memory)),
            memory,
            passed: AtomicU64::new(0),
            events_pass: AtomicBool::new(false),
            ignore_waits: AtomicBool::new(false),
        })
    }

    /// Makes the `nth` call of this kind from now on fail (1 is the next one) with [`ErrorKind::Failed`],
    /// changing nothing.
    pub fn fail(&self, call: Call, nth: u64) {
        self.fail_with(call, nth, ErrorKind::Failed);
    }

    /// [`HostDriver::fail`] with an error of a chosen kind.
    pub fn fail_with(&self, call: Call, nth: u64, kind: ErrorKind) {
        self.gate.faults.plan(call, nth, kind);
    }

    /// Forgets planned faults that have not happened.
    pub fn clear_faults(&self) {
        self.gate.faults.clear();
    }

    /// The number of calls of this kind, failed ones included.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.gate.faults.calls(call)
    }

    /// Makes every event pass, for tests that must detect this fault.
    pub fn lie_events_pass(&self, lie: bool) {
        self.events_pass.store(lie, Ordering::Relaxed);
    }

    /// Makes `stream_wait` succeed without effect, for tests that must detect this fault.
    pub fn lie_ignore_waits(&self, lie: bool) {
        self.ignore_waits.store(lie, Ordering::Relaxed);
    }

    /// The number of copies and fills that found their memory unmapped when they ran, and did nothing. CUDA would fail
    /// with an illegal address and lose the context.
    #[must_use]
    pub fn bad_accesses(&self) -> u64 {
        self.queues.bad_accesses()
    }
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver").field("options", &self.gate.options).finish_non_exhaustive()
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
        Duration::from_nanos(self.gate.totals.read().nanoseconds + self.passed.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.passed.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn device_count(&self) -> u32 {
        self.gate.options.devices
    }

    fn capabilities(&self, device: DeviceId) -> Result<Capabilities> {
        self.gate.known(Call::MemoryInfo, device)?;
        let host = &self.gate.options;
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
        self.queues.lock().device_of(stream)
    }

    fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]> {
        self.gate.enter(Call::DeviceUuid, device)?;
        let mut uuid = *b"forebay host\0\0\0\0";
        uuid[12..].copy_from_slice(&device.0.to_le_bytes());
        Ok(uuid)
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.gate.enter(Call::MemoryInfo, device)?;
        Ok(self.memory.read().places.info(Place::Device(device)))
    }

    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.gate.enter(Call::Reserve, device)?;
        self.memory.write().space.reserve(Call::Reserve, device, bytes, 0, Address(0))
    }

    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.gate.enter(Call::Unreserve, device)?;
        self.memory.write().space.unreserve(device, at, bytes)
    }

    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical> {
        self.gate.enter(Call::Create, device)?;
        let share = if self.gate.options.posix_fd { Share::Fd } else { Share::None };
        let options = PhysicalOptions { place: Place::Device(device), share, rdma: self.gate.options.rdma };
        let Memory { places, space, .. } = &mut *self.memory.write();
        let physical = space.create(places, Call::Create, bytes, &options)?;
        self.gate.totals.charge(Call::Create, bytes);
        Ok(physical)
    }

    fn release(&self, device: DeviceId, physical: Physical) -> Result<()> {
        self.gate.enter(Call::Release, device)?;
        let Memory { places, space, .. } = &mut *self.memory.write();
        let (place, bytes) = space.release(places, device, physical)?;
        self.gate.totals.charge_at(Call::Release, place, bytes);
        Ok(())
    }

    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.gate.enter(Call::Map, device)?;
        let place = self.memory.write().space.map(device, at, bytes, physical)?;
        self.gate.totals.charge_at(Call::Map, place, bytes);
        Ok(())
    }

    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.gate.enter(Call::Grant, device)?;
        let access = [(Place::Device(device), Access::ReadWrite)];
        let Memory { places, space, .. } = &mut *self.memory.write();
        let handles = space.grant(places, Call::Grant, at, bytes, &access)?;
        handles.into_iter().for_each(|(place, bytes)| self.gate.totals.charge_at(Call::Grant, place, bytes));
        Ok(())
    }

    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.gate.enter(Call::Unmap, device)?;
        let Memory { places, space, .. } = &mut *self.memory.write();
        let handles = space.unmap(places, at, bytes)?;
        handles.into_iter().for_each(|(place, bytes)| self.gate.totals.charge_at(Call::Unmap, place, bytes));
        Ok(())
    }

    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.gate.enter(Call::Allocate, device)?;
        let Memory { places, blocks, .. } = &mut *self.memory.write();
        let at = blocks.allocate(places, device, bytes)?;
        self.gate.totals.charge(Call::Allocate, bytes);
        Ok(at)
    }

    fn free(&self, device: DeviceId, at: Address) -> Result<()> {
        self.gate.enter(Call::Free, device)?;
        let Memory { places, blocks, .. } = &mut *self.memory.write();
        let bytes = blocks.free(places, device, at)?;
        self.gate.totals.charge(Call::Free, bytes);
        Ok(())
    }

    fn stream_create(&self, device: DeviceId) -> Result<StreamHandle> {
        self.gate.enter(Call::StreamCreate, device)?;
        Ok(self.queues.lock().create(device))
    }

    fn stream_destroy(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.gate.enter(Call::StreamDestroy, device)?;
        self.queues.lock().destroy(device, stream)
    }

    fn stream_synchronize(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.gate.enter(Call::StreamSynchronize, device)?;
        self.gate.totals.charge(Call::StreamSynchronize, 0);
        let mark = {
            let mut streams = self.queues.lock();
            let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
            streams.refuse_capture(Call::StreamSynchronize, identity)?;
            streams.tail(identity)
        };
        self.queues.wait(Call::StreamSynchronize, mark)?;
        self.queues.shrink_pools();
        Ok(())
    }

    fn stream_idle(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        self.gate.enter(Call::StreamIdle, device)?;
        self.gate.totals.charge(Call::StreamIdle, 0);
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamIdle, device, stream)?;
        streams.refuse_capture(Call::StreamIdle, identity)?;
        let idle = streams.pending(&[streams.tail(identity)]).is_none();
        Ok(self.queues.answer(streams, idle))
    }

    fn stream_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.gate.enter(Call::StreamIdentity, device)?;
        self.gate.totals.charge(Call::StreamIdentity, 0);
        self.queues.lock().resolve(Call::StreamIdentity, device, stream)
    }

    fn stream_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture> {
        self.gate.enter(Call::StreamCapture, device)?;
        self.gate.totals.charge(Call::StreamCapture, 0);
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        Ok(streams.capture(identity))
    }

    fn event_create(&self, device: DeviceId) -> Result<Event> {
        self.gate.enter(Call::EventCreate, device)?;
        Ok(self.queues.lock().event_create(device))
    }

    fn event_destroy(&self, device: DeviceId, event: Event) -> Result<()> {
        self.gate.enter(Call::EventDestroy, device)?;
        self.queues.lock().event_destroy(event)
    }

    fn event_record(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()> {
        self.gate.enter(Call::EventRecord, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::EventRecord, device, stream)?;
        streams.refuse_capture(Call::EventRecord, identity)?;
        streams.event_record(device, event, identity)?;
        self.gate.totals.charge(Call::EventRecord, 0);
        self.queues.pump(streams);
        Ok(())
    }

    fn event_record_all(&self, device: DeviceId, event: Event) -> Result<()> {
        self.gate.enter(Call::EventRecordAll, device)?;
        let mut streams = self.queues.lock();
        streams.refuse_any_capture(Call::EventRecordAll, device)?;
        streams.event_record_all(device, event)?;
        self.gate.totals.charge(Call::EventRecordAll, 0);
        Ok(())
    }

    fn event_passed(&self, device: DeviceId, event: Event) -> Result<bool> {
        self.gate.enter(Call::EventPassed, device)?;
        self.gate.totals.charge(Call::EventPassed, 0);
        let streams = self.queues.lock();
        let marks = streams.event_marks(Call::EventPassed, event)?;
        let passed = marks.is_none_or(|marks| streams.pending(&marks).is_none());
        Ok(self.queues.answer(streams, passed) || self.events_pass.load(Ordering::Relaxed))
    }

    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()> {
        self.gate.enter(Call::EventWait, device)?;
        self.gate.totals.charge(Call::EventWait, 0);
        let marks = self.queues.lock().event_marks(Call::EventWait, event)?;
        marks.iter().flat_map(|marks| marks.iter()).try_for_each(|&mark| self.queues.wait(Call::EventWait, mark))?;
        self.queues.shrink_pools();
        Ok(())
    }

    fn stream_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()> {
        self.gate.enter(Call::StreamWait, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamWait, device, stream)?;
        let marks = streams.event_marks(Call::StreamWait, event)?;
        streams.refuse_capture(Call::StreamWait, identity)?;
        self.gate.totals.charge(Call::StreamWait, 0);
        if let Some(marks) = marks
            && !self.ignore_waits.load(Ordering::Relaxed)
        {
            streams.push(identity, Work::Wait(marks));
            self.queues.pump(streams);
        }
        Ok(())
    }

    fn synchronize(&self, device: DeviceId) -> Result<()> {
        self.gate.enter(Call::Synchronize, device)?;
        let marks = {
            let streams = self.queues.lock();
            streams.refuse_any_capture(Call::Synchronize, device)?;
            streams.tails(device)
        };
        marks.into_iter().try_for_each(|mark| self.queues.wait(Call::Synchronize, mark))?;
        self.queues.shrink_pools();
        Ok(())
    }

    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.gate.enter(Call::Copy, device)?;
        self.memory.read().check_queued(Call::Copy, device, to, bytes, true)?;
        self.memory.read().check_queued(Call::Copy, device, from, bytes, false)?;
        self.queues.enqueue(Call::Copy, device, stream, Work::Copy { device, to, from, bytes })
    }

    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.gate.enter(Call::Fill, device)?;
        self.memory.read().check_queued(Call::Fill, device, to, bytes, true)?;
        self.queues.enqueue(Call::Fill, device, stream, Work::Fill { device, to, value: value.into(), width: 1, bytes })
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
        self.gate.enter(call, device)?;
        if !matches!(width, 1 | 2 | 4) {
            return Err(call.invalid(format!("a pattern of {width} bytes: 1, 2 and 4 are possible")));
        }
        if !to.0.is_multiple_of(width.into()) || !bytes.is_multiple_of(width.into()) {
            return Err(call.invalid(format!("{to}+{bytes} does not begin and end at a multiple of {width}")));
        }
        self.memory.read().check_queued(call, device, to, bytes, true)?;
        self.queues.enqueue(call, device, stream, Work::Fill { device, to, value, width, bytes })
    }

    /// Trims the default pool only: a pool of the program keeps memory by its threshold.
    fn trim_driver_pools(&self, device: DeviceId) -> Result<()> {
        self.gate.enter(Call::TrimDriverPools, device)?;
        let options = PoolOptions { place: Some(Place::Device(device)), managed: false, share: false, max_size: 0 };
        let Memory { places, pools, .. } = &mut *self.memory.write();
        pools.trim_default(places, options);
        Ok(())
    }

    fn ledger(&self) -> Option<Ledger> {
        Some(self.gate.totals.read())
    }
}
