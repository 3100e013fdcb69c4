//! The driver's own stream-ordered pools (`cuMemPool*`).

use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::Result;
use super::place::{Access, Place};
use super::sharing::Blob;
use crate::units::{Address, DeviceId, StreamHandle};

/// A pool of the driver: a `CUmemoryPool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolHandle(pub u64);

/// What kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Where its memory lies; for managed memory, where it lies by preference.
    pub place: Option<Place>,
    /// Managed memory, which moves between host and devices; else pinned where it is.
    pub managed: bool,
    /// Whether it can be shared as a file descriptor. Not managed memory, nor [`Place::Host`]: there a NUMA node must
    /// be named.
    pub share: bool,
    /// Most bytes it holds; 0 for the driver's own limit, as managed pools must have.
    pub max_size: u64,
}

/// An attribute of a pool, by CUDA's names and numbers (`CU_MEMPOOL_ATTR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PoolAttribute {
    /// Memory freed on one stream may go to another that waited for an event behind the free. 0 or 1.
    ReuseFollowEventDependencies = 1,
    /// Memory whose free has completed may go to any stream. 0 or 1.
    ReuseAllowOpportunistic = 2,
    /// The driver may make a stream wait to reuse memory. 0 or 1.
    ReuseAllowInternalDependencies = 3,
    /// Bytes to keep from the system when a stream, event or context is synchronised.
    ReleaseThreshold = 4,
    /// Bytes of physical memory held. Read only.
    ReservedCurrent = 5,
    /// Their highest value; may be set to 0, which makes the present value the highest.
    ReservedHigh = 6,
    /// Bytes in use. Read only.
    UsedCurrent = 7,
    /// Their highest value; may be set to 0, which makes the present value the highest.
    UsedHigh = 8,
}

/// Stream-ordered pools. `device` names the context in which a call is made.
///
/// errors, everywhere: [`ErrorKind::Unsupported`](super::ErrorKind::Unsupported) where the driver has no such pools.
pub trait Pools {
    /// The pool that the driver made for this place. Not to be destroyed. `place` is `None` for managed memory
    /// without a preference.
    fn pool_default(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle>;

    /// The pool that is current for this place: the default one, unless the program set another.
    fn pool_current(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle>;

    /// A new pool. Its memory can at first be reached from its place only; pinned host memory also from the host.
    fn pool_create(&self, device: DeviceId, options: &PoolOptions) -> Result<PoolHandle>;

    /// Ends a pool that was created or imported here. Memory of it that is still in use stays until it is freed.
    fn pool_destroy(&self, device: DeviceId, pool: PoolHandle) -> Result<()>;

    /// Where the memory of a pool that is not managed lies; `None` where the driver does not say (CUDA before 13.1).
    fn pool_place(&self, device: DeviceId, pool: PoolHandle) -> Result<Option<Place>>;

    /// Reads an attribute.
    fn pool_attribute(&self, device: DeviceId, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64>;

    /// Writes an attribute. errors: [`ErrorKind::Invalid`](super::ErrorKind::Invalid) for what cannot be written.
    fn pool_set_attribute(
        &self,
        device: DeviceId,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()>;

    /// What `place` may do with the pool's memory.
    fn pool_access(&self, device: DeviceId, pool: PoolHandle, place: Place) -> Result<Access>;

    /// Says what `place` may do with the pool's memory, live blocks included.
    fn pool_set_access(&self, device: DeviceId, pool: PoolHandle, place: Place, access: Access) -> Result<()>;

    /// Gives idle memory back to the system until at most `keep` bytes are held.
    fn pool_trim(&self, device: DeviceId, pool: PoolHandle, keep: u64) -> Result<()>;

    /// Allocates in the order of `stream`. pre: `bytes` > 0.
    fn pool_allocate(&self, device: DeviceId, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<Address>;

    /// Frees what [`Pools::pool_allocate`] or [`Pools::pool_import_pointer`] gave, in the order of `stream`.
    fn pool_free(&self, device: DeviceId, at: Address, stream: StreamHandle) -> Result<()>;

    /// A descriptor of a pool created with [`PoolOptions::share`]; close-on-exec.
    fn pool_export_fd(&self, device: DeviceId, pool: PoolHandle) -> Result<OwnedFd>;

    /// The pool behind another process's descriptor. Nothing can be allocated from it, and it has no attributes
    /// but those that the driver gives imported pools.
    fn pool_import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<PoolHandle>;

    /// Names an allocation of a shared pool for another process.
    fn pool_export_pointer(&self, device: DeviceId, at: Address) -> Result<Blob>;

    /// The allocation that another process named, of the pool that it shared. Free it with [`Pools::pool_free`].
    /// The blob is not trusted: one that names nothing is an error.
    fn pool_import_pointer(&self, device: DeviceId, pool: PoolHandle, blob: &Blob) -> Result<Address>;
}
