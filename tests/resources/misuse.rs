//! NULLs, wrong structs and numbers out of range, for every function of resources, buffers and sharing.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use forebay::abi::pool::memory::forebay_pool_malloc_ready;
use forebay::abi::resource::buffer::*;
use forebay::abi::resource::create::*;
use forebay::abi::resource::dlpack::*;
use forebay::abi::resource::ipc::*;
use forebay::abi::resource::object::*;
use forebay::abi::resource::options::*;

use crate::kit::resources::*;

#[track_caller]
fn null_told(status: Status, name: &str) {
    refused(outcome(status), Status::NullPointer, &[name, "NULL"]);
}

const NOWHERE: *mut c_void = null_mut();

#[test]
fn every_null_object_and_output_is_told_by_name() {
    let resource = Resource::virtual_memory(|_| ()).unwrap();
    let buffer = resource.allocate(1, LEGACY).unwrap();
    let (r, b) = (resource.0, buffer.0);
    let (mut object, mut made, mut pointer, mut number, mut access) = (null_mut(), null_mut(), NOWHERE, 0u64, 0u32);
    let (mut fd, mut uuid) = (0, [0u8; 16]);
    let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
    let (mut versioned, mut legacy) = (null_mut(), null_mut());
    let mut resource_info = resource.info();
    let mut buffer_info = buffer.info();
    unsafe {
        // Creating.
        null_told(forebay_device_resource_create(DEVICE, null(), null_mut()), "out");
        null_told(forebay_pinned_resource_create(null(), null_mut()), "out");
        null_told(forebay_managed_resource_create(null(), null_mut()), "out");
        null_told(forebay_virtual_resource_create(DEVICE, null(), null_mut()), "out");
        null_told(forebay_host_resource_create(null(), null_mut()), "out");
        null_told(forebay_pool_resource_create(null_mut(), DEVICE, &raw mut object), "pool");
        null_told(forebay_pool_resource_create(shared().0, DEVICE, null_mut()), "out");
        null_told(forebay_device_resource_options_init(null_mut()), "options");
        null_told(forebay_pinned_resource_options_init(null_mut()), "options");
        null_told(forebay_managed_resource_options_init(null_mut()), "options");
        null_told(forebay_virtual_resource_options_init(null_mut()), "options");
        null_told(forebay_host_resource_options_init(null_mut()), "options");
        // Resources.
        forebay_resource_destroy(null_mut());
        null_told(forebay_resource_close(null_mut()), "resource");
        null_told(forebay_resource_allocate(null_mut(), 1, NOWHERE, &raw mut made), "resource");
        null_told(forebay_resource_allocate(r, 1, NOWHERE, null_mut()), "out");
        null_told(forebay_resource_allocate_pointer(null_mut(), 1, NOWHERE, &raw mut pointer), "resource");
        null_told(forebay_resource_allocate_pointer(r, 1, NOWHERE, null_mut()), "out");
        null_told(forebay_resource_deallocate(null_mut(), NOWHERE, 1, NOWHERE), "resource");
        null_told(forebay_resource_deallocate_pointer(null_mut(), NOWHERE), "resource");
        null_told(forebay_resource_get_info(null(), &raw mut resource_info), "resource");
        null_told(forebay_resource_get_info(r, null_mut()), "out");
        null_told(forebay_resource_get_attribute(null(), 4, &raw mut number), "resource");
        null_told(forebay_resource_get_attribute(r, 4, null_mut()), "out");
        null_told(forebay_resource_set_attribute(null_mut(), 4, 0), "resource");
        null_told(forebay_resource_get_peer_access(null(), 0, &raw mut access), "resource");
        null_told(forebay_resource_get_peer_access(r, 0, null_mut()), "access");
        null_told(forebay_resource_set_peer_access(null_mut(), 0, 1), "resource");
        null_told(forebay_resource_trim(null_mut(), 0), "resource");
        null_told(forebay_resource_modify_allocation(null_mut(), b, 1, null(), NOWHERE), "resource");
        null_told(forebay_resource_modify_allocation(r, null_mut(), 1, null(), NOWHERE), "buffer");
        // Pools between processes.
        null_told(forebay_resource_get_allocation_handle(null_mut(), &raw mut fd, uuid.as_mut_ptr()), "resource");
        null_told(forebay_resource_get_allocation_handle(r, null_mut(), uuid.as_mut_ptr()), "fd");
        null_told(forebay_resource_get_allocation_handle(r, &raw mut fd, null_mut()), "uuid");
        null_told(forebay_resource_from_allocation_handle(0, DEVICE, 0, null(), null_mut()), "out");
        null_told(forebay_resource_register(null_mut(), uuid.as_ptr(), &raw mut object), "resource");
        null_told(forebay_resource_register(r, null(), &raw mut object), "uuid");
        null_told(forebay_resource_register(r, uuid.as_ptr(), null_mut()), "out");
        null_told(forebay_resource_from_registry(null(), &raw mut object), "uuid");
        null_told(forebay_resource_from_registry(uuid.as_ptr(), null_mut()), "out");
        // Buffers.
        null_told(forebay_buffer_from_handle(NOWHERE, 0, r, None, NOWHERE, NOWHERE, null_mut()), "out");
        forebay_buffer_destroy(null_mut());
        null_told(forebay_buffer_close(null_mut()), "buffer");
        null_told(forebay_buffer_close_on(null_mut(), NOWHERE), "buffer");
        null_told(forebay_buffer_get_info(null(), &raw mut buffer_info), "buffer");
        null_told(forebay_buffer_get_info(b, null_mut()), "out");
        null_told(forebay_buffer_get_resource(null(), &raw mut object), "buffer");
        null_told(forebay_buffer_get_resource(b, null_mut()), "out");
        null_told(forebay_buffer_copy(null_mut(), b, NOWHERE), "buffer");
        null_told(forebay_buffer_copy(b, null(), NOWHERE), "buffer");
        null_told(forebay_buffer_clone(null(), NOWHERE, &raw mut made), "buffer");
        null_told(forebay_buffer_clone(b, NOWHERE, null_mut()), "out");
        null_told(forebay_buffer_fill(null_mut(), 0, 1, NOWHERE), "buffer");
        // DLPack.
        null_told(forebay_buffer_to_dlpack(null_mut(), &raw mut versioned), "buffer");
        null_told(forebay_buffer_to_dlpack(b, null_mut()), "out");
        null_told(forebay_buffer_to_dlpack_legacy(null_mut(), &raw mut legacy), "buffer");
        null_told(forebay_buffer_to_dlpack_legacy(b, null_mut()), "out");
        null_told(forebay_buffer_from_dlpack(null_mut(), NOWHERE, &raw mut made), "tensor");
        null_told(forebay_buffer_from_dlpack(null_mut(), NOWHERE, null_mut()), "out");
        null_told(forebay_buffer_from_dlpack_legacy(null_mut(), NOWHERE, &raw mut made), "tensor");
        null_told(forebay_buffer_from_dlpack_legacy(null_mut(), NOWHERE, null_mut()), "out");
        // Sharing.
        null_told(forebay_buffer_get_ipc_descriptor(null_mut(), &raw mut descriptor), "buffer");
        null_told(forebay_buffer_get_ipc_descriptor(b, null_mut()), "out");
        let to = &raw mut made;
        null_told(forebay_buffer_from_ipc_descriptor(null_mut(), null(), 256, NOWHERE, to), "descriptor");
        null_told(
            forebay_buffer_from_ipc_descriptor(null_mut(), &raw const descriptor, 256, NOWHERE, null_mut()),
            "out",
        );
        let size = &raw mut number;
        null_told(forebay_ipc_descriptor_size(null(), 256, size), "descriptor");
        null_told(forebay_ipc_descriptor_size(&raw const descriptor, 256, null_mut()), "size");
        null_told(forebay_ipc_export(null_mut(), NOWHERE, &raw mut descriptor), "pool");
        null_told(forebay_ipc_export(shared().0, NOWHERE, null_mut()), "out");
        null_told(forebay_ipc_export_foreign(NOWHERE, 1, null_mut()), "out");
        null_told(forebay_pool_malloc_ready(null_mut(), 1, DEVICE, NOWHERE, &raw mut pointer), "pool");
        null_told(forebay_pool_malloc_ready(shared().0, 1, DEVICE, NOWHERE, null_mut()), "out");
    }
    assert!(object.is_null() && made.is_null() && pointer.is_null(), "nothing was written");
    assert!(versioned.is_null() && legacy.is_null() && number == 0 && access == 0 && fd == 0);
    buffer.write_pattern(1);
    resource.modify(&buffer, 2 * buffer.bytes(), None).unwrap();
}

