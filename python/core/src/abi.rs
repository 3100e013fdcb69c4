//! What `include/forebay.h` declares. Made from it: `BLESS=1 python3 tests/python/test_header.py`; do not edit.

use std::ffi::{c_char, c_int, c_void};

pub const FOREBAY_VERSION_MAJOR: u32 = 0;
pub const FOREBAY_VERSION_MINOR: u32 = 1;
pub const FOREBAY_VERSION_PATCH: u32 = 0;
pub const FOREBAY_VERSION_NUMBER: u32 = 100;
pub const FOREBAY_POOL_OPTIONS_VERSION: u32 = 1;
pub const FOREBAY_STATS_VERSION: u32 = 1;
pub const FOREBAY_BLOCK_VERSION: u32 = 1;
pub const FOREBAY_RESOURCE_OPTIONS_VERSION: u32 = 1;
pub const FOREBAY_INFO_VERSION: u32 = 1;
pub const FOREBAY_STATUS_OK: u32 = 0;
pub const FOREBAY_STATUS_NULL_POINTER: u32 = 1;
pub const FOREBAY_STATUS_INVALID_ARGUMENT: u32 = 2;
pub const FOREBAY_STATUS_OUT_OF_MEMORY: u32 = 3;
pub const FOREBAY_STATUS_BAD_FREE: u32 = 4;
pub const FOREBAY_STATUS_UNSUPPORTED: u32 = 5;
pub const FOREBAY_STATUS_NO_DRIVER: u32 = 6;
pub const FOREBAY_STATUS_BAD_DEVICE: u32 = 7;
pub const FOREBAY_STATUS_DRIVER: u32 = 8;
pub const FOREBAY_STATUS_CAPTURING: u32 = 9;
pub const FOREBAY_STATUS_FORKED: u32 = 10;
pub const FOREBAY_STATUS_NOT_FOUND: u32 = 11;
pub const FOREBAY_STATUS_BUSY: u32 = 12;
pub const FOREBAY_STATUS_PANIC: u32 = 13;
pub const FOREBAY_STATUS_CLOSED: u32 = 14;
pub const FOREBAY_STATUS_NOT_PERMITTED: u32 = 15;
pub const FOREBAY_STATUS_PEER: u32 = 16;
pub const FOREBAY_LOG_LEVEL_OFF: u32 = 0;
pub const FOREBAY_LOG_LEVEL_ERROR: u32 = 1;
pub const FOREBAY_LOG_LEVEL_WARN: u32 = 2;
pub const FOREBAY_LOG_LEVEL_INFO: u32 = 3;
pub const FOREBAY_LOG_LEVEL_DEBUG: u32 = 4;
pub const FOREBAY_FRAMEWORK_C: u32 = 0;
pub const FOREBAY_FRAMEWORK_TORCH: u32 = 1;
pub const FOREBAY_FRAMEWORK_CUPY: u32 = 2;
pub const FOREBAY_FRAMEWORK_NUMBA: u32 = 3;
pub const FOREBAY_FRAMEWORK_CUDA_CORE: u32 = 4;
pub const FOREBAY_FRAMEWORK_RMM: u32 = 5;
pub const FOREBAY_BLOCK_STATE_FREE: u32 = 0;
pub const FOREBAY_BLOCK_STATE_LIVE: u32 = 1;
pub const FOREBAY_BLOCK_STATE_PENDING: u32 = 2;
pub const FOREBAY_MAPPING_MAPPED: u32 = 0;
pub const FOREBAY_MAPPING_UNMAPPED: u32 = 1;
pub const FOREBAY_RESOURCE_KIND_DEVICE: u32 = 0;
pub const FOREBAY_RESOURCE_KIND_PINNED: u32 = 1;
pub const FOREBAY_RESOURCE_KIND_MANAGED: u32 = 2;
pub const FOREBAY_RESOURCE_KIND_VIRTUAL: u32 = 3;
pub const FOREBAY_RESOURCE_KIND_HOST: u32 = 4;
pub const FOREBAY_RESOURCE_KIND_POOL: u32 = 5;
pub const FOREBAY_POOL_SOURCE_NEW: u32 = 0;
pub const FOREBAY_POOL_SOURCE_CURRENT: u32 = 1;
pub const FOREBAY_POOL_SOURCE_DEFAULT: u32 = 2;
pub const FOREBAY_POOL_SOURCE_HANDLE: u32 = 3;
pub const FOREBAY_LOCATION_DEVICE: u32 = 0;
pub const FOREBAY_LOCATION_HOST: u32 = 1;
pub const FOREBAY_LOCATION_HOST_NUMA: u32 = 2;
pub const FOREBAY_LOCATION_HOST_NUMA_CURRENT: u32 = 3;
pub const FOREBAY_LOCATION_NONE: u32 = 4;
pub const FOREBAY_HANDLE_TYPE_NONE: u32 = 0;
pub const FOREBAY_HANDLE_TYPE_POSIX_FD: u32 = 1;
pub const FOREBAY_HANDLE_TYPE_GENERIC: u32 = 2;
pub const FOREBAY_HANDLE_TYPE_WIN32: u32 = 3;
pub const FOREBAY_HANDLE_TYPE_WIN32_KMT: u32 = 4;
pub const FOREBAY_HANDLE_TYPE_FABRIC: u32 = 5;
pub const FOREBAY_GRANULARITY_MINIMUM: u32 = 0;
pub const FOREBAY_GRANULARITY_RECOMMENDED: u32 = 1;
pub const FOREBAY_ACCESS_NONE: u32 = 0;
pub const FOREBAY_ACCESS_READ: u32 = 1;
pub const FOREBAY_ACCESS_READ_WRITE: u32 = 2;
pub const FOREBAY_ALLOCATION_TYPE_PINNED: u32 = 0;
pub const FOREBAY_ALLOCATION_TYPE_MANAGED: u32 = 1;
pub const FOREBAY_ATTRIBUTE_REUSE_FOLLOW_EVENT_DEPENDENCIES: u32 = 1;
pub const FOREBAY_ATTRIBUTE_REUSE_ALLOW_OPPORTUNISTIC: u32 = 2;
pub const FOREBAY_ATTRIBUTE_REUSE_ALLOW_INTERNAL_DEPENDENCIES: u32 = 3;
pub const FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD: u32 = 4;
pub const FOREBAY_ATTRIBUTE_RESERVED_MEM_CURRENT: u32 = 5;
pub const FOREBAY_ATTRIBUTE_RESERVED_MEM_HIGH: u32 = 6;
pub const FOREBAY_ATTRIBUTE_USED_MEM_CURRENT: u32 = 7;
pub const FOREBAY_ATTRIBUTE_USED_MEM_HIGH: u32 = 8;
pub const FOREBAY_IPC_PATH_NONE: u32 = 0;
pub const FOREBAY_IPC_PATH_POOL: u32 = 1;
pub const FOREBAY_IPC_PATH_FD: u32 = 2;
pub const FOREBAY_IPC_PATH_FABRIC: u32 = 3;
pub const FOREBAY_IPC_PATH_LEGACY: u32 = 4;

