//! A device and its driver, as all that records and awaits events needs them.

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
    /// Private pools that take allocations now: captures that were announced, or that an allocation is made for at this moment.
    captures: AtomicUsize,
    /// Events that nobody waits for any more; `None` once the pool has ended.
    spare: Mutex<Option<Vec<Event>>>,
}

/// Events that are kept.
const SPARE: usize = 64;

impl Gpu {
    pub fn new(driver: Arc<dyn Driver>, device: DeviceId, capabilities: Capabilities) -> Arc<Self> {
        let (captures, spare) = (AtomicUsize::new(0), Mutex::new(Some(Vec::new())));
        Arc::new(Self { driver, device, capabilities, captures, spare })
    }

    // ---- captures ------------------------------------------------------------------------------------

    /// Until [`Gpu::capture_ends`], no event over the whole device is recorded: it would break the capture.
    pub fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::Release);
    }

    pub fn capture_ends(&self) {
        self.captures.fetch_sub(1, Ordering::Release);
    }

    /// Whether any capture has begun.
    pub fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) != 0
    }

    /// Whether an event on a living stream could break a capture, or become a part of one. The legacy stream answers for every
    /// stream that synchronises with it.
    pub fn may_be_captured(&self, stream: StreamHandle) -> Result<bool> {
        match self.driver.stream_capture(self.device, stream) {
            Err(error) if error.kind == ErrorKind::Capturing => Ok(true),
            answer => Ok(answer? != Capture::None),
        }
    }

    /// Whether a living stream has nothing to do now. A driver that cannot tell counts as "no", and so does a capture.
    pub fn is_idle(&self, stream: StreamHandle) -> bool {
        self.may_be_captured(stream).is_ok_and(|captured| !captured)
            && self.driver.stream_idle(self.device, stream).unwrap_or(false)
    }

    // ---- events --------------------------------------------------------------------------------------

    /// An event of the caller's own. Making one costs more than recording it, so those that come back are used again: what was
    /// told to wait for one waits for what it stood for then.
    pub fn event(&self) -> Result<Event> {
        let spare = self.spare.lock().as_mut().and_then(Vec::pop);
        spare.map_or_else(|| self.driver.event_create(self.device), Ok)
    }

    pub fn give_back(&self, event: Event) {
        if let Some(spare) = self.spare.lock().as_mut().filter(|spare| spare.len() < SPARE) {
            spare.push(event);
            return;
        }
        self.destroy(event);
    }

    /// Destroys the events that are kept, and from now on every one that comes back.
    pub fn end(&self) {
        let spare = self.spare.lock().take();
        spare.into_iter().flatten().for_each(|event| self.destroy(event));
    }

    fn destroy(&self, event: Event) {
        // Nobody comes back for it, so it gets a second chance.
        let destroy = || self.driver.event_destroy(self.device, event);
        if let Err(error) = destroy().or_else(|_| destroy()) {
            tracing::warn!(%error, "an event could not be destroyed");
        }
    }
}

/// No event can be recorded there while it is part of a capture.
pub(crate) fn capturing(what: &'static str, why: String) -> DriverError {
    DriverError::new(ErrorKind::Capturing, what, why)
}
