//! A fence: "all work that a stream had been given when it was recorded". Passed or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::gpu::{Gpu, capturing};
use crate::driver::process::is_forked;
use crate::driver::{Event, Result};
use crate::units::StreamHandle;

/// One event, shared by everything that waits for it, given back with the last.
#[derive(Debug)]
pub(crate) struct Fence {
    gpu: Arc<Gpu>,
    event: Event,
    /// Whether there was ever anything to pass.
    recorded: AtomicBool,
    /// The event is not ours any more.
    ended: AtomicBool,
}

impl Fence {
    /// A fence that nothing has to pass yet.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let event = gpu.event()?;
        Ok(Self { gpu: Arc::clone(gpu), event, recorded: AtomicBool::new(false), ended: AtomicBool::new(false) })
    }

    /// A fence behind all work that `stream` has now. pre: `stream` is alive, and not captured.
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

    /// A fence behind all work that any stream of the device has now.
    pub fn after_everything(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        if gpu.is_capturing() {
            return Err(capturing("event over the whole device", "a graph is being captured".into()));
        }
        let fence = Self::new(gpu)?;
        fence.record_behind_everything()?;
        Ok(Arc::new(fence))
    }

    /// Moves the fence behind all work that `stream` has now.
    pub fn record(&self, stream: StreamHandle) -> Result<()> {
        self.recorded.store(true, Ordering::Release);
        self.gpu.driver.event_record(self.gpu.device, self.event, stream)
    }

    /// Moves the fence behind all work that any stream of the device has now.
    pub fn record_behind_everything(&self) -> Result<()> {
        self.recorded.store(true, Ordering::Release);
        self.gpu.driver.event_record_all(self.gpu.device, self.event)
    }

    /// Whether the work is done. A driver that cannot tell counts as "not yet".
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

    /// Makes `stream` wait for the work; the host goes on.
    pub fn hold_back(&self, stream: StreamHandle) -> Result<()> {
        self.gpu.driver.stream_wait(self.gpu.device, stream, self.event)
    }

    /// Gives the event back. The fence is of no more use.
    pub fn end(&self) {
        // In a forked child the event is the parent's, and a lock of the driver's may be held for ever.
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
