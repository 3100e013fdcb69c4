//! The driver layer: the only code that touches hardware or the operating system.
//!
//! One trait, two implementations with the same file names: [`cuda`] through cudarc and [`host`] on RAM. One suite of
//! tests, `tests/driver_conformance.rs`, checks both against the contract in this file.
//!
//! Rules that hold for every method:
//! - Any thread may call; the caller's current CUDA context is as before when the call returns.
//! - Every call is legal while a stream capture is under way elsewhere (CUDA: the calling thread is
//!   switched to the relaxed capture mode for the length of the call).
//! - A failed call changed nothing.
//! - After the driver has shut down at process exit, calls that free or destroy succeed.

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

/// An event, owned by its creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// The features of a device. Read once; the layers above check these, never a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Virtual memory management: reserve, create, map. Without it the pool is the driver's stream-ordered one.
    pub vmm: bool,
    /// The smallest size and alignment of physical memory, in bytes. A power of two.
    pub granularity: u64,
    /// Streams have an identity that is never reused, which tells a new stream from an old one with the same handle.
    /// CUDA: `cuStreamGetId`, from driver 12.0.
    pub stream_identity: bool,
    /// An event can be recorded behind all work of a device. CUDA: `cuCtxRecordEvent`, from driver 12.5.
    pub device_events: bool,
    /// The driver has stream-ordered pools (`cuMemPool*`) whose idle memory can be given back.
    pub driver_pools: bool,
    /// The driver's version as it reports it, such as 13000.
    pub version: u32,
    /// Physical memory can be exported as a POSIX file descriptor.
    pub posix_fd: bool,
    /// Physical memory can be exported as a fabric handle, as the device reports. Creating such memory still fails with
    /// [`ErrorKind::Unsupported`] for a user without an IMEX channel.
    pub fabric: bool,
    /// Physical memory can be made reachable for network cards.
    pub rdma: bool,
    /// Physical memory can be created on a NUMA node of the host.
    pub host_numa: bool,
    /// The NUMA node of the host that is nearest to the device, if the driver reports one.
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

/// Memory of a device as the driver reports it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free memory.
    pub free: u64,
    /// All memory of the device.
    pub total: u64,
}

/// The capture status of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Work runs as it is queued.
    None,
    /// Work is recorded into a graph by the capture with this number.
    Active(u64),
}

/// The driver: the calls that pools need, and by its supertraits those that resources need.
pub trait Driver: VirtualMemory + Pools + HostMemory + Sharing + Send + Sync + Debug {
    /// `"cuda"` or `"host"`.
    fn name(&self) -> &'static str;

    /// Identifies the memory behind the driver: two drivers with the same number use the same devices.
    fn memory(&self) -> usize;

    /// The number of devices.
    fn device_count(&self) -> u32;

    /// The time since the driver was opened. Never goes back. On the host driver it is the sum of its calls' prices and
    /// of the time that a program [lets pass](Driver::pass), so that results do not depend on the machine or its load.
    fn now(&self) -> Duration;

    /// Adds the time that a program would take between its calls to the host driver's time. Does nothing on CUDA.
    fn pass(&self, _time: Duration) {}

    /// The features of `device`. pre: `device < device_count()`, here and below.
    fn capabilities(&self, device: DeviceId) -> Result<Capabilities>;

    /// The device of the thread's current context; `None` without one, as on the host driver, which has no contexts.
    fn current_device(&self) -> Option<DeviceId>;

    /// The device of a stream, which may differ from `device`; `None` for a default stream, which every device has, and
    /// if the driver does not report it. pre: `stream` is alive.
    fn stream_device(&self, device: DeviceId, stream: StreamHandle) -> Option<DeviceId>;