/// Every struct of options: another size, another version, reserved words that are used.
#[test]
fn structs_of_another_layout_are_refused_by_name() {
    macro_rules! check {
        ($make:expr, $init:path, $name:literal, [$($reserved:ident $(as $index:tt)?),*]) => {
            for (what, change) in [
                ("size", Box::new(|o: &mut _| size_of_first($init, o, 1)) as Box<dyn Fn(&mut _)>),
                ("size", Box::new(|o: &mut _| size_of_first($init, o, u32::MAX))),
                ("version", Box::new(|o: &mut _| version_of($init, o, 0))),
                ("version", Box::new(|o: &mut _| version_of($init, o, 2))),
            ] {
                refused($make(change), Status::InvalidArgument, &[$name, what, concat!($name, "_init")]);
            }
            refused($make(Box::new(|o| o.reserved[0] = 1)), Status::InvalidArgument, &[$name, "reserved"]);
            refused($make(Box::new(|o| o.reserved[3] = u64::MAX)), Status::InvalidArgument, &[$name, "reserved"]);
            $(refused($make(Box::new(|o| o.$reserved = 1)), Status::InvalidArgument, &[$name, "reserved"]);)*
        };
    }
    fn words<T>(_: unsafe extern "C" fn(*mut T) -> Status, options: &mut T) -> *mut u32 {
        std::ptr::from_mut(options).cast()
    }
    fn size_of_first<T>(init: unsafe extern "C" fn(*mut T) -> Status, options: &mut T, size: u32) {
        unsafe { words(init, options).write(size) };
    }
    fn version_of<T>(init: unsafe extern "C" fn(*mut T) -> Status, options: &mut T, version: u32) {
        unsafe { words(init, options).add(1).write(version) };
    }
    type Change<T> = Box<dyn Fn(&mut T)>;
    check!(
        |c: Change<ForebayDeviceResourceOptions>| Resource::device(c),
        forebay_device_resource_options_init,
        "forebay_device_resource_options",
        []
    );
    check!(
        |c: Change<ForebayPinnedResourceOptions>| Resource::pinned(c),
        forebay_pinned_resource_options_init,
        "forebay_pinned_resource_options",
        [reserved0]
    );
    check!(
        |c: Change<ForebayManagedResourceOptions>| Resource::managed(c),
        forebay_managed_resource_options_init,
        "forebay_managed_resource_options",
        []
    );
    check!(
        |c: Change<VirtualOptions>| Resource::virtual_memory(c),
        forebay_virtual_resource_options_init,
        "forebay_virtual_resource_options",
        []
    );
    check!(
        |c: Change<ForebayHostResourceOptions>| Resource::host(c),
        forebay_host_resource_options_init,
        "forebay_host_resource_options",
        [reserved0, reserved1]
    );
}

