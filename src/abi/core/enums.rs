//! The numbered choices that options and calls take. Numbers never change their meaning.

use super::guard::Fault;
use crate::error::Error;

/// Declares nothing itself: each enum is written out, since cbindgen does not see macro-made ones; this reads them.
macro_rules! read {
    ($name:ident, $what:literal, $($variant:ident),*) => {
        impl $name {
            /// The choice of that number.
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

/// What kind of memory resource.
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

/// Which pool of the driver a resource stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayPoolSource {
    /// A new one, which the resource owns.
    New = 0,
    /// The one that is current.
    Current = 1,
    /// The driver's default one.
    Default = 2,
    /// The CUmemoryPool in the options.
    Handle = 3,
}
read!(ForebayPoolSource, "source of a pool", New, Current, Default, Handle);

/// Where memory lies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayLocation {
    /// On a device.
    Device = 0,
    /// On the host, wherever the system puts it.
    Host = 1,
    /// On a NUMA node of the host.
    HostNuma = 2,
    /// On the NUMA node that the calling thread runs on.
    HostNumaCurrent = 3,
    /// No preference.
    None = 4,
}
read!(ForebayLocation, "location", Device, Host, HostNuma, HostNumaCurrent, None);

/// How memory can leave the process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayHandleType {
    /// Not at all.
    None = 0,
    /// As a POSIX file descriptor.
    PosixFd = 1,
    /// Whatever the platform has; not on Linux.
    Generic = 2,
    /// A Windows handle; not on Linux.
    Win32 = 3,
    /// A Windows kernel handle; not on Linux.
    Win32Kmt = 4,
    /// A fabric handle.
    Fabric = 5,
}
read!(ForebayHandleType, "handle type", None, PosixFd, Generic, Win32, Win32Kmt, Fabric);

/// Which granularity sizes are rounded to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayGranularity {
    /// The smallest that works.
    Minimum = 0,
    /// The one that the driver recommends for speed.
    Recommended = 1,
}
read!(ForebayGranularity, "granularity", Minimum, Recommended);

/// What somebody may do with memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAccess {
    /// Nothing.
    None = 0,
    /// Read.
    Read = 1,
    /// Read and write.
    ReadWrite = 2,
}
read!(ForebayAccess, "access", None, Read, ReadWrite);

/// What virtual memory is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAllocationType {
    /// Pinned where it is.
    Pinned = 0,
    /// Managed.
    Managed = 1,
}
read!(ForebayAllocationType, "allocation type", Pinned, Managed);

/// An attribute of a pool; CUDA's CU_MEMPOOL_ATTR_* by their numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayAttribute {
    /// Memory freed on one stream may serve another that waited for an event behind the free. 0 or 1.
    ReuseFollowEventDependencies = 1,
    /// Memory whose free has completed may serve any stream. 0 or 1.
    ReuseAllowOpportunistic = 2,
    /// The pool may make a stream wait in order to reuse memory. 0 or 1.
    ReuseAllowInternalDependencies = 3,
    /// Bytes to keep from the system.
    ReleaseThreshold = 4,
    /// Bytes of physical memory held. Read only.
    ReservedMemCurrent = 5,
    /// Their highest value. Writing 0 makes the present value the highest.
    ReservedMemHigh = 6,
    /// Bytes in use. Read only.
    UsedMemCurrent = 7,
    /// Their highest value. Writing 0 makes the present value the highest.
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

/// How a buffer's memory came into this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayIpcPath {
    /// It is this process's own.
    None = 0,
    /// Through a pool of the driver, shared as a file descriptor.
    Pool = 1,
    /// As physical memory, by file descriptors over a UNIX socket.
    Fd = 2,
    /// As physical memory, by fabric handles.
    Fabric = 3,
    /// By a cuIpc handle.
    Legacy = 4,
}
