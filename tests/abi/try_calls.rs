//! Calls that never wait: done at once, or not at all.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use forebay::abi::resource::buffer::forebay_buffer_try_close;
use forebay::abi::resource::dlpack::*;
use forebay::abi::resource::object::forebay_resource_try_allocate;

use crate::kit::resources::*;

fn try_allocate(resource: &Resource, bytes: u64, stream: Stream) -> Option<Buffer> {
    let untouched = std::ptr::without_provenance_mut(0xdead);
    let mut out = untouched;
    let done = unsafe { forebay_resource_try_allocate(resource.0, bytes, stream as *mut c_void, &raw mut out) };
    assert_eq!(done == 0, out == untouched, "an output is written on success, and only then");
    (done == 1).then(|| Buffer(out))
}

fn try_close(buffer: &Buffer) -> bool {
    unsafe { forebay_buffer_try_close(buffer.0) == 1 }
}

fn pool_and_resource() -> (Pool, Resource) {
    let pool = Pool::new();
    let resource = Resource::of_pool(&pool).unwrap();
    (pool, resource)
}

#[test]
fn what_was_just_freed_comes_back_at_once() {
    let (pool, resource) = pool_and_resource();
    assert!(try_allocate(&resource, MIB, LEGACY).is_none(), "there is nothing yet");
    let first = resource.allocate(MIB, LEGACY).unwrap();
    assert!(try_close(&first), "a hit");
    assert!(try_close(&first), "twice is harmless");
    assert_eq!(pool.stats().live, 0);
    let second = try_allocate(&resource, MIB, LEGACY).expect("a hit");
    assert_eq!(pool.stats().live, MIB);
    assert!(try_allocate(&resource, 1 << 30, LEGACY).is_none(), "so much is not mapped");
    assert!(try_allocate(&resource, 0, LEGACY).is_none());
    drop((first, second));
    assert_eq!((pool.stats().live, pool.stats().allocations, pool.stats().frees), (0, 2, 2));
    pool.check();
}

#[test]
fn a_free_that_records_an_event_is_left_to_the_other_call() {
    let (pool, resource) = pool_and_resource();
    let stream = pool.stream();
    pool.unregister(stream).unwrap();
    let [first, second] = [(); 2].map(|()| resource.allocate(MIB, stream).unwrap());
    assert!(try_close(&first), "one block may lie there without an event");
    assert!(!try_close(&second), "this free records an event");
    assert_eq!(pool.stats().live, MIB, "nothing happened");
    second.close().unwrap();
    let again = try_allocate(&resource, MIB, stream).expect("a hit");
    drop((again, first, second));
    pool.check();
}

#[test]
fn a_buffer_with_tensors_is_not_closed_at_once() {
    let (pool, resource) = pool_and_resource();
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    let mut tensor = null_mut();
    outcome(unsafe { forebay_buffer_to_dlpack_legacy(buffer.0, &raw mut tensor) }).unwrap();
    assert!(!try_close(&buffer));
    unsafe { (*tensor).deleter.unwrap()(tensor) };
    // Nobody says which streams used the tensor.
    assert!(!try_close(&buffer));
    assert_eq!(pool.stats().live, MIB);
    drop(buffer);
    assert_eq!(pool.stats().live, 0);
}

#[test]
fn memory_for_the_host_is_given_once_it_is_proven_unused() {
    let pool = Pool::with(|options| options.location = ForebayLocation::HostNuma as u32).unwrap();
    let resource = Resource::of_pool(&pool).unwrap();
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    assert!(try_close(&buffer), "taking it back needs no proof");
    assert!(try_allocate(&resource, MIB, LEGACY).is_none());
    drop(buffer);
    pool.check();
}

#[test]
fn null_is_nothing_done() {
    assert!(!try_close(&ManuallyDrop::new(Buffer(null_mut()))));
    assert!(try_allocate(&ManuallyDrop::new(Resource(null_mut())), MIB, LEGACY).is_none());
    let (pool, resource) = pool_and_resource();
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    assert!(try_close(&buffer));
    assert_eq!(unsafe { forebay_resource_try_allocate(resource.0, MIB, null_mut(), null_mut()) }, 0);
    assert_eq!(pool.stats().live, 0, "nothing was allocated for a NULL output");
}
