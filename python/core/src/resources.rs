//! Memory resources: making them, what is known of them, and sharing them.

use std::mem::MaybeUninit;
use std::ptr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::abi;
use crate::calls::answer;

/// Options as C fills them, changed by `change`.
///
/// # Safety
/// `init` fills its argument where it answers OK.
unsafe fn filled<T>(init: unsafe extern "C" fn(*mut T) -> u32, change: impl FnOnce(&mut T)) -> Result<T, u32> {
    let mut options = MaybeUninit::uninit();
    // SAFETY: read only once it was filled, as the caller promises.
    unsafe {
        match init(options.as_mut_ptr()) {
            abi::FOREBAY_STATUS_OK => {
                let mut options = options.assume_init();
                change(&mut options);
                Ok(options)
            }
            status => Err(status),
        }
    }
}

/// The object that `make` writes, with the interpreter's lock given up.
fn made(
    py: Python<'_>,
    make: impl FnOnce(*mut *mut abi::forebay_resource) -> Result<u32, u32> + Send,
) -> PyResult<usize> {
    let (status, out) = py.detach(|| {
        let mut out = ptr::null_mut();
        let status = make(&raw mut out).unwrap_or_else(|status| status);
        (status, out as usize)
    });
    answer(py, status, out)
}

/// A driver pool of a device.
#[pyfunction]
pub fn device_resource_create(
    py: Python<'_>,
    device: i32,
    source: u32,
    handle: u64,
    ipc_enabled: bool,
    max_size: u64,
) -> PyResult<usize> {
    // SAFETY: the options are C's.
    made(py, |out| unsafe {
        let options = filled(abi::forebay_device_resource_options_init, |options| {
            (options.source, options.handle) = (source, handle);
            (options.ipc_enabled, options.max_size) = (ipc_enabled.into(), max_size);
        })?;
        Ok(abi::forebay_device_resource_create(device, &raw const options, out))
    })
}

/// A driver pool of pinned memory.
#[pyfunction]
pub fn pinned_resource_create(
    py: Python<'_>,
    source: u32,
    ipc_enabled: bool,
    max_size: u64,
    numa_id: i32,
) -> PyResult<usize> {
    // SAFETY: the options are C's.
    made(py, |out| unsafe {
        let options = filled(abi::forebay_pinned_resource_options_init, |options| {
            (options.source, options.numa_id) = (source, numa_id);
            (options.ipc_enabled, options.max_size) = (ipc_enabled.into(), max_size);
        })?;
        Ok(abi::forebay_pinned_resource_create(&raw const options, out))
    })
}

/// A driver pool of managed memory.
#[pyfunction]
pub fn managed_resource_create(py: Python<'_>, source: u32, location_type: u32, location: i32) -> PyResult<usize> {
    // SAFETY: the options are C's.
    made(py, |out| unsafe {
        let options = filled(abi::forebay_managed_resource_options_init, |options| {
            options.source = source;
            (options.preferred_location_type, options.preferred_location) = (location_type, location);
        })?;
        Ok(abi::forebay_managed_resource_create(&raw const options, out))
    })
}

/// Page-locked memory.
#[pyfunction]
pub fn host_resource_create(py: Python<'_>, portable: bool, mapped: bool, write_combined: bool) -> PyResult<usize> {
    // SAFETY: the options are C's.
    made(py, |out| unsafe {
        let options = filled(abi::forebay_host_resource_options_init, |options| {
            (options.portable, options.mapped) = (portable.into(), mapped.into());
            options.write_combined = write_combined.into();
        })?;
        Ok(abi::forebay_host_resource_create(&raw const options, out))
    })
}

/// The words of `forebay_virtual_resource_options`, as a dict has them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Virtual {
    allocation_type: u32,
    location_type: u32,
    handle_type: u32,
    granularity: u32,
    gpu_direct_rdma: bool,
    self_access: u32,
    peer_access: u32,
    peers: Vec<i32>,
    addr_hint: u64,
    addr_align: u64,
}

impl Virtual {
    /// The struct, which refers to the peers here.
    fn raw(&self) -> Result<abi::forebay_virtual_resource_options, u32> {
        // SAFETY: the options are C's.
        unsafe {
            filled(abi::forebay_virtual_resource_options_init, |options| {
                (options.allocation_type, options.location_type) = (self.allocation_type, self.location_type);
                (options.handle_type, options.granularity) = (self.handle_type, self.granularity);
                options.gpu_direct_rdma = self.gpu_direct_rdma.into();
                (options.self_access, options.peer_access) = (self.self_access, self.peer_access);
                (options.peers, options.peer_count) = (self.peers.as_ptr(), self.peers.len() as u32);
                (options.addr_hint, options.addr_align) = (self.addr_hint, self.addr_align);
            })
        }
    }
}

/// Virtual memory.
#[pyfunction]
pub fn virtual_resource_create(py: Python<'_>, device: i32, options: Virtual) -> PyResult<usize> {
    made(py, |out| {
        let raw = options.raw()?;
        // SAFETY: the peers live through the call.
        Ok(unsafe { abi::forebay_virtual_resource_create(device, &raw const raw, out) })
    })
}

