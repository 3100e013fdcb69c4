//! The driver's own stream-ordered pools (`cuMemPool*`).

use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::Result;
use super::place::{Access, Place};
use super::sharing::Blob;
use crate::units::{Address, DeviceId, StreamHandle};

/// A driver pool: a `CUmemoryPool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolHandle(pub u64);

/// The properties of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// The location of its memory; for managed memory, the preferred location.
    pub place: Option<Place>,
    /// Managed memory, which migrates between host and devices; otherwise pinned at its location.
    pub managed: bool,
    /// Whether it can be shared as a file descriptor. Not possible for managed memory and for [`Place::Host`], which
    /// needs a NUMA node instead.
    pub share: bool,
    /// The most bytes that it may hold; 0: the driver's limit. Managed pools take 0 only.
    pub max_size: u64,
}

/// An attribute of a pool, by CUDA's names and numbers (`CU_MEMPOOL_ATTR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PoolAttribute {
    /// Memory freed on one stream may be reused on another stream that waited for an event recorded after the free. 0
    /// or 1.
    ReuseFollowEventDependencies = 1,
    /// Memory whose free has completed may be reused on any stream. 0 or 1.
    ReuseAllowOpportunistic = 2,
    /// The driver may insert a wait into a stream to reuse memory. 0 or 1.
    ReuseAllowInternalDependencies = 3,
    /// Bytes of idle memory that the pool keeps when a stream, event or context is synchronized.
    ReleaseThreshold = 4,
    /// Bytes of physical memory held. Read only.
    ReservedCurrent = 5,
    /// The peak of the attribute before. Setting 0 resets it to the present value.
    ReservedHigh = 6,
    /// Bytes in use. Read only.
    UsedCurrent = 7,
    /// The peak of the attribute before. Setting 0 resets it to the present value.
    UsedHigh = 8,
}

/// Stream-ordered pools. `device` names the context in which a call is made.
///
/// errors, everywhere: [`ErrorKind::Unsupported`](super::ErrorKind::Unsupported) if the driver has no such pools.
pub trait Pools {
    /// The driver's default pool for this place, which must not be destroyed. `place` is `None` for managed memory
    /// without a preferred location.
    fn pool_default(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle>;

    /// The current pool for this place: the default pool, unless the program set another.
    fn pool_current(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle>;

    /// A new pool. At first only its place has access to its memory; to pinned host memory the host, too.
    fn pool_create(&self, device: DeviceId, options: &PoolOptions) -> Result<PoolHandle>;

    /// Destroys a pool that was created or imported here. Memory in use stays valid until it is freed.
    fn pool_destroy(&self, device: DeviceId, pool: PoolHandle) -> Result<()>;

    /// The location of a pool that is not managed; `None` if the driver does not report it (CUDA before 13.1).
    fn pool_place(&self, device: DeviceId, pool: PoolHandle) -> Result<Option<Place>>;

    /// Reads an attribute.
    fn pool_attribute(&self, device: DeviceId, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64>;

    /// Writes an attribute. errors: [`ErrorKind::Invalid`](super::ErrorKind::Invalid) for a read-only attribute or a
    /// value out of range.
    fn pool_set_attribute(
        &self,
        device: DeviceId,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()>;

    /// The access of `place` to the pool's memory.
    fn pool_access(&self, device: DeviceId, pool: PoolHandle, place: Place) -> Result<Access>;

    /// Sets the access of `place` to the pool's memory, live blocks included.
    fn pool_set_access(&self, device: DeviceId, pool: PoolHandle, place: Place, access: Access) -> Result<()>;

    /// Gives idle memory back to the system until at most `keep` bytes are held.
    fn pool_trim(&self, device: DeviceId, pool: PoolHandle, keep: u64) -> Result<()>;

    /// Allocates in the order of `stream`. pre: `bytes` > 0.
    fn pool_allocate(&self, device: DeviceId, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<Address>;

    /// Frees memory from [`Pools::pool_allocate`] or [`Pools::pool_import_pointer`] in the order of `stream`.
    fn pool_free(&self, device: DeviceId, at: Address, stream: StreamHandle) -> Result<()>;

    /// A file descriptor of a pool created with [`PoolOptions::share`]; close-on-exec.
    fn pool_export_fd(&self, device: DeviceId, pool: PoolHandle) -> Result<OwnedFd>;

    /// Imports a pool by another process's file descriptor. It cannot allocate, and has only the attributes that the
    /// driver gives imported pools.
    fn pool_import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<PoolHandle>;

    /// The 64 bytes that name an allocation of a shared pool for another process.
    fn pool_export_pointer(&self, device: DeviceId, at: Address) -> Result<Blob>;

    /// Imports an allocation of the shared pool by these 64 bytes, which are untrusted: invalid ones are an error. Free
    /// it with [`Pools::pool_free`].
    fn pool_import_pointer(&self, device: DeviceId, pool: PoolHandle, blob: &Blob) -> Result<Address>;
}
