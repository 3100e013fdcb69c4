//! The memory of a buffer, freed with its last reference.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::driver::{Driver, process};
use crate::error::Result;
use crate::resource::ipc::Imported;
use crate::resource::memory_resource::{MemoryResource, device_of_stream};
use crate::units::{Address, DeviceId, StreamHandle};

/// The owner of a buffer's memory: a function that is called once when the memory is released, with no lock held. It is
/// not called if no buffer took the owner.
pub struct Owner(Box<dyn FnOnce() + Send + Sync>);

impl Owner {
    /// An owner that is released by a call of `release`.
    #[must_use]
    pub fn new(release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Box::new(release))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// The owner to which the memory goes back.
#[derive(Debug)]
pub(super) enum Hold {
    Resource(Arc<dyn MemoryResource>),
    /// Taken when it is released.
    Owner(Option<Owner>),
    /// Physical memory of another process.
    Imported(Imported, Home),
    /// An allocation of another process, opened by a legacy handle at this address.
    Opened(Address, Home),
    Unowned,
}

/// The driver and the device whose work must be finished before imported memory is unmapped.
#[derive(Debug)]
pub(super) struct Home {
    pub driver: Arc<dyn Driver>,
    pub context: DeviceId,
}

impl Home {
    /// Waits, since unmapping does not wait for queued work that uses the memory.
    fn wait(&self, stream: StreamHandle, lent: bool) -> Result<()> {
        if lent {
            self.driver.synchronize(self.context)?;
        } else {
            self.driver.stream_synchronize(device_of_stream(self.driver.as_ref(), self.context, stream), stream)?;
        }
        Ok(())
    }
}

/// Memory that is live.
#[derive(Debug)]
pub(super) struct Memory {
    pub at: Address,
    pub bytes: u64,
    hold: Hold,
    stream: AtomicU64,
    /// Whether it was exported as a tensor: the streams that used it are then unknown, and its own may be destroyed at
    /// the end.
    lent: AtomicBool,
    ended: bool,
}

impl Memory {
    pub fn new(at: Address, bytes: u64, hold: Hold, stream: StreamHandle) -> Self {
        Self { at, bytes, hold, stream: AtomicU64::new(stream.0), lent: AtomicBool::new(false), ended: false }
    }

    pub fn stream(&self) -> StreamHandle {
        StreamHandle(self.stream.load(Ordering::Relaxed))
    }

    pub fn set_stream(&self, stream: StreamHandle) {
        self.stream.store(stream.0, Ordering::Relaxed);
    }

    pub fn mark_lent(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    pub fn moved(&mut self, at: Address, bytes: u64) {
        (self.at, self.bytes) = (at, bytes);
    }

    /// Frees it. After an error it is as before, and the call can be repeated.
    pub fn end(&mut self) -> Result<()> {
        self.give_back().inspect_err(|_| self.ended = false)
    }

    /// Frees it without waiting, and returns whether it did.
    pub fn try_end(&mut self) -> bool {
        let Hold::Resource(resource) = &self.hold else { return false };
        self.ended = !*self.lent.get_mut() && resource.try_deallocate(self.at, self.stream());
        self.ended
    }

    fn give_back(&mut self) -> Result<()> {
        self.ended = true;
        let lent = *self.lent.get_mut();
        match &self.hold {
            Hold::Resource(resource) if lent => resource.deallocate_after_all(self.at, self.bytes)?,
            Hold::Resource(resource) => resource.deallocate(self.at, self.bytes, self.stream())?,
            Hold::Imported(imported, home) => {
                home.wait(self.stream(), lent)?;
                imported.close()?;
            }
            Hold::Opened(base, home) => {
                home.wait(self.stream(), lent)?;
                home.driver.ipc_close(home.context, *base)?;
            }
            Hold::Owner(_) | Hold::Unowned => {}
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        // Nothing retries this later, so it is tried twice.
        if !self.ended
            && let Err(error) = self.give_back().or_else(|_| self.give_back())
        {
            tracing::warn!(address = %self.at, bytes = self.bytes, %error, "a buffer's memory could not be freed and leaks");
        }
        if let Hold::Owner(owner) = &mut self.hold
            && let Some(Owner(release)) = owner.take()
        {
            release();
        }
    }
}
