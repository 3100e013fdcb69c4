//! Pinned memory and the current device, through the C ABI: what a machine with one GPU cannot show.

#![expect(clippy::undocumented_unsafe_blocks, reason = "one reason for all: the objects are the test's own")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};

use forebay::abi::core::enums::ForebayResourceKind;
use forebay::abi::core::handle::ForebayResource;
use forebay::abi::core::status::ForebayStatus;
use forebay::abi::resource::create::forebay_pinned_resource_create;
use forebay::abi::resource::ipc::{forebay_resource_from_allocation_handle, forebay_resource_get_allocation_handle};
use forebay::abi::resource::object::{
    FOREBAY_INFO_VERSION, ForebayResourceInfo, forebay_resource_allocate_pointer, forebay_resource_deallocate_pointer,
    forebay_resource_destroy, forebay_resource_get_info,
};
use forebay::abi::resource::options::{ForebayPinnedResourceOptions, forebay_pinned_resource_options_init};

use crate::fake::Fake;

const NOBODYS: usize = 0;
const FIRST: usize = 0xc046;
const SECOND: usize = 0xc047;

fn made(call: impl FnOnce(*mut *mut ForebayResource) -> ForebayStatus) -> *mut ForebayResource {
    let mut out = null_mut();
    assert_eq!(call(&raw mut out), ForebayStatus::Ok);
    out
}

fn shared_pool(change: impl FnOnce(&mut ForebayPinnedResourceOptions)) -> *mut ForebayResource {
    let mut options = MaybeUninit::uninit();
    assert_eq!(unsafe { forebay_pinned_resource_options_init(options.as_mut_ptr()) }, ForebayStatus::Ok);
    let mut options = unsafe { options.assume_init() };
    options.ipc_enabled = 1;
    change(&mut options);
    made(|out| unsafe { forebay_pinned_resource_create(&raw const options, out) })
}

fn numa_id(resource: *mut ForebayResource) -> i32 {
    let mut info: ForebayResourceInfo = unsafe { std::mem::zeroed() };
    (info.size, info.version) = (size_of::<ForebayResourceInfo>() as u32, FOREBAY_INFO_VERSION);
    assert_eq!(unsafe { forebay_resource_get_info(resource, &raw mut info) }, ForebayStatus::Ok);
    info.numa_id
}

fn mapped(uuid: Option<&[u8; 16]>) -> i32 {
    let (kind, fd) = (ForebayResourceKind::Pinned as u32, std::io::stdin().as_raw_fd());
    let uuid = uuid.map_or(null(), |uuid| uuid.as_ptr());
    let pool = made(|out| unsafe { forebay_resource_from_allocation_handle(kind, -1, fd, uuid, out) });
    let node = numa_id(pool);
    unsafe { forebay_resource_destroy(pool) };
    node
}

#[test]
#[ignore = "pinned_memory_of_the_current_device runs it in a process of its own"]
fn child_current() {
    let fake = Fake::load();
    // The node nearest to the current device, or to the one that is named.
    for (context, device, node) in [(SECOND, -1, 5), (FIRST, -1, 3), (NOBODYS, -1, 3), (FIRST, 1, 5), (SECOND, 0, 3)] {
        fake.set(b"fake_current", context);
        let pool = shared_pool(|options| options.device = device);
        assert_eq!(numa_id(pool), node, "context {context:#x}, device {device}");
        assert_eq!(fake.get(b"fake_get_current"), context);
        unsafe { forebay_resource_destroy(pool) };
    }

    // Every device is let in, and calls are made on the stream's.
    fake.set(b"fake_current", SECOND);
    fake.set(b"fake_access", 0);
    fake.calls();
    let current = made(|out| unsafe { forebay_pinned_resource_create(null(), out) });
    let calls = fake.calls();
    assert_eq!(calls.iter().filter(|call| *call == "cuMemPoolSetAccess:2:0").count(), 2, "{calls:?}");
    fake.set(b"fake_access", 3);
    for (stream, depth) in [(0x6000, 0), (0x5000, 1), (0, 0)] {
        let mut at = null_mut();
        let stream = stream as *mut c_void;
        let status = unsafe { forebay_resource_allocate_pointer(current, 64, stream, &raw mut at) };
        assert_eq!(status, ForebayStatus::Ok);
        assert_eq!(unsafe { forebay_resource_deallocate_pointer(current, at) }, ForebayStatus::Ok);
        let calls = fake.calls();
        for name in ["cuMemAllocFromPoolAsync", "cuMemFreeAsync"] {
            assert!(calls.contains(&format!("{name}:2:{depth}")), "stream {stream:?}: {calls:?}");
        }
        assert!(fake.said().ends_with(&format!("stream={stream:?}").replace("0x0", "(nil)")), "{}", fake.said());
    }
    unsafe { forebay_resource_destroy(current) };

    // A mapped pool is where the libcuda says, and where that says nothing, where its name says.
    let pool = shared_pool(|_| ());
    let (mut fd, mut uuid) = (-1, [0; 16]);
    let exported = unsafe { forebay_resource_get_allocation_handle(pool, &raw mut fd, uuid.as_mut_ptr()) };
    assert_eq!(exported, ForebayStatus::Ok);
    assert_eq!((mapped(Some(&uuid)), mapped(None), mapped(Some(&[0x4b; 16]))), (5, -1, -1));
    fake.set(b"fake_pool_location", 3 << 8 | 7);
    assert_eq!((mapped(Some(&[0x4b; 16])), mapped(None)), (7, 7));
    fake.set(b"fake_pool_location", 2 << 8);
    assert_eq!(mapped(None), -1);
    unsafe { forebay_resource_destroy(pool) };
}
