//! A fence: an event behind all work that a stream had when it was recorded. Pending, or passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::gpu::{Gpu, capturing};
use crate::driver::process::is_forked;
use crate::driver::{Event, Result};
use crate::units::StreamHandle;

/// One event, shared by all that wait for it, given back with the last reference.
#[derive(Debug)]
pub(crate) struct Fence {
    gpu: Arc<Gpu>,
    event: Event,
    /// Whether it was ever recorded.
    recorded: AtomicBool,
    /// Whether the event was given back.
    ended: AtomicBool,
}

impl Fence {
    /// A fence that was not recorded yet, which counts as passed.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let event = gpu.event()?;
        Ok(Self { gpu: Arc::clone(gpu), event, recorded: AtomicBool::new(false), ended: AtomicBool::new(false) })
    }

    /// A fence behind all work that `stream` has now. pre: `stream` is alive and not captured.
    pub fn after(gpu: &Arc<Gpu>, stream: StreamHandle) -> Result<Arc<Self>> {
        let fence = Self::new(gpu)?;
        fence.record(stream)?;
        Ok(Arc::new(fence))
    }

    /// The same, unless the event could break a capture.
    pub fn after_uncaptured(gpu: &Arc<Gpu>, stream: StreamHandle) -> Result<Arc<Self>> {
        if gpu.may_be_captured(stream)? {
            let why = format!("no event can be recorded on stream {stream} during a capture");
            return Err(capturing("event record", why));
        }
        Self::after(gpu, stream)
    }

    /// A fence behind all work that the streams of the device have now.
    pub fn after_everything(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        if gpu.is_capturing() {
            return Err(capturing("event over the whole device", "a graph is being captured".into()));
        }
        let fence = Self::new(gpu)?;
        fence.record_behind_everything()?;
        Ok(Arc::new(fence))
    }

    /// Records the fence again, behind all work that `stream` has now.
    pub fn record(&self, stream: StreamHandle) -> Result<()> {
        self.recorded.store(true, Ordering::Release);
        self.gpu.driver.event_record(self.gpu.device, self.event, stream)
    }

    /// Records the fence again, behind all work that the streams of the device have now.
    pub fn record_behind_everything(&self) -> Result<()> {
        self.recorded.store(true, Ordering::Release);
        self.gpu.driver.event_record_all(self.gpu.device, self.event)
    }

    /// Whether the work is done; false if the driver cannot tell.
    pub fn passed(&self) -> bool {
        if !self.recorded.load(Ordering::Acquire) {
            return true;
        }
        self.gpu.driver.event_passed(self.gpu.device, self.event).unwrap_or(false)
    }

    /// Waits for the work on the host.
    pub fn wait(&self) -> Result<()> {
        self.gpu.driver.event_wait(self.gpu.device, self.event)
    }

    /// Makes `stream` wait for the work; the host does not wait.
    pub fn make_stream_wait(&self, stream: StreamHandle) -> Result<()> {
        self.gpu.driver.stream_wait(self.gpu.device, stream, self.event)
    }

    /// Gives the event back and ends the fence.
    pub fn end(&self) {
        // In a forked child the event is the parent's, and a lock of the driver may stay held.
        if !is_forked() && !self.ended.swap(true, Ordering::AcqRel) {
            self.gpu.give_back(self.event);
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.end();
    }
}
