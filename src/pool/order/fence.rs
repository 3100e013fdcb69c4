//! A fence: "all work that a stream had been given when it was raised". Passed or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::driver::process::is_forked;
use crate::driver::{Driver, Event, Result};
use crate::units::{DeviceId, StreamHandle};

/// The events of one device's fences. Making one costs more than recording it, so those that nobody waits for any more
/// are recorded again: what was told to wait for one waits for what it stood for then.
#[derive(Debug)]
pub(crate) struct Events {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    /// `None` once the pool has ended.
    spare: Mutex<Option<Vec<Event>>>,
}

/// Events that are kept.
const SPARE: usize = 64;

impl Events {
    pub fn new(driver: &Arc<dyn Driver>, device: DeviceId) -> Arc<Self> {
        Arc::new(Self { driver: Arc::clone(driver), device, spare: Mutex::new(Some(Vec::new())) })
    }

    fn take(&self) -> Result<Event> {
        let spare = self.spare.lock().as_mut().and_then(Vec::pop);
        spare.map_or_else(|| self.driver.event_create(self.device), Ok)
    }

    fn give(&self, event: Event) {
        if let Some(spare) = self.spare.lock().as_mut().filter(|spare| spare.len() < SPARE) {
            spare.push(event);
            return;
        }
        self.destroy(event);
    }

    /// Destroys those that are kept, and from now on every one that comes back.
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

/// One event, shared by everything that waits for it, given back with the last.
#[derive(Debug)]
pub(crate) struct Fence {
    events: Arc<Events>,
    event: Event,
    /// Whether there was ever anything to pass.
    raised: AtomicBool,
    /// The event is not ours any more.
    ended: AtomicBool,
}

impl Fence {
    /// A fence that nothing has to pass yet.
    pub fn new(events: &Arc<Events>) -> Result<Self> {
        let event = events.take()?;
        let events = Arc::clone(events);
        Ok(Self { events, event, raised: AtomicBool::new(false), ended: AtomicBool::new(false) })
    }

    /// A fence for all work that `stream` has now. pre: `stream` is alive.
    pub fn after(events: &Arc<Events>, stream: StreamHandle) -> Result<Arc<Self>> {
        let fence = Self::new(events)?;
        fence.raise(stream)?;
        Ok(Arc::new(fence))
    }

    /// A fence for all work that any stream of the device has now.
    pub fn after_everything(events: &Arc<Events>) -> Result<Arc<Self>> {
        let fence = Self::new(events)?;
        fence.raise_behind_everything()?;
        Ok(Arc::new(fence))
    }

    /// Moves the fence behind all work that `stream` has now.
    pub fn raise(&self, stream: StreamHandle) -> Result<()> {
        self.raised.store(true, Ordering::Release);
        self.events.driver.event_record(self.events.device, self.event, stream)
    }

    /// Moves the fence behind all work that any stream of the device has now.
    pub fn raise_behind_everything(&self) -> Result<()> {
        self.raised.store(true, Ordering::Release);
        self.events.driver.event_record_all(self.events.device, self.event)
    }

    /// Whether the work is done. A driver that cannot tell counts as "not yet".
    pub fn passed(&self) -> bool {
        if !self.raised.load(Ordering::Acquire) {
            return true;
        }
        self.events.driver.event_passed(self.events.device, self.event).unwrap_or(false)
    }

    /// Waits for the work on the host.
    pub fn wait(&self) -> Result<()> {
        self.events.driver.event_wait(self.events.device, self.event)
    }

    /// Makes `stream` wait for the work; the host goes on.
    pub fn hold_back(&self, stream: StreamHandle) -> Result<()> {
        self.events.driver.stream_wait(self.events.device, stream, self.event)
    }

    /// Gives the event back. The fence is of no more use.
    pub fn end(&self) {
        // In a forked child the event is the parent's, and a lock of the driver's may be held for ever.
        if !is_forked() && !self.ended.swap(true, Ordering::AcqRel) {
            self.events.give(self.event);
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.end();
    }
}
