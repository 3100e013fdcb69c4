//! Calls of resources and buffers.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use bolero::TypeGenerator;
use bolero::generator::*;
use forebay::abi::core::handle::ForebayResource;
use forebay::abi::resource::buffer::*;
use forebay::abi::resource::create::*;
use forebay::abi::resource::dlpack::*;
use forebay::abi::resource::object::*;
use forebay::abi::resource::options::*;
use forebay_fuzz::Size;

use crate::Index;
use crate::kit::resources::*;
use crate::pool::Device;
use crate::world::{Made, Owner, Range, World, allowed, done};

/// Numbers of a virtual memory resource's options: each is 0 to 7, so that most mean something.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Virtual {
    location: u8,
    handle: u8,
    granularity: u8,
    access: (u8, u8),
    peers: u8,
    hint: Size,
    align: u8,
    changes: u8,
}

impl Virtual {
    /// The defaults, with those of the numbers that `changes` has a bit for.
    fn options(&self) -> (VirtualOptions, [i32; 2]) {
        let (is, number) = (|bit: u8| self.changes & (1 << bit) != 0, |number: u8| u32::from(number % 8));
        let options = virtual_options(|options| {
            options.location_type = if is(0) { number(self.location) } else { options.location_type };
            options.handle_type = if is(1) { number(self.handle) } else { options.handle_type };
            options.granularity = if is(2) { number(self.granularity) } else { options.granularity };
            options.self_access = if is(3) { number(self.access.0) } else { options.self_access };
            options.peer_access = if is(4) { number(self.access.1) } else { options.peer_access };
            options.peer_count = if is(5) { u32::from(self.peers % 3) } else { 0 };
            options.addr_hint = if is(6) { self.hint.0 } else { 0 };
            options.addr_align = if is(7) { 1 << (self.align % 64) } else { 0 };
        });
        (options, [1, i32::from(self.peers % 4) - 1])
    }
}

#[derive(Clone, Debug, TypeGenerator)]
pub enum Call {
    MakePool { device: Device },
    MakeDevice { device: Device, source: u8, ipc: u8, max_size: Size },
    MakePinned { source: u8, ipc: u8, numa: i8, device: Device, own: u8, max_size: Size },
    MakeManaged { source: u8, location: u8, number: i8, device: Device },
    MakeVirtual { device: Device, options: Virtual },
    MakeHost { portable: u8, mapped: u8, combined: u8, device: Device },
    Close { which: Index },
    Attribute { which: Index, number: u8, value: Size, writes: bool },
    Peer { which: Index, device: Device, access: u8, writes: bool },
    Trim { which: Index, keep: Size },
    Info { which: Index },
    Handle { which: Index },
    Pointer { which: Index, bytes: Size, stream: Index },
    Deallocate { which: Index, bytes: Size, on_own: bool },
    DeallocateWrong { which: Index, of: Index, offset: u16 },
    Null { which: u8 },
}

#[derive(Clone, Debug, TypeGenerator)]
pub enum BufferCall {
    Allocate { which: Index, bytes: Size, stream: Index, tries: bool },
    Close { which: Index, how: u8, stream: Index },
    Destroy { which: Index },
    Info { which: Index },
    Fill { which: Index, value: u32, width: u8 },
    Copy { from: Index, to: Index },
    Clone { which: Index },
    Modify { which: Index, bytes: Size, options: Option<Virtual> },
    Tensor { which: Index },
    DeleteTensor { which: Index },
    Descriptor { which: Index },
    Around { which: Index, bytes: u8, with_resource: bool, with_release: bool },
    Resource { which: Index },
}

/// The same, and its device may write it.
fn is_written(range: &Range) -> bool {
    is_open(&range.owner) && range.mark.is_some()
}

fn is_pointer(owner: &Owner) -> bool {
    matches!(owner, Owner::Pointer(_))
}

/// A buffer that is open.
fn is_open(owner: &Owner) -> bool {
    matches!(owner, Owner::Buffer(Some(buffer), ..) if buffer.info().is_closed == 0)
}

