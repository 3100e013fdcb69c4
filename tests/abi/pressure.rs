//! Pressure callbacks: asked before a request fails.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kit::abi::*;

/// What a callback may use.
struct User {
    pool: Pool,
    stream: Stream,
    /// What it frees when asked.
    spare: Mutex<Vec<Block>>,
    calls: AtomicU64,
    asked: AtomicU64,
}

impl User {
    fn new(limit: u64) -> Self {
        let pool = Pool::limited(limit);
        let stream = pool.stream();
        Self { pool, stream, spare: Mutex::default(), calls: AtomicU64::new(0), asked: AtomicU64::new(0) }
    }

    unsafe fn called<'a>(user: *mut c_void, device: i32, bytes: u64) -> &'a Self {
        assert_eq!(device, DEVICE);
        let user = unsafe { &*user.cast::<Self>() };
        user.calls.fetch_add(1, Ordering::SeqCst);
        user.asked.store(bytes, Ordering::SeqCst);
        user
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

unsafe extern "C" fn frees(user: *mut c_void, device: i32, bytes: u64) -> bool {
    let user = unsafe { User::called(user, device, bytes) };
    let spare = user.spare.lock().unwrap().pop();
    spare.is_some_and(|block| user.pool.free(block, user.stream).is_ok())
}

unsafe extern "C" fn allocates(user: *mut c_void, device: i32, bytes: u64) -> bool {
    let user = unsafe { User::called(user, device, bytes) };
    // Fails for want of memory too, and must not call us again.
    refused(user.pool.malloc(32 * MIB, user.stream), Status::OutOfMemory, &["asked for"]);
    let small = user.pool.malloc(512, user.stream).unwrap();
    user.pool.free(small, user.stream).unwrap();
    frees_one(user)
}

fn frees_one(user: &User) -> bool {
    let spare = user.spare.lock().unwrap().pop();
    spare.is_some_and(|block| user.pool.free(block, LEGACY).is_ok())
}

unsafe extern "C" fn cannot(user: *mut c_void, device: i32, bytes: u64) -> bool {
    unsafe { User::called(user, device, bytes) };
    false
}

#[test]
fn a_callback_that_frees_saves_the_request() {
    let user = User::new(32 * MIB);
    let id = user.pool.add_callback(Some(frees), &user).unwrap();
    let block = user.pool.malloc(32 * MIB, user.stream).unwrap();
    user.pool.fill(block, 4, 32 * MIB, user.stream).unwrap();
    user.spare.lock().unwrap().push(block);
    let other = user.pool.stream();
    let saved = user.pool.malloc(30 * MIB, other).unwrap();
    assert_eq!((user.calls(), user.asked.load(Ordering::SeqCst)), (1, 30 * MIB));
    refused(user.pool.malloc(30 * MIB, other), Status::OutOfMemory, &["asked for"]);
    assert_eq!(user.calls(), 2, "asked once for each request that would fail");
    user.pool.remove_callback(id).unwrap();
    refused(user.pool.malloc(30 * MIB, other), Status::OutOfMemory, &["asked for"]);
    assert_eq!(user.calls(), 2, "removed");
    user.pool.free(saved, other).unwrap();
    user.pool.check();
}

#[test]
fn a_callback_may_allocate_and_is_not_called_again_by_that() {
    let user = User::new(32 * MIB);
    user.pool.add_callback(Some(allocates), &user).unwrap();
    let (block, last) = (user.pool.malloc(30 * MIB, LEGACY).unwrap(), user.pool.malloc(512, LEGACY).unwrap());
    user.pool.free(last, LEGACY).unwrap();
    user.spare.lock().unwrap().push(block);
    let saved = user.pool.malloc(24 * MIB, LEGACY).unwrap();
    assert_eq!(user.calls(), 1);
    user.pool.free(saved, LEGACY).unwrap();
    user.pool.check();
}

#[test]
fn all_callbacks_are_asked_and_each_has_its_own_number() {
    let (first, second) = (User::new(32 * MIB), User::new(32 * MIB));
    let pool = &first.pool;
    let ids = [pool.add_callback(Some(cannot), &first).unwrap(), pool.add_callback(Some(cannot), &second).unwrap()];
    assert_ne!(ids[0], ids[1]);
    refused(pool.malloc(64 * MIB, LEGACY), Status::OutOfMemory, &["asked for"]);
    assert_eq!((first.calls(), second.calls()), (1, 1));
    pool.remove_callback(ids[0]).unwrap();
    refused(pool.remove_callback(ids[0]), Status::NotFound, &[&ids[0].to_string(), "removed before"]);
    refused(pool.remove_callback(0), Status::NotFound, &["0"]);
    refused(pool.remove_callback(u64::MAX), Status::NotFound, &[&u64::MAX.to_string()]);
    refused(pool.malloc(64 * MIB, LEGACY), Status::OutOfMemory, &["asked for"]);
    assert_eq!((first.calls(), second.calls()), (1, 2));
    pool.remove_callback(ids[1]).unwrap();
    assert_eq!(second.pool.stats().out_of_memory, 0, "another pool's");
}

#[test]
fn a_request_that_can_be_served_asks_nobody() {
    let user = User::new(32 * MIB);
    user.pool.add_callback(Some(cannot), &user).unwrap();
    for _ in 0..4 {
        let block = user.pool.malloc(32 * MIB, user.stream).unwrap();
        user.pool.free(block, user.stream).unwrap();
        let block = user.pool.malloc(32 * MIB, LEGACY).unwrap();
        user.pool.free(block, LEGACY).unwrap();
    }
    assert_eq!(user.calls(), 0);
}
