//! Copies and fills of buffers, in the order of a stream.

use std::sync::Arc;

use super::{Buffer, closed};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::resource::memory_resource::device_of_stream;
use crate::units::{DeviceId, StreamHandle};

impl Buffer {
    /// Queues a copy of all of `source` into this buffer on `stream`. Keep both open until the copy is done.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that differ, [`Error::Closed`], the driver's.
    pub fn copy_from(&self, source: &Self, stream: StreamHandle) -> Result<()> {
        let (to, from) = (self.open()?, source.open()?);
        if to.bytes != from.bytes {
            return Err(Error::invalid(format_args!(
                "the buffers have {} and {} bytes: only buffers of one size can be copied",
                from.bytes, to.bytes
            )));
        }
        if to.bytes > 0 {
            let (driver, context) = self.home_with(source)?;
            driver.copy(device_of_stream(driver.as_ref(), context, stream), to.at, from.at, to.bytes, stream)?;
        }
        Ok(())
    }

    /// Allocates a new buffer from the same resource and queues a copy into it, both on `stream`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer without a resource, the resource's, those of [`Buffer::copy_from`].
    pub fn copy(&self, stream: StreamHandle) -> Result<Self> {
        let resource = self.resource.as_ref().ok_or_else(|| {
            Error::invalid("the buffer has no memory resource that could allocate the copy: pass a destination")
        })?;
        let from = self.open()?;
        let copy = Self::allocate(resource, from.bytes, stream)?;
        copy.copy_from(self, stream)?;
        Ok(copy)
    }

    /// Queues a fill of the buffer on `stream` with the low `width` bytes of `value`, repeated.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a width other than 1, 2 or 4, a value that has more bytes, or a size that is no multiple
    /// of the width; [`Error::Closed`], the driver's.
    pub fn fill(&self, value: u32, width: u32, stream: StreamHandle) -> Result<()> {
        let memory = self.memory.lock().clone().ok_or_else(closed)?;
        if !matches!(width, 1 | 2 | 4) {
            return Err(Error::invalid(format_args!("a pattern of {width} bytes: 1, 2 and 4 are possible")));
        }
        if u64::from(value) >> (8 * width) != 0 {
            return Err(Error::invalid(format_args!("{value:#x} has more than the pattern's {width} bytes")));
        }
        if !memory.bytes.is_multiple_of(width.into()) || !memory.at.0.is_multiple_of(width.into()) {
            return Err(Error::invalid(format_args!(
                "{} bytes at {} cannot be filled by patterns of {width} bytes",
                memory.bytes, memory.at
            )));
        }
        let (driver, context) = self.home()?;
        let context = device_of_stream(driver.as_ref(), context, stream);
        match (memory.bytes, width) {
            (0, _) => {}
            (bytes, 1) => driver.fill(context, memory.at, value.to_le_bytes()[0], bytes, stream)?,
            (bytes, _) => driver.fill_pattern(context, memory.at, value, width, bytes, stream)?,
        }
        Ok(())
    }

    /// The driver, and the device whose default stream copies between two buffers. Host memory has no device of its
    /// own.
    fn home_with(&self, other: &Self) -> Result<(&Arc<dyn Driver>, DeviceId)> {
        let (driver, context) = self.home()?;
        // Not where the memory lies: managed memory may lie by preference on another device than its resource's.
        let is_of_device = |buffer: &Self| buffer.facts.lock().reach.device.is_some();
        if !is_of_device(self) && is_of_device(other) {
            return Ok((driver, other.home()?.1));
        }
        Ok((driver, context))
    }
}