fn has_tensor(owner: &Owner) -> bool {
    matches!(owner, Owner::Buffer(.., tensors) if !tensors.is_empty())
}

/// What an allocation may answer.
const NO_MEMORY: [Status; 5] =
    [Status::OutOfMemory, Status::InvalidArgument, Status::Closed, Status::Driver, Status::Unsupported];

unsafe extern "C" fn count(context: *mut c_void) {
    unsafe { &*context.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

impl World {
    fn resource(&self, which: Index) -> Option<usize> {
        (!self.resources.is_empty()).then(|| usize::from(which) % self.resources.len())
    }

    fn keep(&mut self, device: i32, of_pool: bool, made: Outcome<Resource>) {
        match made {
            Ok(resource) => {
                self.resources.push(Made { resource, of_pool, device, is_closed: false, writable: true });
            }
            Err(failure) => assert_ne!(failure.status, Status::Panic, "{failure:?}"),
        }
    }

    pub fn resource_call(&mut self, call: &Call) {
        if self.resources.len() < 6 {
            self.make(call);
        }
        match *call {
            Call::Close { which } => {
                let Some(index) = self.resource(which) else { return };
                let made = &mut self.resources[index];
                done(unsafe { forebay_resource_close(made.resource.0) }).unwrap();
                made.is_closed = made.resource.info().is_closed == 1;
            }
            Call::Attribute { which, number, value, writes } => {
                let Some(index) = self.resource(which) else { return };
                let (resource, number, mut out) = (self.resources[index].resource.0, u32::from(number % 12), 0);
                let _ = done(match writes {
                    true => unsafe { forebay_resource_set_attribute(resource, number, value.0) },
                    false => unsafe { forebay_resource_get_attribute(resource, number, &raw mut out) },
                });
            }
            Call::Peer { which, device, access, writes } => {
                let Some(index) = self.resource(which) else { return };
                let (resource, peer, mut out) = (self.resources[index].resource.0, device.number(), 0);
                if self.resources[index].device == peer && writes {
                    // Without access, its own device could not check the contents.
                    return;
                }
                let _ = done(match writes {
                    true => unsafe { forebay_resource_set_peer_access(resource, peer, u32::from(access % 4)) },
                    false => unsafe { forebay_resource_get_peer_access(resource, peer, &raw mut out) },
                });
            }
            Call::Trim { which, keep } => {
                let Some(index) = self.resource(which) else { return };
                let _ = done(unsafe { forebay_resource_trim(self.resources[index].resource.0, keep.0) });
            }
            Call::Info { which } => {
                let Some(index) = self.resource(which) else { return };
                let made = &self.resources[index];
                assert_eq!(made.resource.info().is_closed == 1, made.is_closed);
            }
            Call::Handle { which } => {
                let Some(index) = self.resource(which) else { return };
                if let Err(failure) = self.resources[index].resource.allocation_handle() {
                    allowed(failure, &[Status::NotPermitted, Status::Unsupported, Status::Closed])
                }
            }
            Call::Pointer { which, bytes, stream } => {
                let Some(index) = self.resource(which) else { return };
                let Made { device, ref resource, is_closed, .. } = self.resources[index];
                let stream = self.stream(device, stream);
                match resource.pointer(bytes.0, stream) {
                    Ok(0) => assert_eq!(bytes.0, 0),
                    Ok(at) => {
                        assert!(!is_closed);
                        self.add_of(index, at, bytes.0, stream, Owner::Pointer(index));
                    }
                    Err(failure) => allowed(failure, &NO_MEMORY),
                }
            }
            Call::Deallocate { which, bytes, on_own } => {
                let Some(at) = self.pick(which, is_pointer) else { return };
                let range = self.ranges.remove(&at).unwrap();
                let Owner::Pointer(index) = range.owner else { unreachable!() };
                let resource = &self.resources[index].resource;
                match on_own {
                    true => resource.deallocate_pointer(at).unwrap(),
                    false => resource.deallocate(at, bytes.0, range.stream).unwrap(),
                }
                refused(resource.deallocate_pointer(at), Status::BadFree, &[]);
            }
            Call::DeallocateWrong { which, of, offset } => {
                let (Some(index), Some(at)) = (self.resource(which), self.pick(of, |_| true)) else { return };
                let at = at + usize::from(offset);
                let is_its = matches!(self.ranges.get(&at), Some(range) if matches!(range.owner, Owner::Pointer(owner) if owner == index));
                if !is_its {
                    refused(self.resources[index].resource.deallocate_pointer(at), Status::BadFree, &[]);
                }
            }
            Call::Null { which } => null(which),
            _ => {}
        }
    }

    fn make(&mut self, call: &Call) {
        match call {
            Call::MakePool { device } => {
                let (pool, number) = (self.pool.0, device.number());
                let made = Resource::made(|out| unsafe { forebay_pool_resource_create(pool, number, out) });
                self.keep(number, true, made);
            }
            Call::MakeDevice { device, source, ipc, max_size } => {
                let options = filled(forebay_device_resource_options_init, |options| {
                    // Not a handle of the caller's: there is none.
                    (options.source, options.ipc_enabled) = (u32::from(source % 3), u32::from(ipc % 3));
                    options.max_size = if source & 8 == 0 { 0 } else { max_size.0 };
                });
                let options = if source & 16 == 0 { &raw const options } else { std::ptr::null() };
                let number = device.number();
                let made = Resource::made(|out| unsafe { forebay_device_resource_create(number, options, out) });
                self.keep(number, false, made);
            }
            Call::MakePinned { source, ipc, numa, device, own, max_size } => {
                let made = Resource::pinned(|options| {
                    (options.source, options.ipc_enabled) = (u32::from(source % 3), u32::from(ipc % 3));
                    (options.numa_id, options.own_pool) = (i32::from(numa % 4), u32::from(own % 3));
                    (options.device, options.max_size) =
                        (device.number(), if source & 8 == 0 { 0 } else { max_size.0 });
                });
                self.keep(device.number().max(0), false, made);
            }
            Call::MakeManaged { source, location, number, device } => {
                let made = Resource::managed(|options| {
                    (options.source, options.device) = (u32::from(source % 3), device.number());
                    if source & 8 == 0 {
                        options.preferred_location_type = u32::from(location % 6);
                        options.preferred_location = i32::from(number % 4);
                    }
                });
                self.keep(device.number().max(0), false, made);
            }
            Call::MakeVirtual { device, options } => {
                let (mut options, peers) = options.options();
                options.peers = peers.as_ptr();
                let number = device.number();
                let made =
                    Resource::made(|out| unsafe { forebay_virtual_resource_create(number, &raw const options, out) });
                let before = self.resources.len();
                self.keep(number, false, made);
                let writable = options.self_access == ForebayAccess::ReadWrite as u32;
                self.resources.iter_mut().skip(before).for_each(|made| made.writable = writable);
            }
            Call::MakeHost { portable, mapped, combined, device } => {
                let made = Resource::host(|options| {
                    (options.portable, options.mapped) = (u32::from(portable % 3), u32::from(mapped % 3));
                    (options.write_combined, options.device) = (u32::from(combined % 3), device.number());
                });
                self.keep(device.number().max(0), false, made);
            }
            _ => {}
        }
    }

    /// A new range of a resource.
    fn add_of(&mut self, index: usize, at: Block, bytes: u64, stream: Stream, owner: Owner) {
        let Made { device, of_pool, .. } = self.resources[index];
        self.add(at, bytes, device, stream, owner);
        if of_pool {
            self.ranges.get_mut(&at).unwrap().in_pool = self.pool.block_size(at).unwrap();
        }
    }

    fn buffer(&self, at: Block) -> &Buffer {
        let Owner::Buffer(Some(buffer), ..) = &self.ranges[&at].owner else { panic!("{at:#x} is of no buffer") };
        buffer
    }

    /// The buffer was closed, or destroyed: its memory is gone unless a tensor has it.
    fn closed(&mut self, at: Block) {
        if !has_tensor(&self.ranges[&at].owner) {
            self.ranges.remove(&at);
        }
    }

    pub fn buffer_call(&mut self, call: &BufferCall) {
        match *call {
            BufferCall::Allocate { which, bytes, stream, tries } => {
                let Some(index) = self.resource(which) else { return };
                let Made { device, ref resource, is_closed, .. } = self.resources[index];
                let stream = self.stream(device, stream);
                let mut tried = std::ptr::null_mut();
                let handle = stream as *mut c_void;
                let made = if tries {
                    match unsafe { forebay_resource_try_allocate(resource.0, bytes.0, handle, &raw mut tried) } {
                        0 => return,
                        _ => Ok(Buffer(tried)),
                    }
                } else {
                    resource.allocate(bytes.0, stream)
                };
                match made {
                    Ok(buffer) => {
                        assert!(!is_closed);
                        let info = buffer.info();
                        assert!(info.bytes >= bytes.0 && info.is_closed == 0 && info.has_resource == 1);
                        if info.bytes > 0 {
                            let owner = Owner::Buffer(Some(buffer), index, Vec::new());
                            self.add_of(index, info.handle as Block, info.bytes, stream, owner);
                        }
                    }
                    Err(failure) => allowed(failure, &NO_MEMORY),
                }
            }
            BufferCall::Close { which, how, stream } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let (device, own) = (self.ranges[&at].device, self.ranges[&at].stream);
                let buffer = self.buffer(at);
                match how % 3 {
                    0 => buffer.close().unwrap(),
                    1 => {
                        self.synchronize(device, own);
                        buffer.close_on(self.stream(device, stream)).unwrap();
                    }
                    _ => {
                        if unsafe { forebay_buffer_try_close(buffer.0) } == 0 {
                            buffer.close().unwrap();
                        }
                    }
                }
                buffer.close().unwrap();
                assert_eq!(buffer.info().is_closed, 1);
                self.closed(at);
            }
            BufferCall::Destroy { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let Owner::Buffer(buffer, ..) = &mut self.ranges.get_mut(&at).unwrap().owner else { unreachable!() };
                drop(buffer.take());
                self.closed(at);
            }
            BufferCall::Info { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let (info, range) = (self.buffer(at).info(), &self.ranges[&at]);
                assert_eq!((info.handle as Block, info.bytes, info.stream as Stream), (at, range.bytes, range.stream));
            }
            BufferCall::Fill { which, value, width } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let range = &self.ranges[&at];
                if range.bytes > 1 << 20 || !is_written(range) {
                    return;
                }
                let (buffer, width, stream) = (self.buffer(at), u32::from(width % 6), range.stream as *mut c_void);
                let filled = done(unsafe { forebay_buffer_fill(buffer.0, value, width, stream) });
                let fits = [1, 2, 4].contains(&width)
                    && u64::from(value) < 1 << (8 * width)
                    && range.bytes.is_multiple_of(width.into());
                assert_eq!(filled.is_ok(), fits);
                if fits {
                    self.mark(at);
                }
            }
            BufferCall::Copy { from, to } => {
                let (Some(from), Some(to)) = (self.pick(from, is_open), self.pick(to, is_open)) else { return };
                let (source, target) = (&self.ranges[&from], &self.ranges[&to]);
                let apart = from == to || source.device != target.device;
                if apart || source.bytes > 4 << 20 || !is_written(source) || !is_written(target) {
                    return;
                }
                let (mark, fits, device) = (source.mark, source.bytes == target.bytes, source.device);
                self.synchronize(device, source.stream);
                let stream = target.stream as *mut c_void;
                let copied = done(unsafe { forebay_buffer_copy(self.buffer(to).0, self.buffer(from).0, stream) });
                assert_eq!(copied.is_ok(), fits);
                // Before anything else is done with the source.
                self.synchronize(device, self.ranges[&to].stream);
                if fits {
                    self.ranges.get_mut(&to).unwrap().mark = mark;
                }
            }
            BufferCall::Clone { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let (stream, bytes, mark) = (self.ranges[&at].stream, self.ranges[&at].bytes, self.ranges[&at].mark);
                let Owner::Buffer(_, index, _) = self.ranges[&at].owner else { unreachable!() };
                if bytes > 4 << 20 || mark.is_none() {
                    return;
                }
                let mut out = std::ptr::null_mut();
                let source = self.buffer(at).0;
                match done(unsafe { forebay_buffer_clone(source, stream as *mut c_void, &raw mut out) }) {
                    Ok(()) => {
                        let buffer = Buffer(out);
                        let clone = buffer.at();
                        assert_eq!(buffer.bytes(), bytes);
                        let mut data = vec![0u8; bytes.min(4096) as usize];
                        let device = self.resources[index].device;
                        shared_copy(device, data.as_mut_ptr(), clone as u64, data.len() as u64, stream as *mut c_void);
                        assert!(data.iter().all(|&byte| Some(byte) == mark), "a clone of other contents");
                        self.add_of(index, clone, bytes, stream, Owner::Buffer(Some(buffer), index, Vec::new()));
                    }
                    Err(failure) => allowed(failure, &NO_MEMORY),
                }
            }
            BufferCall::Modify { which, bytes, ref options } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let Owner::Buffer(_, index, _) = self.ranges[&at].owner else { unreachable!() };
                let (stream, busy) = (self.ranges[&at].stream, has_tensor(&self.ranges[&at].owner));
                let config = options.as_ref().map(|options| {
                    let (options, _) = options.options();
                    // As the memory that is there: no peers, and its device may write.
                    VirtualOptions { peer_count: 0, self_access: ForebayAccess::ReadWrite as u32, ..options }
                });
                let config = config.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                let resource = self.resources[index].resource.0;
                let buffer = self.buffer(at);
                let (object, stream) = (buffer.0, stream as *mut c_void);
                let modified =
                    done(unsafe { forebay_resource_modify_allocation(resource, object, bytes.0, config, stream) });
                let info = buffer.info();
                assert!(!(busy && modified.is_ok()));
                if modified.is_err() {
                    assert_eq!((info.handle as Block, info.bytes), (at, self.ranges[&at].bytes));
                    return;
                }
                assert!(info.bytes >= bytes.0);
                let old = self.ranges.remove(&at).unwrap();
                if info.bytes == 0 {
                    return;
                }
                // The head has to be as it was.
                let kept = if old.mark.is_some() { old.bytes.min(info.bytes).min(4096) } else { 0 };
                let mut data = vec![0u8; kept as usize];
                shared_copy(old.device, data.as_mut_ptr(), info.handle, kept, stream);
                assert!(data.iter().all(|&byte| Some(byte) == old.mark), "{at:#x} lost its contents");
                self.add(info.handle as Block, info.bytes, old.device, old.stream, old.owner);
            }
            BufferCall::Tensor { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                let (mut tensor, buffer) = (std::ptr::null_mut(), self.buffer(at).0);
                done(unsafe { forebay_buffer_to_dlpack(buffer, &raw mut tensor) }).unwrap();
                let Owner::Buffer(.., tensors) = &mut self.ranges.get_mut(&at).unwrap().owner else { unreachable!() };
                tensors.push(tensor);
            }
            BufferCall::DeleteTensor { which } => {
                let Some(at) = self.pick(which, has_tensor) else { return };
                let Owner::Buffer(buffer, _, tensors) = &mut self.ranges.get_mut(&at).unwrap().owner else {
                    unreachable!()
                };
                let is_closed = buffer.as_ref().is_none_or(|buffer| buffer.info().is_closed == 1);
                let tensor = tensors.pop().unwrap();
                unsafe { (*tensor).deleter.unwrap()(tensor) };
                if is_closed {
                    self.closed(at);
                }
            }
            BufferCall::Descriptor { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                if let Err(failure) = self.buffer(at).descriptor() {
                    allowed(failure, &[Status::NotPermitted, Status::Unsupported, Status::Closed, Status::Driver]);
                }
            }
            BufferCall::Around { which, bytes, with_resource, with_release } => {
                self.around(which, bytes, with_resource, with_release)
            }
            BufferCall::Resource { which } => {
                let Some(at) = self.pick(which, is_open) else { return };
                drop(self.buffer(at).resource().unwrap());
            }
        }
    }

    /// A buffer around memory of the program's, or around a pointer of a resource.
    fn around(&mut self, which: Index, bytes: u8, with_resource: bool, with_release: bool) {
        let (memory, calls) = (vec![0u8; usize::from(bytes) + 1], AtomicU32::new(0));
        let pointer = if with_resource { self.pick(which, is_pointer) } else { None };
        let (at, bytes, stream, resource, index) = match pointer {
            Some(at) => {
                let range = &self.ranges[&at];
                let Owner::Pointer(index) = range.owner else { unreachable!() };
                (at, range.bytes, range.stream, self.resources[index].resource.0, index)
            }
            None => (memory.as_ptr() as Block, bytes.into(), LEGACY, std::ptr::null_mut::<ForebayResource>(), 0),
        };
        let release: ForebayReleaseFn = if with_release { Some(count) } else { None };
        let (mut out, context) = (std::ptr::null_mut(), std::ptr::from_ref(&calls).cast_mut().cast());
        let (address, handle) = (at as *mut c_void, stream as *mut c_void);
        let made = done(unsafe {
            forebay_buffer_from_handle(address, bytes, resource, release, context, handle, &raw mut out)
        });
        if pointer.is_some() && with_release {
            refused(made, Status::InvalidArgument, &[]);
            return;
        }
        made.unwrap();
        let buffer = Buffer(out);
        if pointer.is_some() {
            refused(self.resources[index].resource.deallocate_pointer(at), Status::BadFree, &[]);
            self.ranges.get_mut(&at).unwrap().owner = Owner::Buffer(Some(buffer), index, Vec::new());
            return;
        }
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        buffer.close().unwrap();
        drop(buffer);
        assert_eq!(calls.load(Ordering::Relaxed), with_release.into());
    }

    /// Gives a range back in the order of its own stream.
    pub fn let_go(&mut self, at: Block) {
        match &mut self.ranges.get_mut(&at).unwrap().owner {
            Owner::Pool => self.free_plainly(at),
            Owner::Pointer(index) => {
                self.resources[*index].resource.deallocate_pointer(at).unwrap();
                self.ranges.remove(&at);
            }
            Owner::Buffer(buffer, _, tensors) => {
                drop(buffer.take());
                for tensor in std::mem::take(tensors) {
                    unsafe { (*tensor).deleter.unwrap()(tensor) };
                }
                self.ranges.remove(&at);
            }
        }
    }
}

