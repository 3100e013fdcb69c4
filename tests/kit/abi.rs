//! The C ABI as the tests call it: the exported functions of the rlib, on the driver that `FOREBAY_TEST_DRIVER` names,
//! or else `FOREBAY_DRIVER`; the host driver where neither does.
//!
//! Blocks and streams are plain numbers here, so that tests can pass wrong ones.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: objects are this module's own, outputs are locals, and wrong addresses are what is tested"
)]

use std::ffi::{CStr, CString, c_void};
use std::mem::ManuallyDrop;

use forebay::abi::core::handle::ForebayPool;
pub use forebay::abi::core::status::ForebayStatus as Status;
use forebay::abi::core::status::*;
pub use forebay::abi::pool::create::ForebayPoolOptions;
use forebay::abi::pool::create::*;
pub use forebay::abi::pool::limits::ForebayPressureFn;
use forebay::abi::pool::limits::*;
use forebay::abi::pool::memory::*;
use forebay::abi::pool::private::*;
use forebay::abi::pool::stats::*;
pub use forebay::abi::pool::stats::{FOREBAY_STATS_VERSION, ForebayPoolStats, ForebayStreamStats};
use forebay::abi::pool::streams::*;

pub const MIB: u64 = super::memory::MIB;
pub const DEVICE: i32 = 0;
/// The legacy default stream, by its other name, and the calling thread's own.
pub const LEGACY: Stream = 0;
pub const LEGACY_BY_NAME: Stream = 1;
pub const PER_THREAD: Stream = 2;

pub type Block = usize;
pub type Stream = usize;

/// A call that failed.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub text: String,
}
pub type Outcome<T = ()> = Result<T, Failure>;

/// The driver under test.
pub fn driver() -> String {
    let named = std::env::var("FOREBAY_TEST_DRIVER").or_else(|_| std::env::var("FOREBAY_DRIVER"));
    named.unwrap_or_else(|_| "host".into())
}

pub fn on_cuda() -> bool {
    driver() == "cuda"
}

pub fn last_error() -> String {
    unsafe { CStr::from_ptr(forebay_last_error_message()) }.to_str().unwrap().to_owned()
}

pub fn outcome(status: Status) -> Outcome {
    if status == Status::Ok { Ok(()) } else { Err(Failure { status, text: last_error() }) }
}

/// The call was refused with this status, and its text says all of `words`.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: Outcome<T>, status: Status, words: &[&str]) -> String {
    let failure = result.expect_err("refused");
    assert_eq!(failure.status, status, "{}", failure.text);
    for word in words {
        assert!(failure.text.contains(word), "no {word:?} in: {}", failure.text);
    }
    failure.text
}

/// The defaults, on the driver under test.
pub fn options() -> (ForebayPoolOptions, CString) {
    let mut options = std::mem::MaybeUninit::uninit();
    outcome(unsafe { forebay_pool_options_init(options.as_mut_ptr()) }).unwrap();
    let mut options = unsafe { options.assume_init() };
    let name = CString::new(driver()).unwrap();
    options.driver = name.as_ptr();
    (options, name)
}

/// A pool object.
pub struct Pool(pub *mut ForebayPool);

// The C ABI promises that any thread may call.
unsafe impl Send for Pool {}
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        unsafe { forebay_pool_destroy(self.0) };
    }
}

impl Pool {
    pub fn new() -> Self {
        Self::with(|_| ()).unwrap()
    }

    /// A pool of its own whose options were changed.
    pub fn with(change: impl FnOnce(&mut ForebayPoolOptions)) -> Outcome<Self> {
        let (mut options, _name) = options();
        change(&mut options);
        let mut pool = std::ptr::null_mut();
        outcome(unsafe { forebay_pool_create(&raw const options, &raw mut pool) }).map(|()| Self(pool))
    }

    pub fn limited(limit: u64) -> Self {
        Self::with(|options| options.limit = limit).unwrap()
    }

    pub fn shared() -> Outcome<Self> {
        let mut pool = std::ptr::null_mut();
        outcome(unsafe { forebay_pool_shared(&raw mut pool) }).map(|()| Self(pool))
    }

