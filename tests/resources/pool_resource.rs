//! Any Forebay pool as a resource.

use crate::device::peers_come_and_go;
use crate::kit::process::in_child;
use crate::kit::resources::*;

#[test]
fn it_keeps_data_and_says_what_it_is() {
    let resource = Resource::of_pool(shared()).unwrap();
    let info = resource.info();
    assert_eq!((info.kind, info.device_id, info.handle), (Kind::Pool as u32, DEVICE, 0));
    assert_eq!((info.is_handle_owned, info.is_device_accessible, info.is_host_accessible), (0, 1, 0));
    assert_eq!((info.is_mapped, info.is_managed, info.numa_id), (0, 0, -1));
    for bytes in [8, 5000, 3 * MIB, 40 * MIB] {
        keeps_data(&resource, bytes);
    }
    shared().check();
}

#[test]
fn it_hands_out_the_pools_own_blocks_and_takes_back_what_it_gave() {
    let pool = Pool::new();
    let resource = Resource::of_pool(&pool).unwrap();
    let stream = pool.stream();
    let buffer = resource.allocate(1000, stream).unwrap();
    assert_eq!((pool.block_size(buffer.at()).unwrap(), buffer.bytes()), (1024, 1000));
    let pointer = resource.pointer(1000, stream).unwrap();
    assert_eq!(pool.stats().live, 2048);
    let block = pool.malloc(1000, stream).unwrap();
    refused(resource.deallocate(block, 1000, stream), Status::BadFree, &["Pool resource"]);
    pool.free(block, stream).unwrap();
    resource.deallocate(pointer, 1000, stream).unwrap();
    refused(resource.deallocate(pointer, 1000, stream), Status::BadFree, &[]);
    refused(resource.deallocate(buffer.at() + 512, 0, stream), Status::BadFree, &[]);
    buffer.close().unwrap();
    assert_eq!(pool.stats().live, 0);
    pool.check();
    pool.destroy_stream(stream).unwrap();
}

#[test]
fn it_keeps_its_pool_and_closing_it_ends_nothing() {
    let pool = Pool::new();
    let resource = Resource::of_pool(&pool).unwrap();
    drop(pool);
    keeps_data(&resource, MIB);
    resource.close().unwrap();
    keeps_data(&resource, MIB);
    let buffer = resource.allocate(MIB, LEGACY).unwrap();
    drop(resource);
    buffer.write_pattern(1);
    let again = buffer.resource().unwrap();
    keeps_data(&again, MIB);
    buffer.holds_pattern(1, MIB);
}

#[test]
fn it_trims_and_is_limited_with_its_pool() {
    let pool = Pool::limited(32 * MIB);
    let resource = Resource::of_pool(&pool).unwrap();
    let buffer = resource.allocate(24 * MIB, LEGACY).unwrap();
    refused(resource.allocate(16 * MIB, LEGACY), Status::OutOfMemory, &["limit 32.00 MiB"]);
    buffer.close().unwrap();
    synchronize();
    pool.synchronize(LEGACY).unwrap();
    resource.trim(4 * MIB).unwrap();
    assert!(pool.stats().physical <= 4 * MIB);
    refused(resource.allocate(u64::MAX, LEGACY), Status::InvalidArgument, &[]);
}

#[test]
fn another_device_is_let_in_and_shut_out() {
    let name = "pool_resource::another_device_is_let_in_and_shut_out";
    in_child(name, &[("FOREBAY_HOST_DEVICES", "2")], || {
        if shared().device_count().unwrap() < 2 {
            println!("skipped: one device only");
            return;
        }
        let pool = Pool::with(|_| ()).unwrap();
        drop(pool);
        let resource = Resource::of_pool(shared()).unwrap();
        peers_come_and_go(&resource);
        resource.set_peer_access(1, ForebayAccess::ReadWrite).unwrap();
        // What is mapped from now on is the peer's too.
        let new = resource.allocate(90 * MIB, LEGACY).unwrap();
        new.write_pattern(2);
        let stream = shared().try_stream(1).unwrap() as *mut std::ffi::c_void;
        let mut back = vec![0u8; 90 * MIB as usize];
        let (to, from) = (back.as_mut_ptr().cast(), new.at() as *const std::ffi::c_void);
        let pool = shared().0;
        outcome(unsafe { forebay::abi::pool::streams::forebay_pool_copy(pool, 1, to, from, 90 * MIB, stream) })
            .unwrap();
        outcome(unsafe { forebay::abi::pool::streams::forebay_stream_synchronize(pool, 1, stream) }).unwrap();
        assert!(back == pattern(2, 90 * MIB));
        refused(resource.set_peer_access(DEVICE, ForebayAccess::None), Status::InvalidArgument, &["device 0"]);
    });
}
