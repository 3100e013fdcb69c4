//! Options of memory resources.

use crate::abi::core::enums::{
    ForebayAccess, ForebayAllocationType, ForebayGranularity, ForebayHandleType, ForebayLocation, ForebayPoolSource,
};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::output;
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::{Versioned, flag, node};
use crate::driver::{Access, HostFlags, Place, Share};
use crate::error::Error;
use crate::resource::driver_pool::{DeviceOptions, ManagedOptions, PinnedOptions, Source};
use crate::resource::virtual_memory::{VirtualLocation, VirtualOptions};
use crate::units::DeviceId;

/// Version of the layout of the option structs below.
pub const FOREBAY_RESOURCE_OPTIONS_VERSION: u32 = 1;

/// Options of `forebay_device_resource_create`, filled by `forebay_device_resource_options_init`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayDeviceResourceOptions {
    /// sizeof(forebay_device_resource_options).
    pub size: u32,
    /// FOREBAY_RESOURCE_OPTIONS_VERSION.
    pub version: u32,
    /// A FOREBAY_POOL_SOURCE_*. `ipc_enabled` and `max_size` apply to new pools only.
    pub source: u32,
    /// 1: the pool can be shared with other processes.
    pub ipc_enabled: u32,
    /// The most bytes that the pool may hold; 0: the driver's limit.
    pub max_size: u64,
    /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
    pub handle: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Options of `forebay_pinned_resource_create`, filled by `forebay_pinned_resource_options_init`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayPinnedResourceOptions {
    /// sizeof(forebay_pinned_resource_options).
    pub size: u32,
    /// FOREBAY_RESOURCE_OPTIONS_VERSION.
    pub version: u32,
    /// A FOREBAY_POOL_SOURCE_*. `ipc_enabled`, `max_size` and `numa_id` apply to new pools only.
    pub source: u32,
    /// 1: the pool can be shared with other processes.
    pub ipc_enabled: u32,
    /// The NUMA node of the memory. -1: with IPC the node nearest to `device`, otherwise chosen by the system.
    pub numa_id: i32,
    /// The device in whose context the pool's calls are made. -1: the current device, or device 0 if no context is
    /// current. Streams of every device can be used.
    pub device: i32,
    /// 1: Forebay's own pinned pool, even if the driver has host pools.
    pub own_pool: u32,
    /// Zero.
    pub reserved0: u32,
    /// The most bytes that the pool may hold; 0: the driver's limit.
    pub max_size: u64,
    /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
    pub handle: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Options of `forebay_managed_resource_create`, filled by `forebay_managed_resource_options_init`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayManagedResourceOptions {
    /// sizeof(forebay_managed_resource_options).
    pub size: u32,
    /// FOREBAY_RESOURCE_OPTIONS_VERSION.
    pub version: u32,
    /// A FOREBAY_POOL_SOURCE_*.
    pub source: u32,
    /// The preferred location of the memory: FOREBAY_LOCATION_NONE, FOREBAY_LOCATION_DEVICE, FOREBAY_LOCATION_HOST or
    /// FOREBAY_LOCATION_HOST_NUMA.
    pub preferred_location_type: u32,
    /// The device or the NUMA node of the preferred location. For a NUMA node, -1 means the node nearest to `device`.
    pub preferred_location: i32,
    /// The device in whose context the pool's calls are made. -1: the current device, or device 0 if no context is
    /// current.
    pub device: i32,
    /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
    pub handle: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Options of `forebay_virtual_resource_create` and of `forebay_resource_modify_allocation`, filled by
/// `forebay_virtual_resource_options_init`. An option that the device lacks is refused with FOREBAY_STATUS_UNSUPPORTED.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayVirtualResourceOptions {
    /// sizeof(forebay_virtual_resource_options).
    pub size: u32,
    /// FOREBAY_RESOURCE_OPTIONS_VERSION.
    pub version: u32,
    /// A FOREBAY_ALLOCATION_TYPE_*.
    pub allocation_type: u32,
    /// A FOREBAY_LOCATION_*, except FOREBAY_LOCATION_NONE. FOREBAY_LOCATION_HOST_NUMA is the node nearest to the
    /// device.
    pub location_type: u32,
    /// A FOREBAY_HANDLE_TYPE_*: the handle by which the memory is shared with other processes.
    pub handle_type: u32,
    /// A FOREBAY_GRANULARITY_*, to which sizes are rounded up.
    pub granularity: u32,
    /// 1: network cards can reach the memory (GPUDirect RDMA).
    pub gpu_direct_rdma: u32,
    /// A FOREBAY_ACCESS_*: the access of the resource's device and, for host memory, of the host.
    pub self_access: u32,
    /// A FOREBAY_ACCESS_*: the access of `peers`.
    pub peer_access: u32,
    /// The number of `peers`.
    pub peer_count: u32,
    /// Other devices that may use the memory. Read during the call only.
    pub peers: *const i32,
    /// The address to reserve if it is free; 0: any address.
    pub addr_hint: u64,
    /// Alignment of the addresses in bytes, a power of two; 0: the granularity.
    pub addr_align: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Options of `forebay_host_resource_create`, filled by `forebay_host_resource_options_init`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayHostResourceOptions {
    /// sizeof(forebay_host_resource_options).
    pub size: u32,
    /// FOREBAY_RESOURCE_OPTIONS_VERSION.
    pub version: u32,
    /// 1: page-locked for the contexts of all devices, not only for that of `device` (CU_MEMHOSTALLOC_PORTABLE).
    pub portable: u32,
    /// 1: kernels can use the memory (CU_MEMHOSTALLOC_DEVICEMAP).
    pub mapped: u32,
    /// 1: write-combined (CU_MEMHOSTALLOC_WRITECOMBINED): faster transfers, but slow reads by the host.
    pub write_combined: u32,
    /// Zero.
    pub reserved0: u32,
    /// The device in whose context the calls are made. -1: the current device, or device 0 if no context is current.
    pub device: i32,
    /// Zero.
    pub reserved1: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

macro_rules! versioned {
    ($($name:ident, $c:literal, [$($zero:ident),*];)*) => {$(
        // SAFETY: the struct is `repr(C)` and begins with `size` and `version`.
        unsafe impl Versioned for $name {
            const VERSION: u32 = FOREBAY_RESOURCE_OPTIONS_VERSION;
            const NAME_AND_ADVICE: (&'static str, &'static str) = ($c, concat!("fill it with ", $c, "_init"));

            fn is_clean(&self) -> bool {
                $(self.$zero == 0 &&)* self.reserved == [0; 4]
            }
        }
    )*};
}

versioned! {
    ForebayDeviceResourceOptions, "forebay_device_resource_options", [];
    ForebayPinnedResourceOptions, "forebay_pinned_resource_options", [reserved0];
    ForebayManagedResourceOptions, "forebay_managed_resource_options", [];
    ForebayVirtualResourceOptions, "forebay_virtual_resource_options", [];
    ForebayHostResourceOptions, "forebay_host_resource_options", [reserved0, reserved1];
}

fn source(source: u32, handle: u64) -> Result<Source, Fault> {
    Ok(match ForebayPoolSource::read(source)? {
        ForebayPoolSource::New => Source::New,
        ForebayPoolSource::Current => Source::Current,
        ForebayPoolSource::Default => Source::Default,
        ForebayPoolSource::Handle => Source::Handle(handle),
    })
}

impl ForebayAccess {
    pub(crate) fn translate(self) -> Access {
        match self {
            Self::None => Access::None,
            Self::Read => Access::Read,
            Self::ReadWrite => Access::ReadWrite,
        }
    }
}

impl ForebayDeviceResourceOptions {
    pub(crate) fn translate(&self) -> Result<DeviceOptions, Fault> {
        Ok(DeviceOptions {
            source: source(self.source, self.handle)?,
            ipc: flag("ipc_enabled", self.ipc_enabled)?,
            max_size: self.max_size,
        })
    }
}

impl ForebayPinnedResourceOptions {
    pub(crate) fn translate(&self) -> Result<PinnedOptions, Fault> {
        Ok(PinnedOptions {
            source: source(self.source, self.handle)?,
            device: named(self.device),
            ipc: flag("ipc_enabled", self.ipc_enabled)?,
            numa_node: node("numa_id", self.numa_id)?,
            max_size: self.max_size,
            own: flag("own_pool", self.own_pool)?,
        })
    }
}

/// A device; `None` for -1, the current device.
pub(crate) fn named(device: i32) -> Option<i32> {
    Some(device).filter(|&device| device != -1)
}

impl ForebayManagedResourceOptions {
    /// `nearest` gives the NUMA node nearest to a device.
    pub(crate) fn translate(
        &self,
        nearest: impl FnOnce(Option<i32>) -> Result<Option<u32>, Error>,
    ) -> Result<ManagedOptions, Fault> {
        let preferred = match ForebayLocation::read(self.preferred_location_type)? {
            ForebayLocation::None => None,
            ForebayLocation::Host => Some(Place::Host),
            ForebayLocation::Device => Some(Place::Device(DeviceId(
                u32::try_from(self.preferred_location)
                    .map_err(|_| Error::BadDevice { asked: self.preferred_location.into(), count: u32::MAX })?,
            ))),
            ForebayLocation::HostNuma => {
                let node = match node("preferred_location", self.preferred_location)? {
                    Some(node) => Some(node),
                    None => nearest(named(self.device))?,
                };
                let unknown = || {
                    let device = self.device;
                    Error::Unsupported(
                        format!(
                            "the driver does not say which NUMA node is nearest to device {device} (-1 is the current \
                             one): name one"
                        )
                        .into(),
                    )
                };
                Some(Place::HostNuma(node.ok_or_else(unknown)?))
            }
            ForebayLocation::HostNumaCurrent => {
                return Err(
                    Error::invalid("preferred_location_type cannot be FOREBAY_LOCATION_HOST_NUMA_CURRENT").into()
                );
            }
        };
        Ok(ManagedOptions { source: source(self.source, self.handle)?, device: named(self.device), preferred })
    }
}

impl ForebayVirtualResourceOptions {
    /// # Safety
    /// `peers` holds `peer_count` numbers.
    pub(crate) unsafe fn translate(&self) -> Result<VirtualOptions, Fault> {
        let peers = match (self.peer_count, self.peers.is_null()) {
            (0, _) => &[],
            (_, true) => return Err(Fault::Null("peers")),
            // SAFETY: as the caller promises.
            (count, false) => unsafe { std::slice::from_raw_parts(self.peers, count as usize) },
        };
        Ok(VirtualOptions {
            managed: ForebayAllocationType::read(self.allocation_type)? == ForebayAllocationType::Managed,
            location: match ForebayLocation::read(self.location_type)? {
                ForebayLocation::Device => VirtualLocation::Device,
                ForebayLocation::Host => VirtualLocation::Host,
                ForebayLocation::HostNuma => VirtualLocation::HostNuma,
                ForebayLocation::HostNumaCurrent => VirtualLocation::HostNumaCurrent,
                ForebayLocation::None => {
                    return Err(Error::invalid(
                        "location_type is FOREBAY_LOCATION_NONE; it takes another FOREBAY_LOCATION_*",
                    )
                    .into());
                }
            },
            share: match ForebayHandleType::read(self.handle_type)? {
                ForebayHandleType::None => Share::None,
                ForebayHandleType::PosixFd => Share::Fd,
                ForebayHandleType::Fabric => Share::Fabric,
                other => {
                    return Err(Error::Unsupported(
                        format!(
                            "handle_type {} ({other:?}) does not exist on Linux: use posix_fd or fabric",
                            other as u32
                        )
                        .into(),
                    )
                    .into());
                }
            },
            recommended: ForebayGranularity::read(self.granularity)? == ForebayGranularity::Recommended,
            rdma: flag("gpu_direct_rdma", self.gpu_direct_rdma)?,
            hint: self.addr_hint,
            alignment: self.addr_align,
            peers: peers.to_vec(),
            self_access: ForebayAccess::read(self.self_access)?.translate(),
            peer_access: ForebayAccess::read(self.peer_access)?.translate(),
        })
    }
}

impl ForebayHostResourceOptions {
    pub(crate) fn translate(&self) -> Result<HostFlags, Fault> {
        Ok(HostFlags {
            portable: flag("portable", self.portable)?,
            mapped: flag("mapped", self.mapped)?,
            write_combined: flag("write_combined", self.write_combined)?,
        })
    }
}

/// Fills `options` for a new pool without IPC and with the driver's limit. Any thread.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_device_resource_options_init(
    options: *mut ForebayDeviceResourceOptions,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { output(options, "options")? }.write(ForebayDeviceResourceOptions {
            size: size_of::<ForebayDeviceResourceOptions>() as u32,
            version: FOREBAY_RESOURCE_OPTIONS_VERSION,
            source: ForebayPoolSource::New as u32,
            ipc_enabled: 0,
            max_size: 0,
            handle: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// Fills `options` for a new driver pool without IPC, for the current device, on a NUMA node that the system chooses.
/// Any thread.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pinned_resource_options_init(
    options: *mut ForebayPinnedResourceOptions,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { output(options, "options")? }.write(ForebayPinnedResourceOptions {
            size: size_of::<ForebayPinnedResourceOptions>() as u32,
            version: FOREBAY_RESOURCE_OPTIONS_VERSION,
            source: ForebayPoolSource::New as u32,
            ipc_enabled: 0,
            numa_id: -1,
            device: -1,
            own_pool: 0,
            reserved0: 0,
            max_size: 0,
            handle: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// Fills `options` for a new pool for the current device, without a preferred location. Any thread.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_managed_resource_options_init(
    options: *mut ForebayManagedResourceOptions,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { output(options, "options")? }.write(ForebayManagedResourceOptions {
            size: size_of::<ForebayManagedResourceOptions>() as u32,
            version: FOREBAY_RESOURCE_OPTIONS_VERSION,
            source: ForebayPoolSource::New as u32,
            preferred_location_type: ForebayLocation::None as u32,
            preferred_location: -1,
            device: -1,
            handle: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// Fills `options` for pinned memory of the device, which the device alone can use, shareable as a file descriptor,
/// with the recommended granularity. Any thread.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_virtual_resource_options_init(
    options: *mut ForebayVirtualResourceOptions,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { output(options, "options")? }.write(ForebayVirtualResourceOptions {
            size: size_of::<ForebayVirtualResourceOptions>() as u32,
            version: FOREBAY_RESOURCE_OPTIONS_VERSION,
            allocation_type: ForebayAllocationType::Pinned as u32,
            location_type: ForebayLocation::Device as u32,
            handle_type: ForebayHandleType::PosixFd as u32,
            granularity: ForebayGranularity::Recommended as u32,
            gpu_direct_rdma: 0,
            self_access: ForebayAccess::ReadWrite as u32,
            peer_access: ForebayAccess::ReadWrite as u32,
            peer_count: 0,
            peers: std::ptr::null(),
            addr_hint: 0,
            addr_align: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// Fills `options` for portable and mapped memory, for the current device. Any thread.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_host_resource_options_init(options: *mut ForebayHostResourceOptions) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { output(options, "options")? }.write(ForebayHostResourceOptions {
            size: size_of::<ForebayHostResourceOptions>() as u32,
            version: FOREBAY_RESOURCE_OPTIONS_VERSION,
            portable: 1,
            mapped: 1,
            write_combined: 0,
            reserved0: 0,
            device: -1,
            reserved1: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}
