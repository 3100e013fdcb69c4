//! CuPy's hooks: without Python a failure is NULL, with Python it is an exception, CuPy's own where CuPy is there.

use std::ffi::c_void;

use crate::kit::abi::*;
use crate::kit::process::in_child;
use crate::kit::programs::{Folder, lacks, library, plain, run};
use forebay::abi::cupy::allocator::*;

#[test]
fn without_python_a_failure_is_null_with_a_text_and_a_block_is_a_block() {
    in_child("cupy::without_python_a_failure_is_null_with_a_text_and_a_block_is_a_block", &[], || {
        let null = std::ptr::null_mut::<c_void>();
        unsafe {
            forebay_cupy_free(null, 512 as *mut c_void, 0);
            for (size, device, word) in [(1 << 50, 0, "asked for"), (usize::MAX, 0, "negative"), (512, -1, "device -1")]
            {
                assert!(forebay_cupy_malloc(null, size, device).is_null());
                assert!(last_error().contains(word), "{}", last_error());
            }
            assert!(forebay_cupy_malloc(null, 0, 0).is_null());
            let block = forebay_cupy_malloc(null, 700, 0);
            let pool = Pool::shared().unwrap();
            assert_eq!(pool.block_size(block as Block).unwrap(), 1024);
            assert_eq!(pool.stats().live_by_framework, [0, 0, 1024, 0, 0, 0, 0, 0]);
            forebay_cupy_free(null, block.wrapping_byte_add(512), 0);
            forebay_cupy_free(null, null, 0);
            assert_eq!(pool.stats().live, 1024);
            forebay_cupy_free(null, block, 0);
            assert_eq!(pool.stats().live, 0);
        }
    });
}

#[test]
fn the_stream_getter_says_on_which_stream() {
    static STREAM: std::sync::atomic::AtomicIsize = std::sync::atomic::AtomicIsize::new(0);
    extern "C" fn current(_device: i32) -> isize {
        STREAM.load(std::sync::atomic::Ordering::SeqCst)
    }
    in_child("cupy::the_stream_getter_says_on_which_stream", &[], || {
        let pool = Pool::shared().unwrap();
        let stream = pool.stream();
        STREAM.store(stream as isize, std::sync::atomic::Ordering::SeqCst);
        forebay_cupy_set_stream_getter(Some(current));
        let block = unsafe { forebay_cupy_malloc(std::ptr::null_mut(), 512, 0) };
        assert_eq!((pool.stream_stats(stream).live, pool.stream_stats(LEGACY).live), (512, 0));
        STREAM.store(0, std::sync::atomic::Ordering::SeqCst);
        let other = unsafe { forebay_cupy_malloc(std::ptr::null_mut(), 1024, 0) };
        assert_eq!((pool.stream_stats(stream).live, pool.stream_stats(LEGACY).live), (512, 1024));
        forebay_cupy_set_stream_getter(None);
        unsafe {
            forebay_cupy_free(std::ptr::null_mut(), block, 0);
            forebay_cupy_free(std::ptr::null_mut(), other, 0);
        }
        assert_eq!(pool.stats().live, 0);
        pool.check();
    });
}

#[test]
fn with_python_a_failure_is_cupys_own_exception_with_the_report() {
    if lacks("python3") {
        return;
    }
    let folder = Folder::new("cupy");
    let mut python = plain("python3");
    // -I: a CuPy that is installed must not be found before the test has written its own.
    python.args(["-I", "-S", "-B", "-c", include_str!("cupy.py")]).arg(library()).arg(folder.path());
    assert_eq!(run(python.env("FOREBAY_DRIVER", driver())), "cupy hooks: right\n");
}
