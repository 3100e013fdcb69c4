//! Virtual memory with all options; the calls that pools need are in [`Driver`](super::Driver).

use super::error::Result;
use super::place::{Access, Place};
use crate::units::{Address, DeviceId};

/// Physical memory: one `CUmemGenericAllocationHandle`, or a range of a memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Physical(pub u64);

/// The handle by which physical memory is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// Not exported.
    None,
    /// A POSIX file descriptor.
    #[default]
    Fd,
    /// A fabric handle.
    Fabric,
}

/// Options of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalOptions {
    /// Its location.
    pub place: Place,
    /// The handle for exports. [`Place::Host`] cannot be exported; use a NUMA node instead.
    pub share: Share,
    /// Whether network cards can reach it.
    pub rdma: bool,
}

/// Reservations, physical memory and access, with every option that CUDA has for them.
///
/// Calls are made in the context of `device`; host memory has none of its own. errors, everywhere:
/// [`ErrorKind::Unsupported`](super::ErrorKind::Unsupported) for features that the device or driver lacks.
pub trait VirtualMemory {
    /// The granularity of physical memory with these options: the minimum, or the one that the driver recommends for
    /// speed. A power of two.
    fn granularity(&self, device: DeviceId, options: &PhysicalOptions, recommended: bool) -> Result<u64>;

    /// Reserves addresses. pre: `bytes` is a multiple of the granularity; `alignment` is a power of two, or 0 for the
    /// granularity; `hint` is the address to try first, or 0.
    /// post: aligned; at another address if `hint` is taken.
    fn reserve_at(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address>;

    /// Creates physical memory. pre: `bytes` is a multiple of the granularity.
    fn create_with(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical>;

    /// Sets the access of the named places to `at..at+bytes`; other places keep theirs.
    /// pre: whole mappings, no gap. A host place stands for the host's threads, a device for its kernels and copies.
    fn grant_access(&self, device: DeviceId, at: Address, bytes: u64, access: &[(Place, Access)]) -> Result<()>;

    /// Whether `peer` can reach memory of `device`. A device reaches its own.
    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool>;
}
