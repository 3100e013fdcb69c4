//! Buffers: where they come from, what they do, who gets the memory back.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay::abi::resource::buffer::{ForebayReleaseFn, forebay_buffer_from_handle};

use crate::kit::process::in_child;
use crate::kit::resources::*;

/// One of each kind of resource that this machine has, and the kind's name.
pub fn every_kind() -> Vec<(&'static str, Resource)> {
    let made = [
        ("device", Resource::device(|_| ())),
        ("pinned", Resource::pinned(|_| ())),
        ("own pinned", Resource::pinned(|options| options.own_pool = 1)),
        ("managed", Resource::managed(|_| ())),
        ("virtual", Resource::virtual_memory(|_| ())),
        ("host", Resource::host(|_| ())),
        ("pool", Resource::of_pool(shared())),
    ];
    made.into_iter().filter_map(|(name, made)| Some((name, had(name, made)?))).collect()
}

fn from_handle(at: Block, bytes: u64, resource: Option<&Resource>, owner: Option<&AtomicU32>) -> Outcome<Buffer> {
    unsafe extern "C" fn released(context: *mut c_void) {
        unsafe { &*context.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let resource = resource.map_or(std::ptr::null_mut(), |resource| resource.0);
    let release: ForebayReleaseFn = owner.map(|_| released as _);
    let context = owner.map_or(std::ptr::null_mut(), |owner| std::ptr::from_ref(owner).cast_mut().cast());
    Buffer::made(|out| unsafe {
        forebay_buffer_from_handle(at as *mut c_void, bytes, resource, release, context, std::ptr::null_mut(), out)
    })
}

#[test]
fn data_goes_between_all_kinds() {
    let (kinds, bytes) = (every_kind(), 2 * MIB);
    let buffers: Vec<Buffer> = kinds.iter().map(|(_, resource)| resource.allocate(bytes, LEGACY).unwrap()).collect();
    for (index, source) in buffers.iter().enumerate() {
        for (other, target) in buffers.iter().enumerate().filter(|&(other, _)| other != index) {
            source.write_pattern((index * 10 + other) as u64);
            target.fill(0, 1).unwrap();
            target.copy_from(source).unwrap_or_else(|f| panic!("{} to {}: {f:?}", kinds[index].0, kinds[other].0));
            target.holds_pattern((index * 10 + other) as u64, bytes);
        }
    }
}

#[test]
fn a_pattern_is_repeated_over_the_buffer() {
    for (name, resource) in every_kind() {
        let buffer = resource.allocate(2 * MIB, LEGACY).unwrap();
        for (value, width) in [(0xab, 1), (0xbeef, 2), (0x00ff, 2), (0xdead_beef, 4), (0, 4), (7, 4)] {
            buffer.fill(value, width).unwrap();
            let (found, right) = (buffer.read(0, buffer.bytes()), &value.to_le_bytes()[..width as usize]);
            assert!(found.chunks(width as usize).all(|chunk| chunk == right), "{value:#x} by {width}, {name}");
        }
        for (value, width) in [(0x100, 1), (0x1_0000, 2), (u32::MAX, 1)] {
            refused(buffer.fill(value, width), Status::InvalidArgument, &["more than"]);
        }
        for width in [0, 3, 5, 8, u32::MAX] {
            refused(buffer.fill(0, width), Status::InvalidArgument, &["1, 2 and 4"]);
        }
        assert!(buffer.read(0, 4) == [7, 0, 0, 0], "a refusal writes nothing");
    }
    let odd = Resource::of_pool(shared()).unwrap().allocate(1001, LEGACY).unwrap();
    refused(odd.fill(1, 2), Status::InvalidArgument, &["1001", "2"]);
    odd.fill(1, 1).unwrap();
    odd.holds(1);
    let even = Resource::of_pool(shared()).unwrap().allocate(1002, LEGACY).unwrap();
    refused(even.fill(1, 4), Status::InvalidArgument, &["1002", "4"]);
    even.fill(0x0101, 2).unwrap();
    even.holds(1);
}

#[test]
fn copies_need_equal_sizes_and_a_resource() {
    let resource = Resource::of_pool(shared()).unwrap();
    let (small, large) = (resource.allocate(1000, LEGACY).unwrap(), resource.allocate(1001, LEGACY).unwrap());
    refused(large.copy_from(&small), Status::InvalidArgument, &["1000", "1001"]);
    refused(small.copy_from(&large), Status::InvalidArgument, &["1000", "1001"]);
    let borrowed = from_handle(small.at(), 1000, None, None).unwrap();
    refused(borrowed.copy(), Status::InvalidArgument, &["resource"]);
    refused(borrowed.resource(), Status::NotFound, &[]);
    small.write_pattern(1);
    let copy = small.copy().unwrap();
    assert_eq!(copy.resource().unwrap().info().kind, Kind::Pool as u32);
    copy.copy_from(&copy).unwrap();
    copy.holds_pattern(1, 1000);
}

#[test]
fn an_owner_is_told_once_and_by_the_last_that_uses_the_memory() {
    let memory = Resource::of_pool(shared()).unwrap().allocate(MIB, LEGACY).unwrap();
    let told = AtomicU32::new(0);
    let count = || told.load(Ordering::Relaxed);
    let buffer = from_handle(memory.at(), MIB, None, Some(&told)).unwrap();
    let info = buffer.info();
    assert_eq!((info.handle, info.bytes, info.has_resource), (memory.info().handle, MIB, 0));
    assert_eq!((info.is_device_accessible, info.is_mapped, info.ipc_path), (1, 0, Path::None as u32));
    buffer.write_pattern(1);
    memory.holds_pattern(1, MIB);
    assert_eq!(count(), 0);
    buffer.close().unwrap();
    assert_eq!(count(), 1);
    buffer.close().unwrap();
    drop(buffer);
    assert_eq!(count(), 1, "once");
    drop(from_handle(memory.at(), MIB, None, Some(&told)).unwrap());
    assert_eq!(count(), 2, "destroying closes");
    drop(from_handle(0, 0, None, Some(&told)).unwrap());
    assert_eq!(count(), 3, "also where there is no memory");
    memory.holds_pattern(1, MIB);
}

#[test]
fn an_owner_is_told_nothing_where_nothing_was_taken_over() {
    let told = AtomicU32::new(0);
    let resource = Resource::of_pool(shared()).unwrap();
    let memory = resource.allocate(MIB, LEGACY).unwrap();
    refused(from_handle(memory.at(), MIB, Some(&resource), Some(&told)), Status::InvalidArgument, &["both"]);
    refused(from_handle(0, 1, None, Some(&told)), Status::InvalidArgument, &["NULL"]);
    refused(from_handle(memory.at(), u64::MAX, None, Some(&told)), Status::InvalidArgument, &[]);
    let context = std::ptr::from_ref(&told).cast_mut().cast();
    unsafe extern "C" fn never(_: *mut c_void) {
        panic!("told although nothing was taken over");
    }
    let (at, stream) = (memory.at() as *mut c_void, std::ptr::null_mut());
    let (resource, out) = (std::ptr::null_mut(), std::ptr::null_mut());
    let status = unsafe { forebay_buffer_from_handle(at, 1, resource, Some(never), context, stream, out) };
    assert_eq!(status, Status::NullPointer);
    assert_eq!(told.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_goes_back_through_the_resource_that_is_named() {
    for (_, resource) in every_kind() {
        let pointer = resource.pointer(2 * MIB, LEGACY).unwrap();
        let buffer = from_handle(pointer, 2 * MIB, Some(&resource), None).unwrap();
        assert_eq!(buffer.info().has_resource, 1);
        buffer.write_pattern(3);
        buffer.copy().unwrap().holds_pattern(3, 2 * MIB);
        buffer.close().unwrap();
        synchronize();
        refused(resource.deallocate(pointer, 2 * MIB, LEGACY), Status::BadFree, &["buffer is closed"]);
    }
}

#[test]
fn memory_of_an_open_buffer_is_not_taken_back_behind_it() {
    for (name, resource) in every_kind() {
        let buffer = resource.allocate(2 * MIB, LEGACY).unwrap();
        buffer.write_pattern(9);
        let words = ["buffer is closed", &format!("{:#x}", buffer.at())];
        refused(resource.deallocate(buffer.at(), 2 * MIB, LEGACY), Status::BadFree, &words);
        refused(resource.deallocate_pointer(buffer.at()), Status::BadFree, &words);
        // Nor that of a pointer which a buffer was made of.
        let pointer = resource.pointer(2 * MIB, LEGACY).unwrap();
        let made = from_handle(pointer, 2 * MIB, Some(&resource), None).unwrap();
        refused(resource.deallocate_pointer(pointer), Status::BadFree, &["buffer is closed"]);
        let other = resource.allocate(2 * MIB, LEGACY).unwrap();
        assert!(other.at() != buffer.at() && other.at() != pointer, "{name}: two open buffers lie on one block");
        other.write_pattern(1);
        buffer.holds_pattern(9, 2 * MIB);
        for open in [buffer, made, other] {
            open.close().unwrap();
        }
    }
}

#[test]
fn a_pointer_goes_back_on_the_stream_of_its_allocation() {
    let pool = Pool::new();
    let resource = Resource::of_pool(&pool).unwrap();
    let stream = pool.stream();
    let pointer = resource.pointer(4096, stream).unwrap();
    resource.deallocate_pointer(pointer).unwrap();
    refused(resource.deallocate_pointer(pointer), Status::BadFree, &[]);
    resource.deallocate_pointer(0).unwrap();
    let elsewhere = pool.malloc(4096, LEGACY).unwrap();
    assert_ne!(elsewhere, pointer, "another stream has what work of its own stream may still use");
    assert_eq!(pool.malloc(4096, stream).unwrap(), pointer, "in the order of that stream it is free");
    pool.free(elsewhere, LEGACY).unwrap();
    pool.free(pointer, stream).unwrap();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn foreign_pointers_are_refused_and_change_nothing() {
    let kinds = every_kind();
    let mut local = [1u8; 64];
    let outside = local.as_mut_ptr() as Block;
    for (name, resource) in &kinds {
        if on_cuda() && !matches!(*name, "virtual" | "pool" | "own pinned") {
            // What libcuda makes of such a pointer is its affair.
            continue;
        }
        for pointer in [outside, 0x1000, usize::MAX & !4095] {
            let failure = resource.deallocate(pointer, 64, LEGACY).expect_err(name);
            let told = matches!(failure.status, Status::BadFree | Status::Driver | Status::InvalidArgument);
            assert!(told, "{name}: {failure:?}");
        }
        let buffer = from_handle(outside, 64, Some(resource), None).unwrap();
        buffer.close().expect_err("not memory of the resource");
        assert_eq!(buffer.info().is_closed, 0, "as it was");
        keeps_data(resource, MIB);
        // Its destruction is refused as well, and says so in the log only.
    }
    assert!(local.iter().all(|&byte| byte == 1));
    // Memory of the program can be wrapped, copied from and to.
    let mut here = pattern(4, MIB);
    let wrapped = from_handle(here.as_mut_ptr() as Block, MIB, None, None).unwrap();
    assert_eq!((wrapped.info().is_host_accessible, wrapped.info().device_id), (1, -1));
    let there = Resource::of_pool(shared()).unwrap().allocate(MIB, LEGACY).unwrap();
    there.copy_from(&wrapped).unwrap();
    there.holds_pattern(4, MIB);
    there.fill(0, 1).unwrap();
    wrapped.copy_from(&there).unwrap();
    synchronize();
    wrapped.close().unwrap();
    assert!(here.iter().all(|&byte| byte == 0));
}

#[test]
fn a_closed_buffer_is_known_and_does_nothing() {
    for (_, resource) in every_kind() {
        let (buffer, other) =
            (resource.allocate(2 * MIB, LEGACY).unwrap(), resource.allocate(2 * MIB, LEGACY).unwrap());
        let (at, bytes) = (buffer.at(), buffer.bytes());
        buffer.close().unwrap();
        assert_eq!((buffer.at(), buffer.bytes(), buffer.info().is_closed), (at, bytes, 1));
        refused(buffer.fill(0, 1), Status::Closed, &["closed"]);
        refused(buffer.copy(), Status::Closed, &[]);
        refused(buffer.copy_from(&other), Status::Closed, &[]);
        refused(other.copy_from(&buffer), Status::Closed, &[]);
        refused(buffer.descriptor(), Status::Closed, &[]);
        buffer.close_on(LEGACY).unwrap();
        assert_eq!(buffer.resource().unwrap().info().kind, resource.info().kind);
    }
}

#[test]
fn a_buffer_keeps_its_resource() {
    for (_, resource) in every_kind() {
        let buffer = resource.allocate(2 * MIB, LEGACY).unwrap();
        let kind = resource.info().kind;
        drop(resource);
        buffer.write_pattern(9);
        buffer.holds_pattern(9, 2 * MIB);
        assert_eq!(buffer.resource().unwrap().info().kind, kind);
    }
}

#[test]
fn a_failed_close_keeps_the_buffer() {
    // Where other tests run beside this one, the next stream has the handle; and CUDA does not notice a dead one.
    in_child("buffers::a_failed_close_keeps_the_buffer", &[], || {
        if on_cuda() {
            return;
        }
        let stream = shared().stream();
        let buffer = Resource::device(|_| ()).unwrap().allocate(MIB, stream).unwrap();
        let dead = shared().stream();
        shared().destroy_stream(dead).unwrap();
        buffer.close_on(dead).expect_err("the stream is dead");
        assert_eq!((buffer.info().is_closed, buffer.info().stream), (0, stream as u64), "as it was");
        buffer.write_pattern(1);
        buffer.close().unwrap();
        shared().destroy_stream(stream).unwrap();
    });
}

#[test]
fn threads_may_close_one_buffer_and_use_one_resource() {
    for (_, resource) in every_kind() {
        let told = AtomicU32::new(0);
        let memory = resource.allocate(MIB, LEGACY).unwrap();
        let buffer = from_handle(memory.at(), memory.bytes(), None, Some(&told)).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (resource, buffer) = (&resource, &buffer);
                scope.spawn(move || {
                    for _ in 0..8 {
                        let own = resource.allocate(64 << 10, LEGACY).unwrap();
                        own.write_pattern(seed);
                        own.holds_pattern(seed, own.bytes());
                        resource.info();
                    }
                    buffer.close().unwrap();
                });
            }
        });
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_pool_may_be_closed_while_others_ask_it() {
    for _ in 0..200 {
        let Some(resource) = had("a pool to share", Resource::device(|options| options.ipc_enabled = 1)) else {
            return;
        };
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                resource.close().unwrap();
            });
            scope.spawn(|| {
                start.wait();
                for _ in 0..20 {
                    let _ = resource.allocation_handle();
                }
            });
            start.wait();
            for _ in 0..20 {
                resource.info();
            }
        });
        refused(resource.allocation_handle(), Status::Closed, &[]);
        if on_cuda() {
            return;
        }
    }
}