/// Changes the size of a buffer of virtual memory. None: the resource's own options.
#[pyfunction]
pub fn resource_modify_allocation(
    py: Python<'_>,
    resource: usize,
    buffer: usize,
    size: u64,
    options: Option<Virtual>,
    stream: u64,
) -> PyResult<()> {
    let status = py.detach(|| {
        let raw = match options.as_ref().map(Virtual::raw).transpose() {
            Ok(raw) => raw,
            Err(status) => return status,
        };
        let config = raw.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both objects and the stream are alive, and the peers live through the call.
        unsafe {
            abi::forebay_resource_modify_allocation(
                resource as *mut _,
                buffer as *mut _,
                size,
                config,
                stream as *mut _,
            )
        }
    });
    answer(py, status, ())
}

/// What is known of a resource.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct ResourceInfo {
    kind: u32,
    device_id: i32,
    numa_id: i32,
    is_handle_owned: bool,
    is_device_accessible: bool,
    is_host_accessible: bool,
    is_managed: bool,
    is_ipc_enabled: bool,
    is_mapped: bool,
    is_closed: bool,
    /// None unless it can be shared.
    uuid: Option<[u8; 16]>,
    preferred_location_type: u32,
    preferred_location: i32,
    handle: u64,
}

#[pyfunction]
pub fn resource_get_info(py: Python<'_>, resource: usize) -> PyResult<ResourceInfo> {
    // SAFETY: numbers alone, which may be 0.
    let mut raw: abi::forebay_resource_info = unsafe { std::mem::zeroed() };
    (raw.size, raw.version) = (size_of_val(&raw) as u32, abi::FOREBAY_INFO_VERSION);
    // SAFETY: the resource is alive.
    let status = py.detach(|| unsafe { abi::forebay_resource_get_info(resource as *const _, &raw mut raw) });
    let info = ResourceInfo {
        kind: raw.kind,
        device_id: raw.device_id,
        numa_id: raw.numa_id,
        is_handle_owned: raw.is_handle_owned != 0,
        is_device_accessible: raw.is_device_accessible != 0,
        is_host_accessible: raw.is_host_accessible != 0,
        is_managed: raw.is_managed != 0,
        is_ipc_enabled: raw.is_ipc_enabled != 0,
        is_mapped: raw.is_mapped != 0,
        is_closed: raw.is_closed != 0,
        uuid: (raw.has_uuid != 0).then_some(raw.uuid),
        preferred_location_type: raw.preferred_location_type,
        preferred_location: raw.preferred_location,
        handle: raw.handle,
    };
    answer(py, status, info)
}

/// The file descriptor of a driver pool, which stays the resource's, and its key.
#[pyfunction]
pub fn resource_get_allocation_handle(py: Python<'_>, resource: usize) -> PyResult<(i32, [u8; 16])> {
    let (mut fd, mut uuid) = (0, [0; 16]);
    // SAFETY: the resource is alive, and there is room for a key.
    let status = py.detach(|| unsafe {
        abi::forebay_resource_get_allocation_handle(resource as *mut _, &raw mut fd, uuid.as_mut_ptr())
    });
    answer(py, status, (fd, uuid))
}

fn key(uuid: &[u8]) -> PyResult<[u8; 16]> {
    uuid.try_into().map_err(|_| PyValueError::new_err(format!("uuid has {} bytes: a key has 16", uuid.len())))
}

/// Maps a driver pool of another process.
#[pyfunction]
pub fn resource_from_allocation_handle(
    py: Python<'_>,
    kind: u32,
    device: i32,
    fd: i32,
    uuid: Option<&[u8]>,
) -> PyResult<usize> {
    let uuid = uuid.map(key).transpose()?;
    made(py, |out| {
        let key = uuid.as_ref().map_or(ptr::null(), |key| key.as_ptr());
        // SAFETY: the key lives through the call.
        Ok(unsafe { abi::forebay_resource_from_allocation_handle(kind, device, fd, key, out) })
    })
}

/// Registers a mapped pool: the object to use.
#[pyfunction]
pub fn resource_register(py: Python<'_>, resource: usize, uuid: &[u8]) -> PyResult<usize> {
    let uuid = key(uuid)?;
    // SAFETY: the resource is alive, and the key lives through the call.
    made(py, |out| Ok(unsafe { abi::forebay_resource_register(resource as *mut _, uuid.as_ptr(), out) }))
}

/// The mapped pool with a key.
#[pyfunction]
pub fn resource_from_registry(py: Python<'_>, uuid: &[u8]) -> PyResult<usize> {
    let uuid = key(uuid)?;
    // SAFETY: the key lives through the call.
    made(py, |out| Ok(unsafe { abi::forebay_resource_from_registry(uuid.as_ptr(), out) }))
}

/// One object for CuPy of the resources of all devices.
#[pyfunction]
pub fn cupy_pool_create(py: Python<'_>, resources: Vec<usize>) -> PyResult<usize> {
    let mut out = 0_usize;
    // SAFETY: the resources are alive.
    let status = py.detach(|| unsafe {
        abi::forebay_cupy_pool_create(resources.as_ptr().cast(), resources.len() as u32, (&raw mut out).cast())
    });
    answer(py, status, out)
}