#[test]
fn structs_that_answer_must_say_what_they_are() {
    let resource = Resource::of_pool(shared()).unwrap();
    let buffer = resource.allocate(64, LEGACY).unwrap();
    for (size, version) in [(0, 1), (1, 1), (u32::MAX, 1), (u32::MAX, 0)] {
        let mut info = resource.info();
        (info.size, info.version, info.kind) = (size, version, 77);
        let asked = unsafe { forebay_resource_get_info(resource.0, &raw mut info) };
        refused(outcome(asked), Status::InvalidArgument, &["forebay_resource_info"]);
        assert_eq!(info.kind, 77, "nothing was written");
        let mut info = buffer.info();
        (info.size, info.version, info.bytes) = (size, version, 77);
        let asked = unsafe { forebay_buffer_get_info(buffer.0, &raw mut info) };
        refused(outcome(asked), Status::InvalidArgument, &["forebay_buffer_info"]);
        assert_eq!(info.bytes, 77, "nothing was written");
    }
}

#[test]
fn choices_out_of_range_are_refused_by_name() {
    for number in [4, 5, u32::MAX] {
        let text = number.to_string();
        refused(Resource::device(|o| o.source = number), Status::InvalidArgument, &["source", &text]);
        refused(Resource::pinned(|o| o.source = number), Status::InvalidArgument, &["source", &text]);
        refused(Resource::managed(|o| o.source = number), Status::InvalidArgument, &["source", &text]);
    }
    refused(Resource::device(|o| o.ipc_enabled = 2), Status::InvalidArgument, &["ipc_enabled", "2"]);
    refused(Resource::pinned(|o| o.ipc_enabled = 2), Status::InvalidArgument, &["ipc_enabled", "2"]);
    refused(Resource::pinned(|o| o.own_pool = 9), Status::InvalidArgument, &["own_pool", "9"]);
    refused(Resource::managed(|o| o.preferred_location_type = 5), Status::InvalidArgument, &["location", "5"]);
    for device in [-1, 64, i32::MAX, i32::MIN] {
        let text = device.to_string();
        let made = Resource::made(|out| unsafe { forebay_device_resource_create(device, null(), out) });
        refused(made, Status::BadDevice, &[&text]);
        let made = Resource::made(|out| unsafe { forebay_virtual_resource_create(device, null(), out) });
        refused(made, Status::BadDevice, &[&text]);
        let made = Resource::made(|out| unsafe { forebay_pool_resource_create(shared().0, device, out) });
        refused(made, Status::BadDevice, &[&text]);
        if device == -1 {
            continue; // the current device
        }
        refused(Resource::pinned(|o| o.device = device), Status::BadDevice, &[&text]);
        refused(Resource::managed(|o| o.device = device), Status::BadDevice, &[&text]);
        refused(Resource::host(|o| o.device = device), Status::BadDevice, &[&text]);
    }
    let resource = Resource::of_pool(shared()).unwrap();
    let set = unsafe { forebay_resource_set_peer_access(resource.0, DEVICE, 3) };
    refused(outcome(set), Status::InvalidArgument, &["access", "3"]);
    for kind in [2, 3, 4, 5, 6, u32::MAX] {
        refused(Resource::from_fd(kind, 0, None), Status::InvalidArgument, &["kind", &kind.to_string()]);
    }
}

