//! CuPy's hooks on a pool of the driver.

use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::kit::process::in_child;
use crate::kit::resources::*;
use forebay::abi::cupy::allocator::forebay_cupy_set_stream_getter;
use forebay::abi::cupy::pool::*;
use forebay::abi::resource::create::forebay_device_resource_create;
use forebay::abi::resource::options::forebay_device_resource_options_init;

struct CupyPool(*mut ForebayCupyPool);

impl CupyPool {
    fn new(resource: &Resource) -> Self {
        Self::on(&[resource])
    }

    fn on(resources: &[&Resource]) -> Self {
        let mut out = std::ptr::null_mut();
        let given: Vec<_> = resources.iter().map(|resource| resource.0.cast_const()).collect();
        outcome(unsafe { forebay_cupy_pool_create(given.as_ptr(), given.len() as u32, &raw mut out) }).unwrap();
        Self(out)
    }

    /// NULL where it fails: there is no Python here.
    fn malloc(&self, bytes: usize, device: i32) -> *mut c_void {
        unsafe { forebay_cupy_pool_malloc(self.0.cast(), bytes, device) }
    }

    fn free(&self, at: *mut c_void) {
        unsafe { forebay_cupy_pool_free(self.0.cast(), at, DEVICE) };
    }

    fn set_limit(&self, bytes: u64) {
        outcome(unsafe { forebay_cupy_pool_set_limit(self.0, DEVICE, bytes) }).unwrap();
    }

    fn limit(&self) -> u64 {
        self.limit_of(DEVICE)
    }

    fn limit_of(&self, device: i32) -> u64 {
        let mut out = u64::MAX;
        outcome(unsafe { forebay_cupy_pool_get_limit(self.0, device, &raw mut out) }).unwrap();
        out
    }
}

impl Drop for CupyPool {
    fn drop(&mut self) {
        unsafe { forebay_cupy_pool_destroy(self.0) };
    }
}

static STREAM: AtomicIsize = AtomicIsize::new(0);

extern "C" fn current(_device: i32) -> isize {
    STREAM.load(Ordering::SeqCst)
}

#[test]
fn memory_comes_from_the_pool_up_to_its_limit() {
    in_child("cupy_pool::memory_comes_from_the_pool_up_to_its_limit", &[], || {
        shared();
        let Some(resource) = had("a pool", Resource::device(|_| {})) else { return };
        let pool = CupyPool::new(&resource);
        let used = || resource.attribute(Attribute::UsedMemCurrent).unwrap();
        assert_eq!(pool.limit(), 0);
        let first = pool.malloc(3 << 20, DEVICE);
        assert!(!first.is_null() && used() >= 3 * MIB);
        pool.set_limit(used() + MIB);
        assert!(pool.malloc(2 << 20, DEVICE).is_null());
        for word in ["limit", "2097152 bytes", &pool.limit().to_string()] {
            assert!(last_error().contains(word), "{}", last_error());
        }
        let second = CupyPool::new(&resource);
        assert_eq!(second.limit(), pool.limit(), "two pools on one resource have one limit");
        assert!(second.malloc(2 << 20, DEVICE).is_null());
        second.set_limit(0);
        drop(second);
        assert_eq!(pool.limit(), 0);
        let wrong = unsafe { forebay_cupy_pool_set_limit(pool.0, DEVICE + 1, 5) };
        refused(outcome(wrong), Status::InvalidArgument, &["device is 1", "1 devices"]);
        assert!(pool.malloc(512, DEVICE + 1).is_null());
        assert!(last_error().contains("device is 1"), "{}", last_error());
        assert!(pool.malloc(0, DEVICE).is_null());
        pool.free(std::ptr::null_mut());
        pool.free(first.wrapping_byte_add(512));
        assert!(used() >= 3 * MIB, "what it did not give it does not take");
        pool.free(first);
        pool.free(first);
        synchronize();
        assert_eq!(used(), 0);
    });
}