    /// A NULL object.
    pub fn null() -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self(std::ptr::null_mut()))
    }

    pub fn driver_name(&self) -> Option<String> {
        let name = unsafe { forebay_pool_driver_name(self.0) };
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned())
    }

    pub fn device_count(&self) -> Outcome<i32> {
        let mut count = -7;
        outcome(unsafe { forebay_pool_device_count(self.0, &raw mut count) }).map(|()| count)
    }

    pub fn memory_info(&self, device: i32) -> Outcome<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        outcome(unsafe { forebay_pool_memory_info(self.0, device, &raw mut free, &raw mut total) })
            .map(|()| (free, total))
    }

    // ---- memory ----------------------------------------------------------------------------------------

    pub fn malloc_on(&self, bytes: u64, device: i32, stream: Stream) -> Outcome<Block> {
        const UNTOUCHED: *mut c_void = std::ptr::without_provenance_mut(0xdead);
        let mut block = UNTOUCHED;
        let done =
            outcome(unsafe { forebay_pool_malloc(self.0, bytes, device, stream as *mut c_void, &raw mut block) });
        assert_eq!(done.is_err(), block == UNTOUCHED, "an output is written on success, and only then");
        done.map(|()| block as Block)
    }

    pub fn malloc(&self, bytes: u64, stream: Stream) -> Outcome<Block> {
        self.malloc_on(bytes, DEVICE, stream)
    }

    pub fn free(&self, block: Block, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_pool_free(self.0, block as *mut c_void, stream as *mut c_void) })
    }

    pub fn record_use(&self, block: Block, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_pool_record_use(self.0, block as *mut c_void, stream as *mut c_void) })
    }

    pub fn block_size(&self, block: Block) -> Outcome<u64> {
        let mut bytes = 0;
        outcome(unsafe { forebay_pool_block_size(self.0, block as *const c_void, &raw mut bytes) }).map(|()| bytes)
    }

    pub fn base_address(&self, at: usize) -> Outcome<(Block, u64)> {
        let (mut base, mut bytes) = (std::ptr::null_mut(), 0);
        let done = unsafe { forebay_pool_base_address(self.0, at as *const c_void, &raw mut base, &raw mut bytes) };
        outcome(done).map(|()| (base as Block, bytes))
    }

    // ---- limits ----------------------------------------------------------------------------------------

    pub fn trim(&self, keep: u64) -> Outcome<u64> {
        let mut released = 0;
        outcome(unsafe { forebay_pool_trim(self.0, DEVICE, keep, &raw mut released) }).map(|()| released)
    }

    pub fn set_limit(&self, bytes: u64) -> Outcome {
        outcome(unsafe { forebay_pool_set_limit(self.0, DEVICE, bytes) })
    }

    pub fn set_fraction(&self, fraction: f64) -> Outcome {
        outcome(unsafe { forebay_pool_set_fraction(self.0, DEVICE, fraction) })
    }

    pub fn limit(&self) -> Outcome<u64> {
        let mut limit = 7;
        outcome(unsafe { forebay_pool_get_limit(self.0, DEVICE, &raw mut limit) }).map(|()| limit)
    }

    /// `user` must stay where it is until the callback is removed.
    pub fn add_callback<T>(&self, callback: ForebayPressureFn, user: &T) -> Outcome<u64> {
        let mut id = 0;
        let user = std::ptr::from_ref(user).cast_mut().cast();
        outcome(unsafe { forebay_pool_add_pressure_callback(self.0, callback, user, &raw mut id) }).map(|()| id)
    }

    pub fn remove_callback(&self, id: u64) -> Outcome {
        outcome(unsafe { forebay_pool_remove_pressure_callback(self.0, id) })
    }

    // ---- figures ---------------------------------------------------------------------------------------

    pub fn try_stats(&self, device: i32, size: u32, version: u32) -> Outcome<ForebayPoolStats> {
        let mut stats = ForebayPoolStats { size, version, ..ForebayPoolStats::default() };
        outcome(unsafe { forebay_pool_get_stats(self.0, device, &raw mut stats) }).map(|()| stats)
    }

    pub fn stats(&self) -> ForebayPoolStats {
        self.try_stats(DEVICE, size_of::<ForebayPoolStats>() as u32, FOREBAY_STATS_VERSION).unwrap()
    }

    pub fn try_stream_stats(&self, stream: Stream, size: u32, version: u32) -> Outcome<ForebayStreamStats> {
        let mut stats = ForebayStreamStats { size, version, ..ForebayStreamStats::default() };
        let done = unsafe { forebay_pool_get_stream_stats(self.0, DEVICE, stream as *mut c_void, &raw mut stats) };
        outcome(done).map(|()| stats)
    }

    pub fn stream_stats(&self, stream: Stream) -> ForebayStreamStats {
        self.try_stream_stats(stream, size_of::<ForebayStreamStats>() as u32, FOREBAY_STATS_VERSION).unwrap()
    }

    pub fn reset_peaks(&self) -> Outcome {
        outcome(unsafe { forebay_pool_reset_peaks(self.0, DEVICE) })
    }

    /// What a buffer of `capacity` bytes gets, and how many the whole text needs.
    pub fn report(&self, capacity: usize) -> Outcome<(Vec<u8>, usize)> {
        let (mut buffer, mut needed) = (vec![0xAAu8; capacity + 8], 0);
        outcome(unsafe { forebay_pool_report(self.0, DEVICE, buffer.as_mut_ptr().cast(), capacity, &raw mut needed) })?;
        assert!(buffer[capacity..].iter().all(|&byte| byte == 0xAA), "written past the buffer's end");
        buffer.truncate(capacity);
        Ok((buffer, needed))
    }

    /// Every equation of the pool.
    #[track_caller]
    pub fn check(&self) {
        outcome(unsafe { forebay_pool_check(self.0, DEVICE) }).unwrap();
    }

    // ---- streams and data ------------------------------------------------------------------------------

    pub fn try_stream(&self, device: i32) -> Outcome<Stream> {
        let mut stream = std::ptr::null_mut();
        outcome(unsafe { forebay_stream_create(self.0, device, &raw mut stream) }).map(|()| stream as Stream)
    }

    pub fn stream(&self) -> Stream {
        self.try_stream(DEVICE).unwrap()
    }

    pub fn destroy_stream(&self, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_stream_destroy(self.0, DEVICE, stream as *mut c_void) })
    }

    pub fn register(&self, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_stream_register(self.0, DEVICE, stream as *mut c_void) })
    }

    pub fn unregister(&self, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_stream_unregister(self.0, DEVICE, stream as *mut c_void) })
    }

    pub fn synchronize(&self, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_stream_synchronize(self.0, DEVICE, stream as *mut c_void) })
    }

    pub fn fill(&self, block: Block, value: u8, bytes: u64, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_pool_fill(self.0, DEVICE, block as *mut c_void, value, bytes, stream as *mut c_void) })
    }

    pub fn copy(&self, to: Block, from: Block, bytes: u64, stream: Stream) -> Outcome {
        let (to, from) = (to as *mut c_void, from as *const c_void);
        outcome(unsafe { forebay_pool_copy(self.0, DEVICE, to, from, bytes, stream as *mut c_void) })
    }

    /// What the block holds once the stream's work is done.
    pub fn read(&self, block: Block, bytes: u64, stream: Stream) -> Vec<u8> {
        let mut data = vec![0u8; bytes as usize];
        self.copy(data.as_mut_ptr() as Block, block, bytes, stream).unwrap();
        self.synchronize(stream).unwrap();
        data
    }

    /// Every byte of the block is `value` once the stream's work is done.
    #[track_caller]
    pub fn holds(&self, block: Block, value: u8, bytes: u64, stream: Stream) {
        let data = self.read(block, bytes, stream);
        let wrong = data.iter().position(|&byte| byte != value);
        assert_eq!(wrong, None, "block {block:#x} of {bytes} bytes holds another value than {value}");
    }

    // ---- private pools ---------------------------------------------------------------------------------

    pub fn private_begin(&self, id: u64, stream: Stream) -> Outcome {
        outcome(unsafe { forebay_pool_private_begin(self.0, DEVICE, id, stream as *mut c_void) })
    }

    pub fn private_end(&self, id: u64) -> Outcome {
        outcome(unsafe { forebay_pool_private_end(self.0, DEVICE, id) })
    }

    pub fn private_release(&self, id: u64) -> Outcome {
        outcome(unsafe { forebay_pool_private_release(self.0, DEVICE, id) })
    }
}
