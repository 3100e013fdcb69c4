//! What lies where in a pool, and word of its mappings.

use std::ffi::c_void;
use std::sync::Mutex;

use forebay::abi::pool::snapshot::*;
use forebay::abi::torch::allocator::*;
use forebay::abi::torch::pools::*;

use crate::kit::abi::*;
use crate::kit::process::in_child;

fn blocks(pool: &Pool) -> Vec<ForebayBlock> {
    unsafe extern "C" fn visit(context: *mut c_void, block: *const ForebayBlock) {
        unsafe { (*context.cast::<Vec<ForebayBlock>>()).push(*block) };
    }
    let mut found: Vec<ForebayBlock> = Vec::new();
    outcome(unsafe { forebay_pool_snapshot(pool.0, DEVICE, Some(visit), (&raw mut found).cast()) }).unwrap();
    found
}

fn at(pool: &Pool, block: Block) -> Option<ForebayBlock> {
    blocks(pool).into_iter().find(|known| known.address == block as u64)
}

const FREE: u32 = ForebayBlockState::Free as u32;
const LIVE: u32 = ForebayBlockState::Live as u32;

#[test]
fn a_snapshot_has_every_block_in_order() {
    let pool = Pool::new();
    assert!(blocks(&pool).is_empty(), "an unused device has none");
    let stream = pool.stream();
    let kept: Vec<Block> = (1..8).map(|count| pool.malloc(count * MIB, stream).unwrap()).collect();
    pool.private_begin(9, stream).unwrap();
    let private = pool.malloc(3 * MIB, stream).unwrap();
    pool.private_end(9).unwrap();
    pool.free(kept[3], stream).unwrap();

    let seen = blocks(&pool);
    assert!(seen.windows(2).all(|pair| pair[0].address + pair[0].bytes <= pair[1].address));
    assert_eq!(seen.iter().map(|block| block.bytes).sum::<u64>(), pool.stats().physical);
    for (index, &block) in kept.iter().enumerate() {
        let known = at(&pool, block).unwrap();
        assert_eq!(known.state, if index == 3 { FREE } else { LIVE });
        assert_eq!((known.has_stream, known.stream, known.is_private), (1, stream as u64, 0));
    }
    let known = at(&pool, private).unwrap();
    assert_eq!((known.state, known.bytes), (LIVE, 3 * MIB));
    assert_eq!((known.is_private, known.private_first, known.private_second), (1, u64::MAX, 9));
    pool.free(private, stream).unwrap();
    let known = at(&pool, private).unwrap();
    assert_eq!((known.state, known.is_private), (FREE, 1), "free, and still the private pool's");
    pool.private_release(9).unwrap();
    for (index, block) in kept.into_iter().enumerate() {
        if index != 3 {
            pool.free(block, stream).unwrap();
        }
    }
    pool.trim(0).unwrap();
    assert!(blocks(&pool).is_empty());
    pool.destroy_stream(stream).unwrap();
    assert!(outcome(unsafe { forebay_pool_snapshot(pool.0, DEVICE, None, std::ptr::null_mut()) }).is_err());
}