#[test]
fn descriptors_of_something_else_are_no_pools() {
    for fd in [-1, i32::MIN] {
        refused(Resource::from_fd(Kind::Device as u32, fd, None), Status::InvalidArgument, &["fd", &fd.to_string()]);
    }
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    use std::os::fd::AsRawFd;
    for fd in [reader.as_raw_fd(), writer.as_raw_fd(), file.as_raw_fd(), 1 << 29] {
        Resource::from_fd(Kind::Device as u32, fd, None).expect_err("no pool is behind it");
        Resource::from_fd(Kind::Pinned as u32, fd, Some(&[7; 16])).expect_err("no pool is behind it");
    }
    refused(Resource::from_registry(&[7; 16]), Status::NotFound, &["07070707"]);
    drop(reader);
}

#[test]
fn sharing_is_refused_where_it_was_not_asked_for() {
    let Some(device) = had("a pool of the device", Resource::device(|_| ())) else { return };
    refused(device.allocation_handle(), Status::NotPermitted, &["ipc_enabled"]);
    let buffer = device.allocate(MIB, LEGACY).unwrap();
    refused(buffer.descriptor(), Status::NotPermitted, &["ipc_enabled"]);
    refused(device.register(&[1; 16]), Status::NotPermitted, &["mapped"]);
    let unshared = Resource::virtual_memory(|options| options.handle_type = 0).unwrap();
    assert_eq!(unshared.info().is_ipc_enabled, 0);
    refused(unshared.allocate(1, LEGACY).unwrap().descriptor(), Status::NotPermitted, &[]);
    let pool = Resource::of_pool(shared()).unwrap();
    refused(pool.allocation_handle(), Status::Unsupported, &["one by one"]);
    refused(pool.register(&[1; 16]), Status::Unsupported, &[]);
    refused(pool.allocate(0, LEGACY).unwrap().descriptor(), Status::InvalidArgument, &["0 bytes"]);
    let mut descriptor = ForebayIpcDescriptor { bytes: [0; 256] };
    refused(exported(shared(), 0), Status::BadFree, &[]);
    refused(exported(shared(), 0x1000), Status::BadFree, &[]);
    let block = shared().malloc(512, LEGACY).unwrap();
    shared().free(block, LEGACY).unwrap();
    refused(exported(shared(), block), Status::BadFree, &[]);
    let here = [0u8; 16];
    let foreign = unsafe { forebay_ipc_export_foreign(here.as_ptr().cast(), 16, &raw mut descriptor) };
    refused(outcome(foreign), Status::Unsupported, &["legacy"]);
}
