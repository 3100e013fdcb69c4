//! Resources and buffers as the tests use them: objects that are destroyed when dropped, data that is checked.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: objects are this module's own, outputs are locals, and wrong addresses are what is tested"
)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

pub use forebay::abi::core::enums::*;
use forebay::abi::core::handle::{ForebayBuffer, ForebayResource};
use forebay::abi::pool::create::forebay_pool_configure_shared;
pub use forebay::abi::resource::buffer::ForebayBufferInfo;
use forebay::abi::resource::buffer::*;
use forebay::abi::resource::create::*;
pub use forebay::abi::resource::ipc::ForebayIpcDescriptor;
use forebay::abi::resource::ipc::*;
use forebay::abi::resource::object::*;
pub use forebay::abi::resource::object::{FOREBAY_INFO_VERSION, ForebayResourceInfo};
use forebay::abi::resource::options::*;

pub use super::abi::*;

pub type Uuid = [u8; 16];
pub type Attribute = ForebayAttribute;
pub type Kind = ForebayResourceKind;
pub type Path = ForebayIpcPath;
pub type VirtualOptions = ForebayVirtualResourceOptions;

/// The shared pool, which says what driver resources are made on.
pub fn shared() -> &'static Pool {
    static SHARED: OnceLock<Pool> = OnceLock::new();
    SHARED.get_or_init(|| {
        let (options, _name) = options();
        outcome(unsafe { forebay_pool_configure_shared(&raw const options) }).unwrap();
        Pool::shared().unwrap()
    })
}

/// What was asked for, unless CUDA says that this machine lacks it: then the test says so, and ends. The host driver
/// lacks nothing.
#[track_caller]
pub fn had<T>(what: &str, result: Outcome<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(failure) if on_cuda() && failure.status == Status::Unsupported => {
            println!("skipped: {what}: {}", failure.text);
            None
        }
        Err(failure) => panic!("{what}: {failure:?}"),
    }
}

/// The same for what no document of CUDA promises: whatever it answers there, the test then ends.
#[track_caller]
pub fn had_or_not<T>(what: &str, result: Outcome<T>) -> Option<T> {
    match result {
        Err(failure) if on_cuda() => {
            println!("skipped: {what}: {failure:?}");
            None
        }
        other => had(what, other),
    }
}

/// Waits for everything that was queued on the legacy default stream.
pub fn synchronize() {
    shared().synchronize(LEGACY).unwrap();
}

/// Options of any kind, filled by their `_init` and changed.
pub fn filled<T>(init: unsafe extern "C" fn(*mut T) -> Status, change: impl FnOnce(&mut T)) -> T {
    let mut options = MaybeUninit::uninit();
    outcome(unsafe { init(options.as_mut_ptr()) }).unwrap();
    let mut options = unsafe { options.assume_init() };
    change(&mut options);
    options
}

pub fn virtual_options(change: impl FnOnce(&mut VirtualOptions)) -> VirtualOptions {
    filled(forebay_virtual_resource_options_init, change)
}

// ---- resources -----------------------------------------------------------------------------------------

/// A resource object.
#[derive(Debug)]
pub struct Resource(pub *mut ForebayResource);

// The C ABI promises that any thread may call.
unsafe impl Send for Resource {}
unsafe impl Sync for Resource {}

impl Drop for Resource {
    fn drop(&mut self) {
        unsafe { forebay_resource_destroy(self.0) };
    }
}

/// An object that a call gives: written on success, and only then.
#[track_caller]
fn given<T>(call: impl FnOnce(*mut *mut T) -> Status) -> Outcome<*mut T> {
    let untouched = std::ptr::without_provenance_mut(0xdead);
    let mut out = untouched;
    let done = outcome(call(&raw mut out));
    assert_eq!(done.is_err(), out == untouched, "an output is written on success, and only then");
    done.map(|()| out)
}

impl Resource {
    pub fn made(call: impl FnOnce(*mut *mut ForebayResource) -> Status) -> Outcome<Self> {
        shared();
        given(call).map(Self)
    }

    /// The device's current pool.
    pub fn current() -> Outcome<Self> {
        Self::made(|out| unsafe { forebay_device_resource_create(DEVICE, std::ptr::null(), out) })
    }

    pub fn device(change: impl FnOnce(&mut ForebayDeviceResourceOptions)) -> Outcome<Self> {
        let options = filled(forebay_device_resource_options_init, change);
        Self::made(|out| unsafe { forebay_device_resource_create(DEVICE, &raw const options, out) })
    }

    /// The host's current pool.
    pub fn current_pinned() -> Outcome<Self> {
        Self::made(|out| unsafe { forebay_pinned_resource_create(std::ptr::null(), out) })
    }

    pub fn pinned(change: impl FnOnce(&mut ForebayPinnedResourceOptions)) -> Outcome<Self> {
        let options = filled(forebay_pinned_resource_options_init, change);
        Self::made(|out| unsafe { forebay_pinned_resource_create(&raw const options, out) })
    }