/// Every number, for Python.
pub const NUMBERS: &[(&str, u32)] = &[
    ("VERSION_MAJOR", FOREBAY_VERSION_MAJOR),
    ("VERSION_MINOR", FOREBAY_VERSION_MINOR),
    ("VERSION_PATCH", FOREBAY_VERSION_PATCH),
    ("VERSION_NUMBER", FOREBAY_VERSION_NUMBER),
    ("POOL_OPTIONS_VERSION", FOREBAY_POOL_OPTIONS_VERSION),
    ("STATS_VERSION", FOREBAY_STATS_VERSION),
    ("BLOCK_VERSION", FOREBAY_BLOCK_VERSION),
    ("RESOURCE_OPTIONS_VERSION", FOREBAY_RESOURCE_OPTIONS_VERSION),
    ("INFO_VERSION", FOREBAY_INFO_VERSION),
    ("STATUS_OK", FOREBAY_STATUS_OK),
    ("STATUS_NULL_POINTER", FOREBAY_STATUS_NULL_POINTER),
    ("STATUS_INVALID_ARGUMENT", FOREBAY_STATUS_INVALID_ARGUMENT),
    ("STATUS_OUT_OF_MEMORY", FOREBAY_STATUS_OUT_OF_MEMORY),
    ("STATUS_BAD_FREE", FOREBAY_STATUS_BAD_FREE),
    ("STATUS_UNSUPPORTED", FOREBAY_STATUS_UNSUPPORTED),
    ("STATUS_NO_DRIVER", FOREBAY_STATUS_NO_DRIVER),
    ("STATUS_BAD_DEVICE", FOREBAY_STATUS_BAD_DEVICE),
    ("STATUS_DRIVER", FOREBAY_STATUS_DRIVER),
    ("STATUS_CAPTURING", FOREBAY_STATUS_CAPTURING),
    ("STATUS_FORKED", FOREBAY_STATUS_FORKED),
    ("STATUS_NOT_FOUND", FOREBAY_STATUS_NOT_FOUND),
    ("STATUS_BUSY", FOREBAY_STATUS_BUSY),
    ("STATUS_PANIC", FOREBAY_STATUS_PANIC),
    ("STATUS_CLOSED", FOREBAY_STATUS_CLOSED),
    ("STATUS_NOT_PERMITTED", FOREBAY_STATUS_NOT_PERMITTED),
    ("STATUS_PEER", FOREBAY_STATUS_PEER),
    ("LOG_LEVEL_OFF", FOREBAY_LOG_LEVEL_OFF),
    ("LOG_LEVEL_ERROR", FOREBAY_LOG_LEVEL_ERROR),
    ("LOG_LEVEL_WARN", FOREBAY_LOG_LEVEL_WARN),
    ("LOG_LEVEL_INFO", FOREBAY_LOG_LEVEL_INFO),
    ("LOG_LEVEL_DEBUG", FOREBAY_LOG_LEVEL_DEBUG),
    ("FRAMEWORK_C", FOREBAY_FRAMEWORK_C),
    ("FRAMEWORK_TORCH", FOREBAY_FRAMEWORK_TORCH),
    ("FRAMEWORK_CUPY", FOREBAY_FRAMEWORK_CUPY),
    ("FRAMEWORK_NUMBA", FOREBAY_FRAMEWORK_NUMBA),
    ("FRAMEWORK_CUDA_CORE", FOREBAY_FRAMEWORK_CUDA_CORE),
    ("FRAMEWORK_RMM", FOREBAY_FRAMEWORK_RMM),
    ("BLOCK_STATE_FREE", FOREBAY_BLOCK_STATE_FREE),
    ("BLOCK_STATE_LIVE", FOREBAY_BLOCK_STATE_LIVE),
    ("BLOCK_STATE_PENDING", FOREBAY_BLOCK_STATE_PENDING),
    ("MAPPING_MAPPED", FOREBAY_MAPPING_MAPPED),
    ("MAPPING_UNMAPPED", FOREBAY_MAPPING_UNMAPPED),
    ("RESOURCE_KIND_DEVICE", FOREBAY_RESOURCE_KIND_DEVICE),
    ("RESOURCE_KIND_PINNED", FOREBAY_RESOURCE_KIND_PINNED),
    ("RESOURCE_KIND_MANAGED", FOREBAY_RESOURCE_KIND_MANAGED),
    ("RESOURCE_KIND_VIRTUAL", FOREBAY_RESOURCE_KIND_VIRTUAL),
    ("RESOURCE_KIND_HOST", FOREBAY_RESOURCE_KIND_HOST),
    ("RESOURCE_KIND_POOL", FOREBAY_RESOURCE_KIND_POOL),
    ("POOL_SOURCE_NEW", FOREBAY_POOL_SOURCE_NEW),
    ("POOL_SOURCE_CURRENT", FOREBAY_POOL_SOURCE_CURRENT),
    ("POOL_SOURCE_DEFAULT", FOREBAY_POOL_SOURCE_DEFAULT),
    ("POOL_SOURCE_HANDLE", FOREBAY_POOL_SOURCE_HANDLE),
    ("LOCATION_DEVICE", FOREBAY_LOCATION_DEVICE),
    ("LOCATION_HOST", FOREBAY_LOCATION_HOST),
    ("LOCATION_HOST_NUMA", FOREBAY_LOCATION_HOST_NUMA),
    ("LOCATION_HOST_NUMA_CURRENT", FOREBAY_LOCATION_HOST_NUMA_CURRENT),
    ("LOCATION_NONE", FOREBAY_LOCATION_NONE),
    ("HANDLE_TYPE_NONE", FOREBAY_HANDLE_TYPE_NONE),
    ("HANDLE_TYPE_POSIX_FD", FOREBAY_HANDLE_TYPE_POSIX_FD),
    ("HANDLE_TYPE_GENERIC", FOREBAY_HANDLE_TYPE_GENERIC),
    ("HANDLE_TYPE_WIN32", FOREBAY_HANDLE_TYPE_WIN32),
    ("HANDLE_TYPE_WIN32_KMT", FOREBAY_HANDLE_TYPE_WIN32_KMT),
    ("HANDLE_TYPE_FABRIC", FOREBAY_HANDLE_TYPE_FABRIC),
    ("GRANULARITY_MINIMUM", FOREBAY_GRANULARITY_MINIMUM),
    ("GRANULARITY_RECOMMENDED", FOREBAY_GRANULARITY_RECOMMENDED),
    ("ACCESS_NONE", FOREBAY_ACCESS_NONE),
    ("ACCESS_READ", FOREBAY_ACCESS_READ),
    ("ACCESS_READ_WRITE", FOREBAY_ACCESS_READ_WRITE),
    ("ALLOCATION_TYPE_PINNED", FOREBAY_ALLOCATION_TYPE_PINNED),
    ("ALLOCATION_TYPE_MANAGED", FOREBAY_ALLOCATION_TYPE_MANAGED),
    ("ATTRIBUTE_REUSE_FOLLOW_EVENT_DEPENDENCIES", FOREBAY_ATTRIBUTE_REUSE_FOLLOW_EVENT_DEPENDENCIES),
    ("ATTRIBUTE_REUSE_ALLOW_OPPORTUNISTIC", FOREBAY_ATTRIBUTE_REUSE_ALLOW_OPPORTUNISTIC),
    ("ATTRIBUTE_REUSE_ALLOW_INTERNAL_DEPENDENCIES", FOREBAY_ATTRIBUTE_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
    ("ATTRIBUTE_RELEASE_THRESHOLD", FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD),
    ("ATTRIBUTE_RESERVED_MEM_CURRENT", FOREBAY_ATTRIBUTE_RESERVED_MEM_CURRENT),
    ("ATTRIBUTE_RESERVED_MEM_HIGH", FOREBAY_ATTRIBUTE_RESERVED_MEM_HIGH),
    ("ATTRIBUTE_USED_MEM_CURRENT", FOREBAY_ATTRIBUTE_USED_MEM_CURRENT),
    ("ATTRIBUTE_USED_MEM_HIGH", FOREBAY_ATTRIBUTE_USED_MEM_HIGH),
    ("IPC_PATH_NONE", FOREBAY_IPC_PATH_NONE),
    ("IPC_PATH_POOL", FOREBAY_IPC_PATH_POOL),
    ("IPC_PATH_FD", FOREBAY_IPC_PATH_FD),
    ("IPC_PATH_FABRIC", FOREBAY_IPC_PATH_FABRIC),
    ("IPC_PATH_LEGACY", FOREBAY_IPC_PATH_LEGACY),
];

pub type forebay_status = u32;
pub type forebay_log_level = u32;
pub type forebay_framework = u32;
pub type forebay_block_state = u32;
pub type forebay_mapping = u32;
pub type forebay_resource_kind = u32;
pub type forebay_pool_source = u32;
pub type forebay_location = u32;
pub type forebay_handle_type = u32;
pub type forebay_granularity = u32;
pub type forebay_access = u32;
pub type forebay_allocation_type = u32;
pub type forebay_attribute = u32;
pub type forebay_ipc_path = u32;

#[repr(C)]
pub struct DLManagedTensor {
    _private: [u8; 0],
}

#[repr(C)]
pub struct DLManagedTensorVersioned {
    _private: [u8; 0],
}

#[repr(C)]
pub struct forebay_buffer {
    _private: [u8; 0],
}

#[repr(C)]
pub struct forebay_pool {
    _private: [u8; 0],
}

#[repr(C)]
pub struct forebay_resource {
    _private: [u8; 0],
}

#[repr(C)]
pub struct forebay_cupy_pool {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_pool_options {
    pub size: u32,
    pub version: u32,
    pub driver: *const c_char,
    pub limit: u64,
    pub fraction: f64,
    pub max_chunk: u64,
    pub location: u32,
    pub numa_id: i32,
    pub grow_first: u32,
    pub give_back_ms: u32,
    pub reserved: [u64; 7],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_pool_stats {
    pub size: u32,
    pub version: u32,
    pub live: u64,
    pub live_peak: u64,
    pub physical: u64,
    pub physical_peak: u64,
    pub limit: u64,
    pub free_bytes: u64,
    pub largest_free: u64,
    pub private_bytes: u64,
    pub allocations: u64,
    pub frees: u64,
    pub hits: u64,
    pub misses: u64,
    pub steals: u64,
    pub growths: u64,
    pub waits: u64,
    pub releases: u64,
    pub out_of_memory: u64,
    pub live_by_framework: [u64; 8],
    pub streams: u64,
    pub driver_calls: u64,
    pub driver_ns: u64,
    pub free_blocks: u64,
    pub making_ns: u64,
    pub waiting_ns: u64,
    pub reserved: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_stream_stats {
    pub size: u32,
    pub version: u32,
    pub live: u64,
    pub live_peak: u64,
    pub allocations: u64,
    pub frees: u64,
    pub hits: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_block {
    pub size: u32,
    pub version: u32,
    pub address: u64,
    pub bytes: u64,
    pub state: u32,
    pub framework: u32,
    pub stream: u64,
    pub has_stream: u32,
    pub is_private: u32,
    pub private_first: u64,
    pub private_second: u64,
    pub requested: u64,
    pub reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_device_resource_options {
    pub size: u32,
    pub version: u32,
    pub source: u32,
    pub ipc_enabled: u32,
    pub max_size: u64,
    pub handle: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_pinned_resource_options {
    pub size: u32,
    pub version: u32,
    pub source: u32,
    pub ipc_enabled: u32,
    pub numa_id: i32,
    pub device: i32,
    pub own_pool: u32,
    pub reserved0: u32,
    pub max_size: u64,
    pub handle: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_managed_resource_options {
    pub size: u32,
    pub version: u32,
    pub source: u32,
    pub preferred_location_type: u32,
    pub preferred_location: i32,
    pub device: i32,
    pub handle: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_virtual_resource_options {
    pub size: u32,
    pub version: u32,
    pub allocation_type: u32,
    pub location_type: u32,
    pub handle_type: u32,
    pub granularity: u32,
    pub gpu_direct_rdma: u32,
    pub self_access: u32,
    pub peer_access: u32,
    pub peer_count: u32,
    pub peers: *const i32,
    pub addr_hint: u64,
    pub addr_align: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_host_resource_options {
    pub size: u32,
    pub version: u32,
    pub portable: u32,
    pub mapped: u32,
    pub write_combined: u32,
    pub reserved0: u32,
    pub device: i32,
    pub reserved1: u32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_resource_info {
    pub size: u32,
    pub version: u32,
    pub kind: u32,
    pub device_id: i32,
    pub numa_id: i32,
    pub is_handle_owned: u32,
    pub is_device_accessible: u32,
    pub is_host_accessible: u32,
    pub is_managed: u32,
    pub is_ipc_enabled: u32,
    pub is_mapped: u32,
    pub is_closed: u32,
    pub has_uuid: u32,
    pub preferred_location_type: u32,
    pub preferred_location: i32,
    pub reserved0: u32,
    pub uuid: [u8; 16],
    pub handle: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_buffer_info {
    pub size: u32,
    pub version: u32,
    pub handle: u64,
    pub bytes: u64,
    pub stream: u64,
    pub device_id: i32,
    pub is_device_accessible: u32,
    pub is_host_accessible: u32,
    pub is_managed: u32,
    pub is_mapped: u32,
    pub is_closed: u32,
    pub ipc_path: u32,
    pub has_resource: u32,
    pub stream_device: i32,
    pub reserved0: u32,
    pub reserved: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_ipc_descriptor {
    pub bytes: [u8; 256],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct forebay_torch_block {
    pub bytes: u64,
    pub requested: u64,
    pub stream: *mut c_void,
    pub device: i32,
    pub reserved: u32,
}

pub type forebay_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;
pub type forebay_pressure_fn = Option<unsafe extern "C" fn(user: *mut c_void, device: i32, bytes: u64) -> bool>;
pub type forebay_block_fn = Option<unsafe extern "C" fn(context: *mut c_void, block: *const forebay_block)>;
pub type forebay_mapping_fn = Option<unsafe extern "C" fn(user: *mut c_void, device: i32, what: u32, ptr: *mut c_void, bytes: u64)>;
pub type forebay_release_fn = Option<unsafe extern "C" fn(context: *mut c_void)>;
pub type forebay_stream_getter = Option<unsafe extern "C" fn(device: c_int) -> isize>;
pub type forebay_hook_getter = Option<unsafe extern "C" fn(skip_dispatch: c_int) -> *mut c_void>;

unsafe extern "C" {
    pub fn forebay_status_text(status: u32) -> *const c_char;
    pub fn forebay_last_error_message() -> *const c_char;
    pub fn forebay_version_number() -> u32;
    pub fn forebay_version() -> *const c_char;
    pub fn forebay_log_set_callback(callback: forebay_log_fn, user: *mut c_void, level: u32) -> forebay_status;
    pub fn forebay_pool_options_init(options: *mut forebay_pool_options) -> forebay_status;
    pub fn forebay_pool_configure_shared(options: *const forebay_pool_options) -> forebay_status;
    pub fn forebay_pool_shared(out: *mut *mut forebay_pool) -> forebay_status;
    pub fn forebay_pool_create(options: *const forebay_pool_options, out: *mut *mut forebay_pool) -> forebay_status;
    pub fn forebay_pool_destroy(pool: *mut forebay_pool);
    pub fn forebay_pool_driver_name(pool: *const forebay_pool) -> *const c_char;
    pub fn forebay_pool_device_count(pool: *const forebay_pool, out: *mut i32) -> forebay_status;
    pub fn forebay_pool_memory_info(pool: *const forebay_pool, device: i32, free_bytes: *mut u64, total_bytes: *mut u64) -> forebay_status;
    pub fn forebay_pool_capsule_delete(capsule: *mut c_void);
    pub fn forebay_pool_malloc(pool: *mut forebay_pool, bytes: u64, device: i32, stream: *mut c_void, out: *mut *mut c_void) -> forebay_status;
    pub fn forebay_pool_malloc_for(pool: *mut forebay_pool, framework: u32, bytes: u64, device: i32, stream: *mut c_void, out: *mut *mut c_void) -> forebay_status;
    pub fn forebay_pool_malloc_ready(pool: *mut forebay_pool, bytes: u64, device: i32, stream: *mut c_void, out: *mut *mut c_void) -> forebay_status;
    pub fn forebay_pool_free(pool: *mut forebay_pool, ptr: *mut c_void, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_free_after_all(pool: *mut forebay_pool, ptr: *mut c_void) -> forebay_status;
    pub fn forebay_pool_record_use(pool: *mut forebay_pool, ptr: *mut c_void, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_block_size(pool: *mut forebay_pool, ptr: *const c_void, out: *mut u64) -> forebay_status;
    pub fn forebay_pool_block_size_for(bytes: u64) -> u64;
    pub fn forebay_pool_base_address(pool: *mut forebay_pool, ptr: *const c_void, base: *mut *mut c_void, bytes: *mut u64) -> forebay_status;
    pub fn forebay_pool_try_malloc(pool: *mut forebay_pool, framework: u32, bytes: u64, device: i32, stream: *mut c_void, out: *mut *mut c_void) -> u32;
    pub fn forebay_pool_try_free(pool: *mut forebay_pool, ptr: *mut c_void, stream: *mut c_void) -> u32;
    pub fn forebay_stream_register(pool: *mut forebay_pool, device: i32, stream: *mut c_void) -> forebay_status;
    pub fn forebay_stream_unregister(pool: *mut forebay_pool, device: i32, stream: *mut c_void) -> forebay_status;
    pub fn forebay_stream_create(pool: *mut forebay_pool, device: i32, out: *mut *mut c_void) -> forebay_status;
    pub fn forebay_stream_destroy(pool: *mut forebay_pool, device: i32, stream: *mut c_void) -> forebay_status;
    pub fn forebay_stream_synchronize(pool: *mut forebay_pool, device: i32, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_copy(pool: *mut forebay_pool, device: i32, to: *mut c_void, from: *const c_void, bytes: u64, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_fill(pool: *mut forebay_pool, device: i32, to: *mut c_void, value: u8, bytes: u64, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_host_register(pool: *const forebay_pool, device: i32, ptr: *mut c_void, bytes: u64, portable: u32, mapped: u32) -> forebay_status;
    pub fn forebay_pool_host_unregister(pool: *const forebay_pool, device: i32, ptr: *mut c_void) -> forebay_status;
    pub fn forebay_pool_trim(pool: *mut forebay_pool, device: i32, keep: u64, released: *mut u64) -> forebay_status;
    pub fn forebay_pool_set_limit(pool: *mut forebay_pool, device: i32, bytes: u64) -> forebay_status;
    pub fn forebay_pool_set_fraction(pool: *mut forebay_pool, device: i32, fraction: f64) -> forebay_status;
    pub fn forebay_pool_get_limit(pool: *const forebay_pool, device: i32, out: *mut u64) -> forebay_status;
    pub fn forebay_pool_add_pressure_callback(pool: *mut forebay_pool, callback: forebay_pressure_fn, user: *mut c_void, id: *mut u64) -> forebay_status;
    pub fn forebay_pool_remove_pressure_callback(pool: *mut forebay_pool, id: u64) -> forebay_status;
    pub fn forebay_pool_get_stats(pool: *const forebay_pool, device: i32, out: *mut forebay_pool_stats) -> forebay_status;
    pub fn forebay_pool_get_stream_stats(pool: *const forebay_pool, device: i32, stream: *mut c_void, out: *mut forebay_stream_stats) -> forebay_status;
    pub fn forebay_pool_reset_peaks(pool: *mut forebay_pool, device: i32) -> forebay_status;
    pub fn forebay_pool_report(pool: *const forebay_pool, device: i32, buffer: *mut c_char, capacity: usize, needed: *mut usize) -> forebay_status;
    pub fn forebay_pool_check(pool: *const forebay_pool, device: i32) -> forebay_status;
    pub fn forebay_pool_snapshot(pool: *const forebay_pool, device: i32, visit: forebay_block_fn, context: *mut c_void) -> forebay_status;
    pub fn forebay_pool_set_mapping_observer(pool: *mut forebay_pool, device: i32, observer: forebay_mapping_fn, user: *mut c_void) -> forebay_status;
    pub fn forebay_pool_private_begin(pool: *mut forebay_pool, device: i32, id: u64, stream: *mut c_void) -> forebay_status;
    pub fn forebay_pool_private_end(pool: *mut forebay_pool, device: i32, id: u64) -> forebay_status;
    pub fn forebay_pool_private_release(pool: *mut forebay_pool, device: i32, id: u64) -> forebay_status;
    pub fn forebay_pool_release_captures(pool: *mut forebay_pool, device: i32, captures: *mut u64) -> forebay_status;
    pub fn forebay_device_resource_options_init(options: *mut forebay_device_resource_options) -> forebay_status;
    pub fn forebay_pinned_resource_options_init(options: *mut forebay_pinned_resource_options) -> forebay_status;
    pub fn forebay_managed_resource_options_init(options: *mut forebay_managed_resource_options) -> forebay_status;
    pub fn forebay_virtual_resource_options_init(options: *mut forebay_virtual_resource_options) -> forebay_status;
    pub fn forebay_host_resource_options_init(options: *mut forebay_host_resource_options) -> forebay_status;
    pub fn forebay_device_resource_create(device: i32, options: *const forebay_device_resource_options, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_pinned_resource_create(options: *const forebay_pinned_resource_options, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_managed_resource_create(options: *const forebay_managed_resource_options, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_virtual_resource_create(device: i32, options: *const forebay_virtual_resource_options, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_host_resource_create(options: *const forebay_host_resource_options, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_pool_resource_create(pool: *mut forebay_pool, device: i32, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_resource_destroy(resource: *mut forebay_resource);
    pub fn forebay_resource_close(resource: *mut forebay_resource) -> forebay_status;
    pub fn forebay_resource_allocate(resource: *mut forebay_resource, bytes: u64, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_resource_try_allocate(resource: *mut forebay_resource, bytes: u64, stream: *mut c_void, out: *mut *mut forebay_buffer) -> u32;
    pub fn forebay_resource_allocate_pointer(resource: *mut forebay_resource, bytes: u64, stream: *mut c_void, out: *mut *mut c_void) -> forebay_status;
    pub fn forebay_resource_deallocate(resource: *mut forebay_resource, ptr: *mut c_void, bytes: u64, stream: *mut c_void) -> forebay_status;
    pub fn forebay_resource_deallocate_pointer(resource: *mut forebay_resource, ptr: *mut c_void) -> forebay_status;
    pub fn forebay_resource_get_info(resource: *const forebay_resource, out: *mut forebay_resource_info) -> forebay_status;
    pub fn forebay_resource_get_attribute(resource: *const forebay_resource, number: u32, out: *mut u64) -> forebay_status;
    pub fn forebay_resource_set_attribute(resource: *mut forebay_resource, number: u32, value: u64) -> forebay_status;
    pub fn forebay_resource_get_peer_access(resource: *const forebay_resource, peer_device: i32, access: *mut u32) -> forebay_status;
    pub fn forebay_resource_set_peer_access(resource: *mut forebay_resource, peer_device: i32, access: u32) -> forebay_status;
    pub fn forebay_resource_trim(resource: *mut forebay_resource, keep: u64) -> forebay_status;
    pub fn forebay_resource_modify_allocation(resource: *mut forebay_resource, buffer: *mut forebay_buffer, new_size: u64, config: *const forebay_virtual_resource_options, stream: *mut c_void) -> forebay_status;
    pub fn forebay_buffer_from_handle(ptr: *mut c_void, bytes: u64, resource: *mut forebay_resource, release: forebay_release_fn, context: *mut c_void, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_buffer_destroy(buffer: *mut forebay_buffer);
    pub fn forebay_buffer_close(buffer: *mut forebay_buffer) -> forebay_status;
    pub fn forebay_buffer_try_close(buffer: *mut forebay_buffer) -> u32;
    pub fn forebay_buffer_close_on(buffer: *mut forebay_buffer, stream: *mut c_void) -> forebay_status;
    pub fn forebay_buffer_get_info(buffer: *const forebay_buffer, out: *mut forebay_buffer_info) -> forebay_status;
    pub fn forebay_buffer_get_resource(buffer: *const forebay_buffer, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_buffer_copy(dst: *mut forebay_buffer, src: *const forebay_buffer, stream: *mut c_void) -> forebay_status;
    pub fn forebay_buffer_clone(src: *const forebay_buffer, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_buffer_fill(buffer: *mut forebay_buffer, value: u32, width: u32, stream: *mut c_void) -> forebay_status;
    pub fn forebay_buffer_to_dlpack(buffer: *mut forebay_buffer, out: *mut *mut DLManagedTensorVersioned) -> forebay_status;
    pub fn forebay_buffer_to_dlpack_legacy(buffer: *mut forebay_buffer, out: *mut *mut DLManagedTensor) -> forebay_status;
    pub fn forebay_buffer_from_dlpack(tensor: *mut DLManagedTensorVersioned, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_buffer_from_dlpack_legacy(tensor: *mut DLManagedTensor, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_dlpack_capsule_delete(capsule: *mut c_void);
    pub fn forebay_resource_get_allocation_handle(resource: *mut forebay_resource, fd: *mut i32, uuid: *mut u8) -> forebay_status;
    pub fn forebay_resource_from_allocation_handle(kind: u32, device: i32, fd: i32, uuid: *const u8, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_resource_register(resource: *mut forebay_resource, uuid: *const u8, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_resource_from_registry(uuid: *const u8, out: *mut *mut forebay_resource) -> forebay_status;
    pub fn forebay_ipc_serve() -> forebay_status;
    pub fn forebay_buffer_get_ipc_descriptor(buffer: *mut forebay_buffer, out: *mut forebay_ipc_descriptor) -> forebay_status;
    pub fn forebay_ipc_descriptor_size(descriptor: *const forebay_ipc_descriptor, bytes: u64, size: *mut u64) -> forebay_status;
    pub fn forebay_buffer_from_ipc_descriptor(resource: *mut forebay_resource, descriptor: *const forebay_ipc_descriptor, bytes: u64, stream: *mut c_void, out: *mut *mut forebay_buffer) -> forebay_status;
    pub fn forebay_ipc_export(pool: *mut forebay_pool, ptr: *const c_void, out: *mut forebay_ipc_descriptor) -> forebay_status;
    pub fn forebay_ipc_export_foreign(ptr: *const c_void, bytes: u64, out: *mut forebay_ipc_descriptor) -> forebay_status;
    pub fn forebay_cupy_set_stream_getter(getter: forebay_stream_getter);
    pub fn forebay_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void;
    pub fn forebay_cupy_free(param: *mut c_void, ptr: *mut c_void, device: c_int);
    pub fn forebay_cupy_set_memory_hooks(getter: forebay_hook_getter, tell: *mut c_void);
    pub fn forebay_cupy_pool_create(resources: *const *const forebay_resource, count: u32, out: *mut *mut forebay_cupy_pool) -> forebay_status;
    pub fn forebay_cupy_pool_destroy(pool: *mut forebay_cupy_pool);
    pub fn forebay_cupy_pool_set_limit(pool: *mut forebay_cupy_pool, device: i32, bytes: u64) -> forebay_status;
    pub fn forebay_cupy_pool_get_limit(pool: *const forebay_cupy_pool, device: i32, out: *mut u64) -> forebay_status;
    pub fn forebay_cupy_pool_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void;
    pub fn forebay_cupy_pool_free(param: *mut c_void, ptr: *mut c_void, device: c_int);
    pub fn forebay_torch_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
    pub fn forebay_torch_free(ptr: *mut c_void, _size: isize, _device: c_int, stream: *mut c_void);
    pub fn forebay_torch_init(_device_count: c_int);
    pub fn forebay_torch_reset();
    pub fn forebay_torch_memory_fraction(fraction: f64, device: c_int);
    pub fn forebay_torch_base_alloc(ptr: *mut c_void, size: *mut usize) -> *mut c_void;
    pub fn forebay_torch_record_stream(ptr: *mut c_void, stream: *mut c_void);
    pub fn forebay_torch_begin_allocate_to_pool(device: c_int, id_first: u64, id_second: u64, filter: *mut c_void);
    pub fn forebay_torch_end_allocate_to_pool(device: c_int, id_first: u64, id_second: u64);
    pub fn forebay_torch_release_pool(device: c_int, id_first: u64, id_second: u64);
    pub fn forebay_torch_block_at(ptr: *const c_void, out: *mut forebay_torch_block) -> forebay_status;
    pub fn forebay_torch_free_while(ptr: *mut c_void, has_current: u32, current: *mut c_void, out: *mut forebay_torch_block) -> forebay_status;
    pub fn forebay_torch_hold_pool(device: c_int, id_first: u64, id_second: u64) -> forebay_status;
    pub fn forebay_torch_pool_use_count(device: c_int, id_first: u64, id_second: u64, out: *mut u32) -> forebay_status;
    pub fn forebay_torch_pool_of(ptr: *const c_void, id_first: *mut u64, id_second: *mut u64) -> forebay_status;
    pub fn forebay_torch_restore(id_first: u64, id_second: u64, ptr: *mut c_void, bytes: u64, stream: *mut c_void) -> forebay_status;
}
