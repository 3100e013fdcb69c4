//! The driver layer: the only code that touches hardware or the operating system.
//!
//! One trait, two implementations with the same file names: [`cuda`] through cudarc and [`host`] on RAM.
//! One suite of tests, `tests/driver_conformance.rs`, asks both for what is written here.
//!
//! Rules that hold for every method:
//! - Any thread may call; the caller's current CUDA context is as before when the call returns.
//! - Every call is legal while a stream capture is under way elsewhere (CUDA: the calling thread is
//!   switched to the relaxed capture mode for the length of the call).
//! - A failed call changed nothing.
//! - After the driver has been deinitialised at process exit, calls that give something back succeed.

pub mod cuda;
pub mod error;
pub mod host;
mod host_memory;
mod open;
mod place;
mod pools;
pub mod process;
mod sharing;
mod virtual_memory;

use std::fmt::Debug;
use std::time::Duration;

pub use error::{DriverError, ErrorKind, Result};
pub use host_memory::{HostFlags, HostMemory, PointerInfo, PointerKind};
pub use open::{Choice, open};
pub use place::{Access, Place};
pub use pools::{PoolAttribute, PoolHandle, PoolOptions, Pools};
pub use sharing::{Blob, Sharing};
pub use virtual_memory::{Physical, PhysicalOptions, Share, VirtualMemory};

use crate::units::{Address, DeviceId, StreamHandle};

/// An event, owned by whoever created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// What a device can do. Read once; the layers above ask this, never a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Virtual memory management: reserve, create, map. Without it the pool is the driver's stream-ordered one.
    pub vmm: bool,
    /// The smallest size and alignment of physical memory, in bytes. A power of two.
    pub granularity: u64,
    /// Streams have an identity that is never used again, so a new stream at an old handle is noticed.
    /// CUDA: `cuStreamGetId`, from driver 12.0.
    pub stream_identity: bool,
    /// An event can be recorded behind all work of a device. CUDA: `cuCtxRecordEvent`, from driver 12.5.
    pub device_events: bool,
    /// The driver has stream-ordered pools (`cuMemPool*`) whose idle memory can be given back.
    pub driver_pools: bool,
    /// The driver's version as it reports it, e.g. 13000.
    pub version: u32,
    /// Physical memory can be exported as a POSIX file descriptor.
    pub posix_fd: bool,
    /// Physical memory can be exported as a fabric handle: the device says so. Creating it is still refused, with
    /// [`ErrorKind::Unsupported`], to a user without an IMEX channel.
    pub fabric: bool,
    /// Physical memory can be made reachable for network cards.
    pub rdma: bool,
    /// Physical memory can be created on a NUMA node of the host.
    pub host_numa: bool,
    /// The NUMA node of the host that is nearest to the device, where the driver knows one.
    pub numa_node: Option<u32>,
    /// Driver pools can be shared as a POSIX file descriptor.
    pub pool_fd: bool,
    /// The driver has stream-ordered pools of pinned host memory.
    pub host_pools: bool,
    /// The driver has stream-ordered pools of managed memory.
    pub managed_pools: bool,
    /// The device has managed memory (`cuMemAllocManaged`).
    pub managed: bool,
    /// Plain memory can be opened in another process (`cuIpc*`).
    pub legacy_ipc: bool,
}

/// Memory of a device as the driver sees it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not used by anybody.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

/// What a stream is doing about a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Work runs as it is queued.
    None,
    /// Work is being recorded into a graph; the number is the capture's own.
    Active(u64),
}

/// The hardware, or its stand-in: what the shared pool needs, and in the traits named, what resources need.
pub trait Driver: VirtualMemory + Pools + HostMemory + Sharing + Send + Sync + Debug {
    /// `"cuda"` or `"host"`.
    fn name(&self) -> &'static str;

    /// Names the memory behind the driver: two drivers with the same number hand out the same devices' memory.
    fn memory(&self) -> usize;

    /// How many devices there are.
    fn device_count(&self) -> u32;

    /// How much time has passed since the driver was opened. Never goes back. The host driver's time is what its calls are
    /// priced at and what a program [lets pass](Driver::pass), so that what depends on time is the same on every machine, busy or not.
    fn now(&self) -> Duration;

    /// Lets time pass on a driver whose time is not the machine's: what the program would have taken between its calls. Nothing elsewhere.
    fn pass(&self, _time: Duration) {}

    /// What `device` can do. pre: `device < device_count()`, here and below.
    fn capabilities(&self, device: DeviceId) -> Result<Capabilities>;

    /// The device of the context that is current on this thread; `None` where there is none, as on the host driver, which has
    /// no contexts.
    fn current_device(&self) -> Option<DeviceId>;

    /// The device of a stream, whichever `device` is; `None` for a default stream, which every device has, and where the
    /// driver does not say. pre: `stream` is alive.
    fn stream_device(&self, device: DeviceId, stream: StreamHandle) -> Option<DeviceId>;

