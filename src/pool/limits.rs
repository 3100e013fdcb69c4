//! Limits, trimming and pressure callbacks.

use super::device::pressure::Callback;
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::units::DeviceId;

impl Pool {
    /// Gives free memory back to the driver until at most `keep` bytes are held. Returns the bytes given back.
    ///
    /// # Errors
    /// The driver's, if it refused.
    pub fn trim(&self, device: i32, keep: u64) -> Result<u64> {
        self.device(device)?.trim(keep)
    }

    /// Trims every device that was used.
    pub fn trim_all(&self) {
        for device in self.opened() {
            if let Err(error) = device.trim(0) {
                tracing::warn!(device = %device.device(), %error, "trimming failed");
            }
        }
    }

    /// Sets the most bytes that the pool may hold on a device; 0 for no limit. Memory above it stays until a trim.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set_limit(&self, device: i32, bytes: u64) -> Result<()> {
        self.device(device)?.set_limit(bytes, 0.0);
        Ok(())
    }

    /// The same as a share of the device's memory, above 0 and up to 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside that range.
    pub fn set_fraction(&self, device: i32, fraction: f64) -> Result<()> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Error::invalid(format_args!("fraction is {fraction}; it takes a number above 0, up to 1")));
        }
        self.device(device)?.set_limit(0, fraction);
        Ok(())
    }

    /// The limit in bytes; 0 for none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn limit(&self, device: i32) -> Result<u64> {
        let limit = self.device(device)?.limit();
        Ok(if limit == u64::MAX { 0 } else { limit })
    }

    /// Adds a callback that is asked for memory before a request fails. Returns its id.
    pub fn add_pressure_callback(&self, callback: Callback) -> u64 {
        self.pressure.add(callback)
    }

    /// Removes a callback. A call on another thread may still be running.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown id.
    pub fn remove_pressure_callback(&self, id: u64) -> Result<()> {
        if self.pressure.remove(id) {
            return Ok(());
        }
        Err(Error::NotFound(
            format!("there is no pressure callback {id}: it was never added, or removed before").into(),
        ))
    }

    /// Gets memory for another consumer on the same device: trims this pool and calls its callbacks. Returns whether
    /// that gave any.
    pub(crate) fn relieve(&self, device: DeviceId, bytes: u64) -> bool {
        let trimmed = self.trim_spare(device) > 0;
        self.pressure.call(device, bytes) | trimmed
    }
}
