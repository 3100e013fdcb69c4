//! The C functions that a replay needs, behind a type that gives everything back.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use forebay::abi::core::handle::ForebayPool;
use forebay::abi::core::status::{ForebayStatus, forebay_last_error_message};
use forebay::abi::pool::create::{
    ForebayPoolOptions, forebay_pool_create, forebay_pool_destroy, forebay_pool_driver_name, forebay_pool_options_init,
};
use forebay::abi::pool::memory::{forebay_pool_free, forebay_pool_malloc};
use forebay::abi::pool::stats::{FOREBAY_STATS_VERSION, ForebayPoolStats, forebay_pool_check, forebay_pool_get_stats};
use forebay::abi::pool::streams::{forebay_pool_fill, forebay_stream_create, forebay_stream_destroy};
use forebay::driver::{Choice, Driver};

pub type Pointer = *mut c_void;

const DEVICE: i32 = 0;

/// A pool of its own with its streams. On failure every call answers with the library's own words.
pub struct Pool {
    pool: *mut ForebayPool,
    created: Vec<Pointer>,
    /// The one under the pool, where its time is not the machine's.
    clock: Option<Arc<dyn Driver>>,
}

fn done(status: ForebayStatus) -> Result<(), String> {
    if status == ForebayStatus::Ok {
        return Ok(());
    }
    // SAFETY: a C string, valid until this thread's next failing call.
    let text = unsafe { CStr::from_ptr(forebay_last_error_message()) };
    Err(text.to_string_lossy().into_owned())
}

impl Pool {
    pub fn new(limit: Option<u64>) -> Result<Self, String> {
        let mut options = std::mem::MaybeUninit::<ForebayPoolOptions>::uninit();
        // SAFETY: the output may be written.
        done(unsafe { forebay_pool_options_init(options.as_mut_ptr()) })?;
        // SAFETY: written, since the call succeeded.
        let mut options = unsafe { options.assume_init() };
        options.limit = limit.unwrap_or(options.limit);
        let mut pool = ptr::null_mut();
        // SAFETY: the options are filled and the output may be written.
        done(unsafe { forebay_pool_create(&raw const options, &raw mut pool) })?;
        let mut made = Self { pool, created: Vec::new(), clock: None };
        if made.driver() == "host" {
            // All pools of a process share it.
            made.clock = Some(forebay::driver::open(Choice::Host).map_err(|error| error.to_string())?);
        }
        Ok(made)
    }

    pub fn driver(&self) -> &'static str {
        // SAFETY: the pool lives; the name is static and ASCII.
        let name = unsafe { CStr::from_ptr(forebay_pool_driver_name(self.pool)) };
        name.to_str().unwrap_or_default()
    }

    /// A stream for a number of the trace: the default stream for 0, else a new one, which lives as long as the pool.
    pub fn stream(&mut self, number: u64) -> Result<Pointer, String> {
        let mut stream = ptr::null_mut();
        if number != 0 {
            // SAFETY: the pool lives and the output may be written.
            done(unsafe { forebay_stream_create(self.pool, DEVICE, &raw mut stream) })?;
            self.created.push(stream);
        }
        Ok(stream)
    }

    #[inline]
    pub fn malloc(&self, bytes: u64, stream: Pointer) -> Result<Pointer, String> {
        let mut out = ptr::null_mut();
        // SAFETY: pool and stream live, the output may be written.
        let status = unsafe { forebay_pool_malloc(self.pool, bytes, DEVICE, stream, &raw mut out) };
        if status == ForebayStatus::Ok { Ok(out) } else { done(status).map(|()| out) }
    }

    #[inline]
    pub fn free(&self, block: Pointer, stream: Pointer) -> Result<(), String> {
        // SAFETY: pool and stream live.
        let status = unsafe { forebay_pool_free(self.pool, block, stream) };
        if status == ForebayStatus::Ok { Ok(()) } else { done(status) }
    }

    /// Queues work with a block: sets its first byte. NULL, what a request for nothing gets, is left alone.
    pub fn touch(&self, block: Pointer, stream: Pointer) -> Result<(), String> {
        // SAFETY: pool and stream live, and so does the block; its memory is another's only behind what is queued here.
        done(unsafe { forebay_pool_fill(self.pool, DEVICE, block, 1, u64::from(!block.is_null()), stream) })
    }

    /// Lets time pass, as the traced program's own work did.
    pub fn pass(&self, time: Duration) {
        if let Some(driver) = &self.clock {
            driver.pass(time);
        }
    }

    pub fn stats(&self) -> Result<ForebayPoolStats, String> {
        // SAFETY: a struct of integers, for which zeros are a value.
        let mut stats: ForebayPoolStats = unsafe { std::mem::zeroed() };
        (stats.size, stats.version) = (size_of::<ForebayPoolStats>() as u32, FOREBAY_STATS_VERSION);
        // SAFETY: the pool lives and the output is the struct that it says it is.
        done(unsafe { forebay_pool_get_stats(self.pool, DEVICE, &raw mut stats) })?;
        Ok(stats)
    }

    /// Whether every equation of the pool holds.
    pub fn check(&self) -> Result<(), String> {
        // SAFETY: the pool lives.
        done(unsafe { forebay_pool_check(self.pool, DEVICE) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for &stream in &self.created {
            // SAFETY: made by this pool, and not used after this.
            if let Err(text) = done(unsafe { forebay_stream_destroy(self.pool, DEVICE, stream) }) {
                eprintln!("replay: a stream could not be destroyed: {text}");
            }
        }
        // SAFETY: made by forebay_pool_create, and not used after this.
        unsafe { forebay_pool_destroy(self.pool) };
    }
}
