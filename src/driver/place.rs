//! Where memory lies, and who may touch it.

use std::fmt;

use crate::units::DeviceId;

/// Where physical memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Memory of a device.
    Device(DeviceId),
    /// Memory of the host, wherever the system puts it.
    Host,
    /// Memory of the host on this NUMA node.
    HostNuma(u32),
    /// Memory of the host on the node that the calling thread runs on.
    HostNumaCurrent,
}

impl Place {
    /// Whether the memory is the host's.
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

/// What somebody may do with memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}