    pub fn managed(change: impl FnOnce(&mut ForebayManagedResourceOptions)) -> Outcome<Self> {
        let options = filled(forebay_managed_resource_options_init, change);
        Self::made(|out| unsafe { forebay_managed_resource_create(&raw const options, out) })
    }

    pub fn virtual_memory(change: impl FnOnce(&mut VirtualOptions)) -> Outcome<Self> {
        let options = virtual_options(change);
        Self::made(|out| unsafe { forebay_virtual_resource_create(DEVICE, &raw const options, out) })
    }

    pub fn host(change: impl FnOnce(&mut ForebayHostResourceOptions)) -> Outcome<Self> {
        let options = filled(forebay_host_resource_options_init, change);
        Self::made(|out| unsafe { forebay_host_resource_create(&raw const options, out) })
    }

    pub fn of_pool(pool: &Pool) -> Outcome<Self> {
        given(|out| unsafe { forebay_pool_resource_create(pool.0, DEVICE, out) }).map(Self)
    }

    pub fn from_fd(kind: u32, fd: i32, uuid: Option<&Uuid>) -> Outcome<Self> {
        let uuid = uuid.map_or(std::ptr::null(), |uuid| uuid.as_ptr());
        Self::made(|out| unsafe { forebay_resource_from_allocation_handle(kind, DEVICE, fd, uuid, out) })
    }

    pub fn from_registry(uuid: &Uuid) -> Outcome<Self> {
        Self::made(|out| unsafe { forebay_resource_from_registry(uuid.as_ptr(), out) })
    }

    pub fn register(&self, uuid: &Uuid) -> Outcome<Self> {
        given(|out| unsafe { forebay_resource_register(self.0, uuid.as_ptr(), out) }).map(Self)
    }

    pub fn allocation_handle(&self) -> Outcome<(i32, Uuid)> {
        let (mut fd, mut uuid) = (-1, [0; 16]);
        outcome(unsafe { forebay_resource_get_allocation_handle(self.0, &raw mut fd, uuid.as_mut_ptr()) })
            .map(|()| (fd, uuid))
    }

    pub fn allocate(&self, bytes: u64, stream: Stream) -> Outcome<Buffer> {
        given(|out| unsafe { forebay_resource_allocate(self.0, bytes, stream as *mut c_void, out) }).map(Buffer)
    }

    pub fn pointer(&self, bytes: u64, stream: Stream) -> Outcome<Block> {
        given(|out| unsafe { forebay_resource_allocate_pointer(self.0, bytes, stream as *mut c_void, out) })
            .map(|block| block as Block)
    }

    pub fn deallocate(&self, block: Block, bytes: u64, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_resource_deallocate(self.0, block as *mut c_void, bytes, stream as *mut c_void) })
    }

    pub fn deallocate_pointer(&self, block: Block) -> Outcome {
        outcome(unsafe { forebay_resource_deallocate_pointer(self.0, block as *mut c_void) })
    }

    pub fn close(&self) -> Outcome {
        outcome(unsafe { forebay_resource_close(self.0) })
    }

    pub fn info(&self) -> ForebayResourceInfo {
        let mut info: ForebayResourceInfo = unsafe { std::mem::zeroed() };
        (info.size, info.version) = (size_of::<ForebayResourceInfo>() as u32, FOREBAY_INFO_VERSION);
        outcome(unsafe { forebay_resource_get_info(self.0, &raw mut info) }).unwrap();
        info
    }

    pub fn attribute(&self, attribute: Attribute) -> Outcome<u64> {
        let mut value = 0xdead;
        outcome(unsafe { forebay_resource_get_attribute(self.0, attribute as u32, &raw mut value) }).map(|()| value)
    }

    pub fn set_attribute(&self, attribute: Attribute, value: u64) -> Outcome {
        outcome(unsafe { forebay_resource_set_attribute(self.0, attribute as u32, value) })
    }

    pub fn peer_access(&self, peer: i32) -> Outcome<u32> {
        let mut access = 0xdead;
        outcome(unsafe { forebay_resource_get_peer_access(self.0, peer, &raw mut access) }).map(|()| access)
    }

    pub fn set_peer_access(&self, peer: i32, access: ForebayAccess) -> Outcome {
        outcome(unsafe { forebay_resource_set_peer_access(self.0, peer, access as u32) })
    }

    pub fn trim(&self, keep: u64) -> Outcome {
        outcome(unsafe { forebay_resource_trim(self.0, keep) })
    }

    pub fn modify(&self, buffer: &Buffer, bytes: u64, config: Option<&VirtualOptions>) -> Outcome {
        let config = config.map_or(std::ptr::null(), std::ptr::from_ref);
        outcome(unsafe { forebay_resource_modify_allocation(self.0, buffer.0, bytes, config, std::ptr::null_mut()) })
    }
}

/// What another process needs of a block of a pool.
pub fn exported(pool: &Pool, at: Block) -> Outcome<ForebayIpcDescriptor> {
    let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
    outcome(unsafe { forebay_ipc_export(pool.0, at as *const c_void, &raw mut descriptor) }).map(|()| descriptor)
}