#[test]
fn each_device_has_its_resource_and_its_limit() {
    if on_cuda() {
        println!("skipped: it needs two devices, which the host driver has");
        return;
    }
    in_child("cupy_pool::each_device_has_its_resource_and_its_limit", &[("FOREBAY_HOST_DEVICES", "2")], || {
        let options = filled(forebay_device_resource_options_init, |_| {});
        let create = |device| move |out| unsafe { forebay_device_resource_create(device, &raw const options, out) };
        let of = |device| Resource::made(create(device)).unwrap();
        let (first, second, third) = (of(0), of(1), of(1));
        let one = CupyPool::on(&[&first, &second]);
        let other = CupyPool::on(&[&first, &third]);
        for (device, bytes) in [(0, MIB), (1, 3 * MIB)] {
            outcome(unsafe { forebay_cupy_pool_set_limit(one.0, device, bytes) }).unwrap();
        }
        assert_eq!([one.limit_of(0), one.limit_of(1), other.limit_of(0), other.limit_of(1)], [MIB, 3 * MIB, MIB, 0]);
        assert!(one.malloc(2 << 20, 0).is_null() && other.malloc(2 << 20, 0).is_null());
        let block = one.malloc(2 << 20, 1);
        assert!(!block.is_null() && second.attribute(Attribute::UsedMemCurrent).unwrap() >= 2 * MIB);
        unsafe { forebay_cupy_pool_free(one.0.cast(), block, 0) };
        assert!(one.malloc(2 << 20, 1).is_null(), "device 0 did not give it, and takes nothing");
        unsafe { forebay_cupy_pool_free(one.0.cast(), block, 1) };
    });
}

#[test]
fn a_free_on_another_stream_waits_for_the_one_of_the_allocation() {
    in_child("cupy_pool::a_free_on_another_stream_waits_for_the_one_of_the_allocation", &[], || {
        // No room for a second block: it is the first one's memory.
        let small = Resource::device(|options| options.max_size = MIB);
        let Some(resource) = had("a pool", small) else { return };
        let pool = CupyPool::new(&resource);
        forebay_cupy_set_stream_getter(Some(current));
        let program = shared();
        for number in 0..100_u8 {
            let slow = program.stream();
            STREAM.store(slow as isize, Ordering::SeqCst);
            let source = pool.malloc(1 << 20, DEVICE);
            let copy = program.malloc(MIB, slow).unwrap();
            program.fill(source as Block, 5, MIB, slow).unwrap();
            program.copy(copy, source as Block, MIB, slow).unwrap();
            STREAM.store(LEGACY as isize, Ordering::SeqCst);
            pool.free(source);
            let other = pool.malloc(1 << 20, DEVICE);
            program.fill(other as Block, number, MIB, LEGACY).unwrap();
            // On CUDA this can fail; the host driver runs work as it is queued here: see tests/ordered.rs.
            program.holds(other as Block, number, MIB, LEGACY);
            program.holds(copy, 5, MIB, slow);
            pool.free(other);
            program.free(copy, slow).unwrap();
            program.destroy_stream(slow).unwrap();
        }
        synchronize();
        assert_eq!(resource.attribute(Attribute::UsedMemCurrent).unwrap(), 0);
    });
}

#[test]
fn null_is_refused_by_name() {
    unsafe {
        let mut out = std::ptr::null_mut();
        let one = [std::ptr::null()];
        refused(
            outcome(forebay_cupy_pool_create(std::ptr::null(), 1, &raw mut out)),
            Status::NullPointer,
            &["resources"],
        );
        refused(outcome(forebay_cupy_pool_create(one.as_ptr(), 1, &raw mut out)), Status::NullPointer, &["resource"]);
        assert!(out.is_null());
        refused(outcome(forebay_cupy_pool_set_limit(out, DEVICE, 5)), Status::NullPointer, &["pool"]);
        forebay_cupy_pool_destroy(out);
        forebay_cupy_pool_free(out.cast(), 512 as *mut c_void, DEVICE);
    }
}
