//! Memory for captures that nobody announced: of a framework that captures graphs and tells no allocator.
//!
//! Each capture gets a private pool of its own, known by the driver's number of the capture. What it frees is used again
//! by itself alone. Nobody tells when its graph is destroyed, so the memory stays with it until its user asks for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::private::{self, Private};
use crate::driver::Capture;
use crate::error::{Error, Result};
use crate::pool::cache::stream::Stream;
use crate::pool::device::DevicePool;
use crate::pool::pool::Pool;
use crate::units::{Address, StreamHandle};

impl Pool {
    /// As [`Pool::malloc`], and on a stream that is being captured without [`Pool::private_begin`] from a private pool that
    /// this capture has to itself, until [`Pool::release_captures`].
    ///
    /// # Errors
    /// As [`Pool::malloc`].
    #[inline]
    pub fn malloc_also_captured(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        match self.malloc(bytes, device, stream, tag) {
            Err(Error::Capturing(_)) => self.malloc_captured(bytes, device, stream, tag),
            result => result,
        }
    }

    #[cold]
    fn malloc_captured(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        let grains = self.grains(bytes, device)?;
        self.on_stream(device, stream, |home, stream, _| {
            Ok(home.asked(bytes, home.allocate_captured(stream, grains, tag)?))
        })
    }

    /// Gives the memory back that captures took which nobody had announced, once the device is done with it; what is
    /// still live there follows when it is freed. Their graphs must not run again. Returns how many captures that were.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn release_captures(&self, device: i32) -> Result<u64> {
        let Some(home) = self.device_if_used(device)? else { return Ok(0) };
        let ids: Vec<u128> =
            home.inner.lock().privates.keys().copied().filter(|&id| private::is_captured(id)).collect();
        for &id in &ids {
            home.private_release(id)?;
        }
        Ok(ids.len() as u64)
    }
}

impl DevicePool {
    fn allocate_captured(&self, stream: &Arc<Stream>, grains: u64, tag: u8) -> Result<Address> {
        let Capture::Active(number) = self.driver.stream_capture(self.device, stream.handle)? else {
            return self.allocate(stream, grains, tag, false);
        };
        let id = private::captured_id(number);
        // Never ended: what is freed here while other streams of the capture use it is not used again.
        self.inner.lock().privates.entry(id).or_insert_with(Private::never_ending);
        // While room is made, no event may be recorded that would break the capture.
        self.routing.fetch_add(1, Ordering::Release);
        let result = self.allocate_private(id, stream, grains, tag);
        self.routing.fetch_sub(1, Ordering::Release);
        result
    }
}