// ---- buffers -------------------------------------------------------------------------------------------

/// A buffer object.
#[derive(Debug)]
pub struct Buffer(pub *mut ForebayBuffer);

// The C ABI promises that any thread may call.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        unsafe { forebay_buffer_destroy(self.0) };
    }
}

/// What a buffer of this size and seed holds: no two pages of it are the same.
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let word = |index: u64| (index ^ (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes.div_ceil(8)).flat_map(word).take(bytes as usize).collect()
}

impl Buffer {
    pub fn made(call: impl FnOnce(*mut *mut ForebayBuffer) -> Status) -> Outcome<Self> {
        shared();
        given(call).map(Self)
    }

    pub fn from_descriptor(resource: Option<&Resource>, descriptor: &ForebayIpcDescriptor) -> Outcome<Self> {
        let resource = resource.map_or(std::ptr::null_mut(), |resource| resource.0);
        let stream = std::ptr::null_mut();
        Self::made(|out| unsafe { forebay_buffer_from_ipc_descriptor(resource, descriptor, 256, stream, out) })
    }

    pub fn descriptor(&self) -> Outcome<ForebayIpcDescriptor> {
        let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
        outcome(unsafe { forebay_buffer_get_ipc_descriptor(self.0, &raw mut descriptor) }).map(|()| descriptor)
    }

    pub fn info(&self) -> ForebayBufferInfo {
        let mut info: ForebayBufferInfo = unsafe { std::mem::zeroed() };
        (info.size, info.version) = (size_of::<ForebayBufferInfo>() as u32, FOREBAY_INFO_VERSION);
        outcome(unsafe { forebay_buffer_get_info(self.0, &raw mut info) }).unwrap();
        info
    }

    pub fn at(&self) -> Block {
        self.info().handle as Block
    }

    pub fn bytes(&self) -> u64 {
        self.info().bytes
    }

    pub fn close(&self) -> Outcome {
        outcome(unsafe { forebay_buffer_close(self.0) })
    }

    pub fn close_on(&self, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_buffer_close_on(self.0, stream as *mut c_void) })
    }

    pub fn resource(&self) -> Outcome<Resource> {
        given(|out| unsafe { forebay_buffer_get_resource(self.0, out) }).map(Resource)
    }

    pub fn copy_from(&self, source: &Self) -> Outcome {
        outcome(unsafe { forebay_buffer_copy(self.0, source.0, std::ptr::null_mut()) })
    }

    pub fn copy(&self) -> Outcome<Self> {
        given(|out| unsafe { forebay_buffer_clone(self.0, std::ptr::null_mut(), out) }).map(Self)
    }

    pub fn fill(&self, value: u32, width: u32) -> Outcome {
        outcome(unsafe { forebay_buffer_fill(self.0, value, width, std::ptr::null_mut()) })
    }

    /// Writes bytes from `offset` on, through a copy, and waits for it.
    pub fn write(&self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.bytes());
        shared().copy(self.at() + offset as usize, data.as_ptr() as Block, data.len() as u64, LEGACY).unwrap();
        synchronize();
    }

    /// Reads bytes the same way.
    pub fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes());
        shared().read(self.at() + offset as usize, bytes, LEGACY)
    }

    pub fn write_pattern(&self, seed: u64) {
        self.write(0, &pattern(seed, self.bytes()));
    }

    /// The first `bytes` bytes are those of the pattern.
    #[track_caller]
    pub fn holds_pattern(&self, seed: u64, bytes: u64) {
        let (found, right) = (self.read(0, bytes), pattern(seed, bytes));
        let wrong = found.iter().zip(&right).position(|(found, right)| found != right);
        assert_eq!(wrong, None, "{bytes} bytes at {:#x}: the first wrong byte", self.at());
    }

    #[track_caller]
    pub fn holds(&self, byte: u8) {
        let wrong = self.read(0, self.bytes()).iter().position(|&found| found != byte);
        assert_eq!(wrong, None, "the first byte that is not {byte}");
    }
}

/// What every resource must do with data: write, copy, fill, read back, through another buffer of its own.
#[track_caller]
pub fn keeps_data(resource: &Resource, bytes: u64) {
    let first = resource.allocate(bytes, LEGACY).unwrap();
    let size = first.bytes();
    first.write_pattern(7);
    let second = first.copy().unwrap();
    assert_eq!(second.bytes(), size);
    assert_ne!(second.at(), first.at());
    second.holds_pattern(7, size);
    first.fill(0xa5, 1).unwrap();
    first.holds(0xa5);
    second.holds_pattern(7, size);
    first.copy_from(&second).unwrap();
    first.holds_pattern(7, size);
    for buffer in [first, second] {
        buffer.close().unwrap();
        buffer.close().unwrap();
        let info = buffer.info();
        assert_eq!((info.is_closed, info.bytes), (1, size));
    }
}
