//! Each device: its attributes, and its primary context.
//!
//! A primary context is retained when its device is first used: making one costs hundreds of megabytes, and
//! a process often sees more GPUs than it uses. It is shared with the CUDA runtime, so it is never reset,
//! and never released: at exit the driver takes it down itself.

use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute_enum as Attribute, CUmemAllocationHandleType};
use parking_lot::Mutex;

use super::api::Api;
use super::error::SUCCESS;
use crate::driver::{Capabilities, Result};

/// A device's attributes, as libcuda reports them without a context. An attribute that this libcuda does not know
/// counts as missing, even if the feature is older than its attribute, as host memory by NUMA node is.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    pub(super) vmm: bool,
    pub(super) posix_fd: bool,
    pub(super) fabric: bool,
    pub(super) rdma: bool,
    pub(super) host_numa: bool,
    pub(super) numa_node: Option<u32>,
    pub(super) pools: bool,
    pub(super) pool_fd: bool,
    /// Pools of host memory on any NUMA node. Without this attribute such a pool can be created, but not used.
    pub(super) host_pools: bool,
    /// Pools of one NUMA node of the host; the same holds.
    pub(super) host_numa_pools: bool,
    pub(super) managed: bool,
    pub(super) concurrent_managed: bool,
    pub(super) legacy_ipc: bool,
}

/// One GPU.
pub(super) struct Device {
    pub(super) handle: CUdevice,
    /// The primary context; 0 until it is retained.
    context: AtomicUsize,
    /// Held to retain it once.
    retaining: Mutex<()>,
    pub(super) capabilities: OnceLock<Capabilities>,
    pub(super) traits: Traits,
}

impl Device {
    /// The device with this ordinal. Creates no context.
    pub(super) fn find(api: &Api, ordinal: c_int) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: writes a device; the ordinal is below the count.
        let code = unsafe { (api.base.cuDeviceGet)(&raw mut handle, ordinal) };
        api.check("cuDeviceGet", code, || format!("device {ordinal}"))?;
        let read = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: writes an integer. An attribute that this libcuda does not know fails and counts as missing.
            let code = unsafe { (api.base.cuDeviceGetAttribute)(&raw mut value, attribute as c_int, handle) };
            (code == SUCCESS).then_some(value)
        };
        let has = |attribute| read(attribute).is_some_and(|value| value != 0);
        let pool_handles = read(Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES).unwrap_or(0);
        let fd = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as c_int;
        let traits = Traits {
            vmm: has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            posix_fd: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
            fabric: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
            rdma: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
            host_numa: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            // Negative where the system has no NUMA nodes.
            numa_node: read(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).and_then(|node| u32::try_from(node).ok()),
            pools: has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
            pool_fd: pool_handles & fd != 0,
            host_pools: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED),
            host_numa_pools: has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED),
            managed: has(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
            concurrent_managed: has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
            legacy_ipc: has(Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
        };
        let (context, retaining) = (AtomicUsize::new(0), Mutex::new(()));
        Ok(Self { handle, context, retaining, capabilities: OnceLock::new(), traits })
    }

    pub(super) fn context(&self, api: &Api) -> Result<CUcontext> {
        let known = self.context.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known as CUcontext);
        }
        self.retain(api)
    }

    #[cold]
    fn retain(&self, api: &Api) -> Result<CUcontext> {
        let _one_at_a_time = self.retaining.lock();
        let known = self.context.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known as CUcontext);
        }
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: writes a context; the device handle is cuDeviceGet's.
        let code = unsafe { (api.base.cuDevicePrimaryCtxRetain)(&raw mut context, self.handle) };
        api.check("cuDevicePrimaryCtxRetain", code, || format!("device {}", self.handle))?;
        self.context.store(context as usize, Ordering::Release);
        Ok(context)
    }

    /// Whether `context` is the device's primary context, if that is retained here.
    pub(super) fn is_home_of(&self, context: CUcontext) -> bool {
        self.context.load(Ordering::Acquire) == context as usize
    }
}