    /// 16 bytes that name the same device in every process, whatever its ordinal there.
    fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]>;

    /// Free and total memory of `device`.
    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo>;

    // ---- virtual memory ------------------------------------------------------------------------------

    /// Reserves `bytes` of addresses with nothing behind them. pre: a multiple of the granularity.
    /// post: the range is ours until [`Driver::unreserve`], aligned to the granularity.
    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// Gives a whole reservation back. pre: nothing is mapped in it.
    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    /// Creates physical memory. pre: `bytes` is a multiple of the granularity.
    /// errors: [`ErrorKind::OutOfMemory`] when the device has no more.
    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical>;

    /// Drops the creator's hold on physical memory; what is still mapped stays until it is unmapped.
    fn release(&self, device: DeviceId, physical: Physical) -> Result<()>;

    /// Maps the whole of `physical` at `at`. pre: `at..at+bytes` is reserved and unmapped, `bytes` is
    /// the size it was created with. One handle may be mapped at several addresses at once.
    /// post: not accessible before [`Driver::grant`].
    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()>;

    /// Lets `device` read and write `at..at+bytes`. pre: the range is whole mappings, without a gap.
    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    /// Unmaps `at..at+bytes`. pre: whole mappings, no gap, and no queued work uses the range.
    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    // ---- plain memory --------------------------------------------------------------------------------

    /// Plain device memory (`cuMemAlloc`).
    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// Frees plain memory. May wait for the whole device.
    fn free(&self, device: DeviceId, at: Address) -> Result<()>;

    // ---- streams and events --------------------------------------------------------------------------

    /// A new stream that does not synchronise with the legacy default stream.
    fn stream_create(&self, device: DeviceId) -> Result<StreamHandle>;

    /// Destroys a stream made by [`Driver::stream_create`]. Its queued work still runs.
    fn stream_destroy(&self, device: DeviceId, stream: StreamHandle) -> Result<()>;

    /// Waits on the host until the stream's queued work is done.
    fn stream_synchronize(&self, device: DeviceId, stream: StreamHandle) -> Result<()>;

    /// Whether the stream's queued work is done. Never waits. pre: `stream` is alive and not being captured, and if it is the legacy
    /// stream, none that synchronises with it is.
    fn stream_idle(&self, device: DeviceId, stream: StreamHandle) -> Result<bool>;

    /// A number that this stream alone has, for the life of the process. pre: `stream` is alive, not being captured, and
    /// [`Capabilities::stream_identity`] holds.
    fn stream_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64>;

    /// Whether the stream is being captured. pre: `stream` is alive. errors: [`ErrorKind::Capturing`] for the legacy stream, which
    /// never is, while a stream that synchronises with it is: work of its own would then break that capture.
    fn stream_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture>;

    /// A new event without timing.
    fn event_create(&self, device: DeviceId) -> Result<Event>;

    /// Destroys an event.
    fn event_destroy(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Makes `event` stand for all work queued on `stream` so far. pre: `stream` is alive and not
    /// being captured. A second record moves the event on.
    fn event_record(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()>;

    /// Makes `event` stand for all work queued on every stream of `device` so far, also on streams that were
    /// destroyed and whose work still runs. For memory whose last stream may be gone: no stream handle is
    /// touched. errors: [`ErrorKind::Unsupported`] where the driver cannot (CUDA before 12.5);
    /// [`ErrorKind::Capturing`] while a stream of the device is being captured, and then the rules above do
    /// not hold: CUDA also invalidates the captures, so NVIDIA writes.
    fn event_record_all(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Whether the work that `event` stands for is done. Never waits. A never recorded event has passed.
    fn event_passed(&self, device: DeviceId, event: Event) -> Result<bool>;

    /// Waits on the host for `event`.
    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Makes work queued on `stream` from now on wait for `event`; the host goes on. pre: `stream` is alive.
    fn stream_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()>;

    /// Waits on the host for everything on `device`. errors: [`ErrorKind::Capturing`] while a stream of
    /// the device is being captured.
    fn synchronize(&self, device: DeviceId) -> Result<()>;

    // ---- data ----------------------------------------------------------------------------------------

    /// Copies on `stream`; either side may be device memory or host memory.
    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// Sets `bytes` bytes to `value` on `stream`.
    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// Repeats the low `width` bytes of `value` over `bytes` bytes on `stream`. pre: `width` is 1, 2 or 4; `to` and
    /// `bytes` are multiples of it.
    fn fill_pattern(
        &self,
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    // ---- giving back ---------------------------------------------------------------------------------

    /// Asks the driver's own pools of `device` to let go of what they hold idle.
    fn trim_driver_pools(&self, device: DeviceId) -> Result<()>;

    /// What the calls cost so far, where the driver keeps a ledger (the host driver does).
    fn ledger(&self) -> Option<Ledger> {
        None
    }
}

/// Calls made and what they would have cost on the GPU they are priced from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Driver calls made.
    pub calls: u64,
    /// Their price, in nanoseconds.
    pub nanoseconds: u64,
}
