//! The location of memory, and the access to it.

use std::fmt;

use crate::units::DeviceId;

/// The location of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Device memory.
    Device(DeviceId),
    /// Host memory; the system chooses the NUMA node.
    Host,
    /// Host memory on this NUMA node.
    HostNuma(u32),
    /// Host memory on the NUMA node that the calling thread runs on.
    HostNumaCurrent,
}

impl Place {
    /// Whether it is host memory.
    #[must_use]
    pub const fn is_host(self) -> bool {
        !matches!(self, Self::Device(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {device}"),
            Self::Host => f.write_str("the host"),
            Self::HostNuma(node) => write!(f, "NUMA node {node} of the host"),
            Self::HostNumaCurrent => f.write_str("the current NUMA node of the host"),
        }
    }
}

/// The access that a place has to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// No access.
    #[default]
    None,
    /// Reads only.
    Read,
    /// Reads and writes.
    ReadWrite,
}
