//! A fence: "all work that a stream had been given when it was raised". Passed or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::process::is_forked;
use crate::driver::{Driver, Event, Result};
use crate::units::{DeviceId, StreamHandle};

/// One event, shared by everything that waits for it, destroyed with the last.
#[derive(Debug)]
pub(super) struct Fence {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    event: Event,
    /// Whether there was ever anything to pass.
    raised: AtomicBool,
    /// The event is destroyed.
    ended: AtomicBool,
}

impl Fence {
    /// A fence that nothing has to pass yet.
    pub fn new(driver: &Arc<dyn Driver>, device: DeviceId) -> Result<Self> {
        let event = driver.event_create(device)?;
        Ok(Self {
            driver: Arc::clone(driver),
            device,
            event,
            raised: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// A fence for all work that `stream` has now. pre: `stream` is alive.
    pub fn after(driver: &Arc<dyn Driver>, device: DeviceId, stream: StreamHandle) -> Result<Arc<Self>> {
        let fence = Self::new(driver, device)?;
        fence.raise(stream)?;
        Ok(Arc::new(fence))
    }

    /// A fence for all work that any stream of the device has now.
    pub fn after_everything(driver: &Arc<dyn Driver>, device: DeviceId) -> Result<Arc<Self>> {
        let fence = Self::new(driver, device)?;
        fence.raised.store(true, Ordering::Release);
        driver.event_record_all(device, fence.event)?;
        Ok(Arc::new(fence))
    }

    /// Moves the fence behind all work that `stream` has now.
    pub fn raise(&self, stream: StreamHandle) -> Result<()> {
        self.raised.store(true, Ordering::Release);
        self.driver.event_record(self.device, self.event, stream)
    }

    /// Whether the work is done. A driver that cannot tell counts as "not yet".
    pub fn passed(&self) -> bool {
        if !self.raised.load(Ordering::Acquire) {
            return true;
        }
        self.driver.event_passed(self.device, self.event).unwrap_or(false)
    }

    /// Waits for the work on the host.
    pub fn wait(&self) -> Result<()> {
        self.driver.event_wait(self.device, self.event)
    }

    /// Makes `stream` wait for the work; the host goes on.
    pub fn hold_back(&self, stream: StreamHandle) -> Result<()> {
        self.driver.stream_wait(self.device, stream, self.event)
    }

    /// Destroys the event. The fence is of no more use.
    pub fn end(&self) {
        // In a forked child the event is the parent's, and a lock of the driver's may be held for ever.
        if is_forked() || self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        // Nobody comes back for it, so it gets a second chance.
        let destroy = || self.driver.event_destroy(self.device, self.event);
        if let Err(error) = destroy().or_else(|_| destroy()) {
            tracing::warn!(%error, "an event could not be destroyed");
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.end();
    }
}
