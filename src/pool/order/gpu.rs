//! A device and its driver, for code that records events and waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::driver::{Capabilities, Capture, Driver, DriverError, ErrorKind, Event, Result};
use crate::units::{DeviceId, StreamHandle};

/// One device of one driver. Any thread.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub driver: Arc<dyn Driver>,
    pub device: DeviceId,
    pub capabilities: Capabilities,
    /// Active private pools: announced captures, and allocations in progress for unannounced ones.
    captures: AtomicUsize,
    /// Events for reuse; `None` once the pool has ended.
    spare: Mutex<Option<Vec<Event>>>,
}

/// The most events kept for reuse.
const MAX_SPARE: usize = 64;

impl Gpu {
    pub fn new(driver: Arc<dyn Driver>, device: DeviceId, capabilities: Capabilities) -> Arc<Self> {
        let (captures, spare) = (AtomicUsize::new(0), Mutex::new(Some(Vec::new())));
        Arc::new(Self { driver, device, capabilities, captures, spare })
    }

    // ---- captures ------------------------------------------------------------------------------------

    /// Until [`Gpu::capture_ends`] no device-wide event is recorded: it would break the capture.
    pub fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::Release);
    }

    pub fn capture_ends(&self) {
        self.captures.fetch_sub(1, Ordering::Release);
    }

    /// Whether a capture is active.
    pub fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) != 0
    }

    /// Whether an event on a living stream could break a capture or become part of one. The query of the legacy stream
    /// covers every stream that synchronises with it.
    pub fn may_be_captured(&self, stream: StreamHandle) -> Result<bool> {
        match self.driver.stream_capture(self.device, stream) {
            Err(error) if error.kind == ErrorKind::Capturing => Ok(true),
            answer => Ok(answer? != Capture::None),
        }
    }

    /// Whether a living stream has no work now; false if it is captured or the driver cannot tell.
    pub fn is_idle(&self, stream: StreamHandle) -> bool {
        self.may_be_captured(stream).is_ok_and(|captured| !captured)
            && self.driver.stream_idle(self.device, stream).unwrap_or(false)
    }

    // ---- events --------------------------------------------------------------------------------------

    /// An unused event. Creating one costs more than recording it, so events are reused; a stream that waits for an
    /// earlier record of one still waits for that record.
    pub fn event(&self) -> Result<Event> {
        let spare = self.spare.lock().as_mut().and_then(Vec::pop);
        spare.map_or_else(|| self.driver.event_create(self.device), Ok)
    }

    pub fn give_back(&self, event: Event) {
        if let Some(spare) = self.spare.lock().as_mut().filter(|spare| spare.len() < MAX_SPARE) {
            spare.push(event);
            return;
        }
        self.destroy(event);
    }

    /// Destroys the events kept for reuse, and from now on every event that is given back.
    pub fn end(&self) {
        let spare = self.spare.lock().take();
        spare.into_iter().flatten().for_each(|event| self.destroy(event));
    }

    fn destroy(&self, event: Event) {
        // Nothing retries later, so the call is tried twice.
        let destroy = || self.driver.event_destroy(self.device, event);
        if let Err(error) = destroy().or_else(|_| destroy()) {
            tracing::warn!(%error, "an event could not be destroyed");
        }
    }
}

/// The error of an event that a capture forbids.
pub(crate) fn capturing(what: &'static str, why: String) -> DriverError {
    DriverError::new(ErrorKind::Capturing, what, why)
}
