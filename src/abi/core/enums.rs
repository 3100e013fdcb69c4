//! The enums that options and calls take, as `u32`. A number never changes its meaning.

use super::guard::Fault;
use crate::error::Error;

/// Implements `read` for an enum. The enums themselves are written out, since cbindgen does not see what macros make.
macro_rules! read {
    ($name:ident, $what:literal, $($variant:ident),*) => {
        impl $name {
            /// The variant with that number, or an error that gives the range.
            pub(crate) fn read(number: u32) -> Result<Self, Fault> {
                match number {
                    $(n if n == Self::$variant as u32 => Ok(Self::$variant),)*
                    other => Err(unknown($what, other, &[$(Self::$variant as u32),*])),
                }
            }
        }
    };
}

fn unknown(what: &str, number: u32, known: &[u32]) -> Fault {
    let (first, last) = (known.first().unwrap_or(&0), known.last().unwrap_or(&0));
    Error::invalid(format_args!("{number} is no {what}; there are {first} to {last}")).into()
}

/// The kind of a memory resource.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayResourceKind {
    /// The driver's stream-ordered pool of a device.
    Device = 0,
    /// A stream-ordered pool of pinned host memory.
    Pinned = 1,
    /// The driver's stream-ordered pool of managed memory.
    Managed = 2,
    /// Virtual memory: buffers that can grow.
    Virtual = 3,
    /// Page-locked host memory without streams.
    Host = 4,
    /// A forebay_pool.
    Pool = 5,
}

/// The driver pool that a resource uses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayPoolSource {
    /// A new pool, which the resource owns.
    New = 0,
    /// The current pool (cuDeviceGetMemPool, cuMemGetMemPool).
    Current = 1,
    /// The driver's default pool (cuDeviceGetDefaultMemPool, cuMemGetDefaultMemPool).
    Default = 2,
    /// The CUmemoryPool in the options.
    Handle = 3,
}
read!(ForebayPoolSource, "source of a pool", New, Current, Default, Handle);

/// The location of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayLocation {
    /// On a device.
    Device = 0,
    /// On the host; the system chooses the NUMA node.
    Host = 1,
    /// On a NUMA node of the host.
    HostNuma = 2,
    /// On the NUMA node that the calling thread runs on.
    HostNumaCurrent = 3,
    /// No preference.
    None = 4,
}
read!(ForebayLocation, "location", Device, Host, HostNuma, HostNumaCurrent, None);

/// The handle by which memory is shared with other processes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayHandleType {
    /// No handle: the memory is not shared.
    None = 0,
    /// A POSIX file descriptor.
    PosixFd = 1,
    /// The platform's generic handle; not on Linux.
    Generic = 2,
    /// A Windows handle; not on Linux.
    Win32 = 3,
    /// A Windows kernel handle; not on Linux.
    Win32Kmt = 4,
    /// A fabric handle.
    Fabric = 5,
}
read!(ForebayHandleType, "handle type", None, PosixFd, Generic, Win32, Win32Kmt, Fabric);

/// The driver's granularity, to which sizes are rounded up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayGranularity {
    /// CU_MEM_ALLOC_GRANULARITY_MINIMUM.
    Minimum = 0,
    /// CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, which the driver recommends for speed.
    Recommended = 1,
}
read!(ForebayGranularity, "granularity", Minimum, Recommended);

/// The access that a device has to memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAccess {
    /// No access.
    None = 0,
    /// Reads only.
    Read = 1,
    /// Reads and writes.
    ReadWrite = 2,
}
read!(ForebayAccess, "access", None, Read, ReadWrite);

/// The type of the physical memory behind virtual addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAllocationType {
    /// Pinned: it stays at its location.
    Pinned = 0,
    /// Managed: the driver migrates it between devices and host.
    Managed = 1,
}
read!(ForebayAllocationType, "allocation type", Pinned, Managed);

/// An attribute of a pool, with the numbers of CUDA's CU_MEMPOOL_ATTR_*.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAttribute {
    /// 1: memory freed on one stream may be reused on another stream that waited for an event recorded after the free.
    /// 0 or 1.
    ReuseFollowEventDependencies = 1,
    /// 1: memory whose free has completed may be reused on any stream. 0 or 1.
    ReuseAllowOpportunistic = 2,
    /// 1: the pool may insert a wait into a stream in order to reuse memory. 0 or 1.
    ReuseAllowInternalDependencies = 3,
    /// Bytes of idle memory that the pool keeps; above that it gives memory back to the system at synchronization.
    ReleaseThreshold = 4,
    /// Bytes of physical memory that the pool holds. Read only.
    ReservedMemCurrent = 5,
    /// The peak of RESERVED_MEM_CURRENT, in bytes. Writing 0 resets it to the present value.
    ReservedMemHigh = 6,
    /// Bytes in live allocations. Read only.
    UsedMemCurrent = 7,
    /// The peak of USED_MEM_CURRENT, in bytes. Writing 0 resets it to the present value.
    UsedMemHigh = 8,
}
read!(
    ForebayAttribute,
    "attribute of a pool",
    ReuseFollowEventDependencies,
    ReuseAllowOpportunistic,
    ReuseAllowInternalDependencies,
    ReleaseThreshold,
    ReservedMemCurrent,
    ReservedMemHigh,
    UsedMemCurrent,
    UsedMemHigh
);

/// The path by which a buffer's memory came into this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayIpcPath {
    /// Not imported: this process allocated it.
    None = 0,
    /// A buffer of a driver pool that is mapped here through a file descriptor.
    Pool = 1,
    /// Physical memory, as file descriptors over a UNIX socket.
    Fd = 2,
    /// Physical memory, as fabric handles.
    Fabric = 3,
    /// A legacy handle (cuIpcGetMemHandle).
    Legacy = 4,
}