fn shared_copy(device: i32, to: *mut u8, from: u64, bytes: u64, stream: *mut c_void) {
    use forebay::abi::pool::streams::*;
    let pool = shared().0;
    done(unsafe { forebay_pool_copy(pool, device, to.cast(), from as *const c_void, bytes, stream) }).unwrap();
    done(unsafe { forebay_stream_synchronize(pool, device, stream) }).unwrap();
}

/// Calls without an object or an output.
fn null(which: u8) {
    let nothing = std::ptr::null_mut();
    let status = unsafe {
        match which % 10 {
            0 => forebay_resource_close(std::ptr::null_mut()),
            1 => forebay_resource_allocate(std::ptr::null_mut(), 1, nothing, std::ptr::null_mut()),
            2 => forebay_device_resource_create(0, std::ptr::null(), std::ptr::null_mut()),
            3 => forebay_buffer_close(std::ptr::null_mut()),
            4 => forebay_buffer_get_info(std::ptr::null(), std::ptr::null_mut()),
            5 => forebay_buffer_fill(std::ptr::null_mut(), 0, 1, nothing),
            6 => forebay_buffer_to_dlpack(std::ptr::null_mut(), std::ptr::null_mut()),
            7 => forebay_buffer_from_dlpack(std::ptr::null_mut(), nothing, std::ptr::null_mut()),
            8 => forebay_resource_get_info(std::ptr::null(), std::ptr::null_mut()),
            _ => forebay_buffer_from_handle(
                nothing,
                0,
                std::ptr::null_mut(),
                None,
                nothing,
                nothing,
                std::ptr::null_mut(),
            ),
        }
    };
    refused(done(status), Status::NullPointer, &[]);
}