#[test]
fn an_observer_is_told_of_every_mapping() {
    type Told = Mutex<Vec<(u32, u64, u64)>>;
    unsafe extern "C" fn observe(user: *mut c_void, device: i32, what: u32, ptr: *mut c_void, bytes: u64) {
        assert_eq!(device, DEVICE);
        unsafe { &*user.cast::<Told>() }.lock().unwrap().push((what, ptr as u64, bytes));
    }
    let pool = Pool::new();
    let told = Told::default();
    let user = (&raw const told).cast_mut().cast();
    outcome(unsafe { forebay_pool_set_mapping_observer(pool.0, DEVICE, Some(observe), user) }).unwrap();
    let held = |what: ForebayMapping| -> u64 {
        told.lock().unwrap().iter().filter(|event| event.0 == what as u32).map(|event| event.2).sum()
    };
    let block = pool.malloc(20 * MIB, LEGACY).unwrap();
    assert_eq!(held(ForebayMapping::Mapped), pool.stats().physical);
    assert_eq!(told.lock().unwrap().iter().map(|event| event.1).min(), Some(blocks(&pool)[0].address));
    pool.free(block, LEGACY).unwrap();
    pool.trim(0).unwrap();
    assert_eq!(held(ForebayMapping::Unmapped), held(ForebayMapping::Mapped), "all of it is gone");
    outcome(unsafe { forebay_pool_set_mapping_observer(pool.0, DEVICE, None, std::ptr::null_mut()) }).unwrap();
    let count = told.lock().unwrap().len();
    let block = pool.malloc(20 * MIB, LEGACY).unwrap();
    pool.free(block, LEGACY).unwrap();
    assert_eq!(told.lock().unwrap().len(), count, "nobody is told any more");
}

#[test]
fn a_private_block_comes_back_at_its_address() {
    in_child("snapshot::a_private_block_comes_back_at_its_address", &[], || {
        const NONE: *mut c_void = std::ptr::null_mut();
        let pool = Pool::shared().unwrap();
        let holds = || {
            let mut count = 77;
            outcome(unsafe { forebay_torch_pool_use_count(DEVICE, 0, 5, &raw mut count) }).map(|()| count).unwrap()
        };
        let of = |block: *mut c_void| {
            let (mut first, mut second) = (77, 77);
            outcome(unsafe { forebay_torch_pool_of(block, &raw mut first, &raw mut second) }).map(|()| (first, second))
        };
        assert_eq!(holds(), 0);
        outcome(unsafe { forebay_torch_hold_pool(DEVICE, 0, 5) }).unwrap();
        let (a, b) = unsafe {
            forebay_torch_begin_allocate_to_pool(DEVICE, 0, 5, NONE);
            assert_eq!(holds(), 2);
            let made = (forebay_torch_malloc(3 << 20, DEVICE, NONE), forebay_torch_malloc(2 << 20, DEVICE, NONE));
            forebay_torch_end_allocate_to_pool(DEVICE, 0, 5);
            made
        };
        assert_eq!(of(a).unwrap(), (0, 5));
        let outside = unsafe { forebay_torch_malloc(1 << 20, DEVICE, NONE) };
        assert_eq!(of(outside).unwrap(), (0, 0));

        let restore = |block, bytes| outcome(unsafe { forebay_torch_restore(0, 5, block, bytes, NONE) });
        assert!(restore(a, 3 * MIB).is_err(), "it is live");
        unsafe { forebay_torch_free(a, 0, DEVICE, NONE) };
        assert!(of(a).is_err(), "it is freed");
        assert!(restore(a, 6 * MIB).is_err(), "the block behind it is live");
        assert!(outcome(unsafe { forebay_torch_restore(0, 6, a, MIB, NONE) }).is_err(), "no such pool");
        assert!(restore(outside, MIB).is_err(), "not the pool's memory");
        let live = pool.stats().live;
        restore(a, 3 * MIB).unwrap();
        assert_eq!(pool.stats().live, live + 3 * MIB);
        assert_eq!(of(a).unwrap(), (0, 5));
        pool.fill(a as Block, 3, 3 * MIB, LEGACY).unwrap();
        pool.holds(a as Block, 3, 3 * MIB, LEGACY);
        pool.check();
        for block in [a, b, outside] {
            unsafe { forebay_torch_free(block, 0, DEVICE, NONE) };
        }
        unsafe { forebay_torch_release_pool(DEVICE, 0, 5) };
        unsafe { forebay_torch_release_pool(DEVICE, 0, 5) };
        assert_eq!(holds(), 0);
        pool.trim(0).unwrap();
        assert_eq!(pool.stats().physical, 0);
        pool.check();
    });
}
