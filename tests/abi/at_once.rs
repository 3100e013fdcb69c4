//! Calls that never wait: done at once, or not at all.

use std::ffi::c_void;
use std::ptr::null_mut;

use forebay::abi::core::enums::ForebayLocation;
use forebay::abi::core::handle::{ForebayBuffer, ForebayResource};
use forebay::abi::resource::buffer::*;
use forebay::abi::resource::create::forebay_pool_resource;
use forebay::abi::resource::dlpack::*;
use forebay::abi::resource::object::*;

use crate::common::*;

struct Resource(*mut ForebayResource);

impl Resource {
    fn of(pool: &Pool) -> Self {
        let mut out = null_mut();
        outcome(unsafe { forebay_pool_resource(pool.0, DEVICE, &raw mut out) }).unwrap();
        Self(out)
    }

    fn allocate(&self, bytes: u64, stream: Stream) -> *mut ForebayBuffer {
        let mut out = null_mut();
        outcome(unsafe { forebay_resource_allocate(self.0, bytes, stream as *mut c_void, &raw mut out) }).unwrap();
        out
    }

    fn at_once(&self, bytes: u64, stream: Stream) -> Option<*mut ForebayBuffer> {
        let untouched: *mut ForebayBuffer = std::ptr::without_provenance_mut(0xdead);
        let mut out = untouched;
        let done = unsafe { forebay_resource_allocate_at_once(self.0, bytes, stream as *mut c_void, &raw mut out) };
        assert_eq!(done == 0, out == untouched, "an output is written on success, and only then");
        (done == 1).then_some(out)
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        unsafe { forebay_resource_destroy(self.0) };
    }
}

fn close_at_once(buffer: *mut ForebayBuffer) -> bool {
    unsafe { forebay_buffer_close_at_once(buffer) == 1 }
}

#[test]
fn what_was_just_freed_comes_back_at_once() {
    let pool = Pool::new();
    let resource = Resource::of(&pool);
    assert_eq!(resource.at_once(MIB, LEGACY), None, "there is nothing yet");
    let first = resource.allocate(MIB, LEGACY);
    assert!(close_at_once(first), "a hit");
    assert!(close_at_once(first), "twice is harmless");
    assert_eq!(pool.stats().live, 0);
    let second = resource.at_once(MIB, LEGACY).expect("a hit");
    assert_eq!(pool.stats().live, MIB);
    assert_eq!(resource.at_once(1 << 30, LEGACY), None, "so much is not mapped");
    assert_eq!(resource.at_once(0, LEGACY), None);
    for buffer in [first, second] {
        unsafe { forebay_buffer_destroy(buffer) };
    }
    assert_eq!((pool.stats().live, pool.stats().allocations, pool.stats().frees), (0, 2, 2));
    pool.check();
}

#[test]
fn a_free_that_records_an_event_is_left_to_the_other_call() {
    let pool = Pool::new();
    let resource = Resource::of(&pool);
    let stream = pool.stream();
    outcome(unsafe { forebay::abi::pool::streams::forebay_stream_unregister(pool.0, DEVICE, stream as *mut c_void) })
        .unwrap();
    let buffers = [resource.allocate(MIB, stream), resource.allocate(MIB, stream)];
    assert!(close_at_once(buffers[0]), "one block may lie there without an event");
    assert!(!close_at_once(buffers[1]), "this free records an event");
    assert_eq!(pool.stats().live, MIB, "nothing happened");
    outcome(unsafe { forebay_buffer_close(buffers[1]) }).unwrap();
    let again = resource.at_once(MIB, stream).expect("a hit");
    for buffer in [again, buffers[0], buffers[1]] {
        unsafe { forebay_buffer_destroy(buffer) };
    }
    pool.check();
}

#[test]
fn a_buffer_with_tensors_is_not_closed_at_once() {
    let pool = Pool::new();
    let resource = Resource::of(&pool);
    let buffer = resource.allocate(MIB, LEGACY);
    let mut tensor = null_mut();
    outcome(unsafe { forebay_buffer_to_dlpack_legacy(buffer, &raw mut tensor) }).unwrap();
    assert!(!close_at_once(buffer));
    unsafe { (*tensor).deleter.unwrap()(tensor) };
    // Nobody says which streams used the tensor.
    assert!(!close_at_once(buffer));
    assert_eq!(pool.stats().live, MIB);
    unsafe { forebay_buffer_destroy(buffer) };
    assert_eq!(pool.stats().live, 0);
}

#[test]
fn memory_for_the_host_is_given_once_it_is_proven_unused() {
    let pool = Pool::with(|options| options.location = ForebayLocation::HostNuma as u32).unwrap();
    let resource = Resource::of(&pool);
    let buffer = resource.allocate(MIB, LEGACY);
    assert!(close_at_once(buffer), "taking it back needs no proof");
    assert_eq!(resource.at_once(MIB, LEGACY), None);
    unsafe { forebay_buffer_destroy(buffer) };
    pool.check();
}

#[test]
fn null_is_nothing_done() {
    assert!(!close_at_once(null_mut()));
    let null = std::mem::ManuallyDrop::new(Resource(null_mut()));
    assert_eq!(null.at_once(MIB, LEGACY), None);
    let pool = Pool::new();
    let resource = Resource::of(&pool);
    let buffer = resource.allocate(MIB, LEGACY);
    assert!(close_at_once(buffer));
    assert_eq!(unsafe { forebay_resource_allocate_at_once(resource.0, MIB, null_mut(), null_mut()) }, 0);
    assert_eq!(pool.stats().live, 0, "nothing was allocated for a NULL output");
    unsafe { forebay_buffer_destroy(buffer) };
}
