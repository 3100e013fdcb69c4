//! Places and access in libcuda's terms.

use std::ffi::{c_int, c_uint};
use std::{io, ptr};

use cudarc::driver::sys::{
    CUmemAccess_flags_enum, CUmemAccessDesc, CUmemLocation, CUmemLocationType_enum as LocationType,
};

use super::CudaDriver;
use super::error::invalid;
use crate::driver::{Access, DriverError, ErrorKind, Place, Result};
use crate::units::DeviceId;

/// The location type of managed memory without a preferred location. libcuda reads the same number as
/// `CU_MEM_LOCATION_TYPE_NONE`.
pub(super) const NOWHERE: CUmemLocation = CUmemLocation { type_: LocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };

impl CudaDriver {
    /// The place for libcuda. The current NUMA node becomes a numbered one: neither physical memory nor a pool can be
    /// created at `CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT`, and later queries must name the same node.
    pub(super) fn location(&self, call: &'static str, place: Place) -> Result<CUmemLocation> {
        let (type_, id) = match place {
            Place::Device(device) => (LocationType::CU_MEM_LOCATION_TYPE_DEVICE, self.device(device)?.handle),
            Place::Host => (LocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Place::HostNuma(node) => (LocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, numbered(call, node)?),
            Place::HostNumaCurrent => (LocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, numbered(call, current_node()?)?),
        };
        Ok(CUmemLocation { type_, id })
    }

    /// The place for a location of libcuda's; `None` for one that this library does not know.
    pub(super) fn place_of(&self, kind: c_uint, id: u32) -> Option<Place> {
        let of_device = || self.devices.iter().position(|device| device.handle as u32 == id);
        match kind {
            kind if kind == LocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint => {
                of_device().map(|index| Place::Device(DeviceId(index as u32)))
            }
            kind if kind == LocationType::CU_MEM_LOCATION_TYPE_HOST as c_uint => Some(Place::Host),
            kind if kind == LocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA as c_uint => Some(Place::HostNuma(id)),
            _ => None,
        }
    }

    pub(super) fn descriptor(&self, call: &'static str, place: Place, access: Access) -> Result<CUmemAccessDesc> {
        let flags = match access {
            Access::None => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        Ok(CUmemAccessDesc { location: self.location(call, place)?, flags })
    }
}

fn numbered(call: &'static str, node: u32) -> Result<c_int> {
    c_int::try_from(node).map_err(|_| invalid(call, format!("NUMA node {node} is above {}, the highest", c_int::MAX)))
}

/// The NUMA node that the calling thread runs on; 0 on systems without such nodes, as libcuda wants it.
fn current_node() -> Result<u32> {
    let mut node: c_uint = 0;
    // SAFETY: writes one integer; the others may be null.
    let failed = unsafe {
        libc::syscall(libc::SYS_getcpu, ptr::null_mut::<c_uint>(), &raw mut node, ptr::null_mut::<libc::c_void>())
    };
    if failed != 0 {
        let detail = format!("the thread's NUMA node is unknown: {}; name a node", io::Error::last_os_error());
        return Err(DriverError::new(ErrorKind::Failed, "getcpu", detail));
    }
    Ok(node)
}