    /// The UUID of the device, which is the same in every process.
    fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]>;

    /// Free and total memory of `device`.
    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo>;

    // ---- virtual memory ------------------------------------------------------------------------------

    /// Reserves `bytes` of addresses with nothing behind them. pre: a multiple of the granularity.
    /// post: the range stays reserved until [`Driver::unreserve`], and is aligned to the granularity.
    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// Frees a whole reservation. pre: nothing is mapped in it.
    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    /// Creates physical memory. pre: `bytes` is a multiple of the granularity.
    /// errors: [`ErrorKind::OutOfMemory`] when the device has no more.
    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical>;

    /// Releases the handle of physical memory; memory that is still mapped lives until it is unmapped.
    fn release(&self, device: DeviceId, physical: Physical) -> Result<()>;

    /// Maps the whole of `physical` at `at`. pre: `at..at+bytes` is reserved and unmapped, `bytes` is
    /// the size it was created with. One handle may be mapped at several addresses at once.
    /// post: not accessible before [`Driver::grant`].
    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()>;

    /// Grants `device` read and write access to `at..at+bytes`. pre: the range is whole mappings, without a gap.
    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    /// Unmaps `at..at+bytes`. pre: whole mappings, no gap, and no queued work uses the range.
    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()>;

    // ---- plain memory --------------------------------------------------------------------------------

    /// Plain device memory (`cuMemAlloc`).
    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<Address>;

    /// Frees plain memory. May wait for the whole device.
    fn free(&self, device: DeviceId, at: Address) -> Result<()>;

    // ---- streams and events --------------------------------------------------------------------------

    /// A new stream that does not synchronize with the legacy default stream.
    fn stream_create(&self, device: DeviceId) -> Result<StreamHandle>;

    /// Destroys a stream made by [`Driver::stream_create`]. Its queued work still runs.
    fn stream_destroy(&self, device: DeviceId, stream: StreamHandle) -> Result<()>;

    /// Waits on the host until the stream's queued work is done.
    fn stream_synchronize(&self, device: DeviceId, stream: StreamHandle) -> Result<()>;

    /// Whether the stream's queued work is done. Never waits. pre: `stream` is alive and not being captured; for the
    /// legacy stream, no stream that synchronizes with it is being captured.
    fn stream_idle(&self, device: DeviceId, stream: StreamHandle) -> Result<bool>;

    /// A number that no other stream has in the life of the process. pre: `stream` is alive, not being captured, and
    /// [`Capabilities::stream_identity`] holds.
    fn stream_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64>;

    /// Whether the stream is being captured. pre: `stream` is alive. errors: [`ErrorKind::Capturing`] for the legacy
    /// stream while a stream that synchronizes with it is being captured: work on the legacy stream would then break
    /// that capture.
    fn stream_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture>;

    /// A new event without timing.
    fn event_create(&self, device: DeviceId) -> Result<Event>;

    /// Destroys an event.
    fn event_destroy(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Records `event` behind all work queued on `stream` so far. pre: `stream` is alive and not being captured. A
    /// second record replaces the first.
    fn event_record(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()>;

    /// Records `event` behind all work queued on every stream of `device` so far, also on destroyed streams with
    /// unfinished work. Uses no stream handle, so it works for memory whose last stream may be destroyed. errors:
    /// [`ErrorKind::Unsupported`] if the driver lacks the call (CUDA before 12.5); [`ErrorKind::Capturing`] while a
    /// stream of the device is being captured. That failure does change something: by NVIDIA's manual of
    /// `cuCtxRecordEvent`, CUDA also invalidates the captures.
    fn event_record_all(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Whether the work before `event` is done. Never waits. An event that was never recorded has passed.
    fn event_passed(&self, device: DeviceId, event: Event) -> Result<bool>;

    /// Waits on the host for `event`.
    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()>;

    /// Makes work queued on `stream` from now on wait for `event`, without a wait on the host. pre: `stream` is alive.
    fn stream_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()>;

    /// Waits on the host for all work of `device`. errors: [`ErrorKind::Capturing`] while a stream of the device is
    /// being captured.
    fn synchronize(&self, device: DeviceId) -> Result<()>;

    // ---- data ----------------------------------------------------------------------------------------

    /// Copies on `stream`; either side may be device memory or host memory.
    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// Sets `bytes` bytes to `value` on `stream`.
    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// Fills `bytes` bytes with the low `width` bytes of `value`, repeated, on `stream`. pre: `width` is 1, 2 or 4;
    /// `to` and `bytes` are multiples of it.
    fn fill_pattern(
        &self,
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    // ---- trimming ------------------------------------------------------------------------------------

    /// Trims the driver's own pools of `device` to the memory in use.
    fn trim_driver_pools(&self, device: DeviceId) -> Result<()>;

    /// The calls made so far and their prices; `None` on CUDA.
    fn ledger(&self) -> Option<Ledger> {
        None
    }
}

/// The driver calls made, and the time that they would have taken on the GPU that the prices were measured on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Driver calls made.
    pub calls: u64,
    /// Their price, in nanoseconds.
    pub nanoseconds: u64,
}
