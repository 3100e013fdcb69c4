//! Virtual memory with all its options; the shared pool's own few calls are in [`Driver`](super::Driver).

use super::error::Result;
use super::place::{Access, Place};
use crate::units::{Address, DeviceId};

/// Physical memory: one `CUmemGenericAllocationHandle`, or a range of a memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Physical(pub u64);

/// How physical memory can leave the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// Not at all.
    None,
    /// As a POSIX file descriptor.
    #[default]
    Fd,
    /// As a fabric handle.
    Fabric,
}

/// How physical memory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalOptions {
    /// Where it lies.
    pub place: Place,
    /// How it can be exported. Not at all from [`Place::Host`]: there a NUMA node must be named.
    pub share: Share,
    /// Whether network cards can reach it.
    pub rdma: bool,
}

/// Reservations, physical memory and access, with every option that CUDA has for them.
///
/// `device` names the context in which a call is made; memory of the host has none of its own.
/// errors, everywhere: [`ErrorKind::Unsupported`](super::ErrorKind::Unsupported) for what the device or driver lacks.
pub trait VirtualMemory {
    /// The granularity of physical memory of this kind: the smallest there is, or the one that the driver
    /// recommends for speed. A power of two.
    fn granularity(&self, device: DeviceId, options: &PhysicalOptions, recommended: bool) -> Result<u64>;

    /// Reserves addresses. pre: `bytes` is a multiple of the granularity; `alignment` is a power of two, or 0
    /// for the granularity; `hint` is where to try first, or 0.
    /// post: aligned; elsewhere than at `hint` where that is taken.
    fn reserve_at(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address>;

    /// Creates physical memory. pre: `bytes` is a multiple of the granularity of this kind.
    fn create_with(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical>;

    /// Says who may do what with `at..at+bytes`; whoever is not named keeps the access he had.
    /// pre: whole mappings, no gap. A host place stands for the host's threads, a device for its kernels and copies.
    fn grant_access(&self, device: DeviceId, at: Address, bytes: u64, access: &[(Place, Access)]) -> Result<()>;

    /// Whether `peer` can reach memory of `device`. A device reaches its own.
    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool>;
}
