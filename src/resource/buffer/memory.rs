//! The memory of a buffer: whoever drops the last reference gives it back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Driver, process};
use crate::resource::Result;
use crate::resource::memory_resource::MemoryResource;
use crate::resource::sharing::Imported;
use crate::units::{Address, DeviceId, StreamHandle};

/// Told once, when the memory of a buffer that it lent is given back. Called without any lock held. An owner that no buffer
/// took over is not told anything.
pub struct Owner(Box<dyn FnOnce() + Send + Sync>);

impl Owner {
    /// An owner that is told by a call of `release`.
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

/// Who gets the memory back.
#[derive(Debug)]
pub(super) enum Hold {
    Resource(Arc<dyn MemoryResource>),
    /// Taken when told.
    Owner(Option<Owner>),
    /// Another process's physical memory.
    Imported(Imported),
    /// Another process's plain allocation, opened at this address.
    Opened(Address),
    Nobody,
}

/// Memory that is live.
#[derive(Debug)]
pub(super) struct Memory {
    driver: Arc<dyn Driver>,
    context: DeviceId,
    pub at: Address,
    pub bytes: u64,
    hold: Hold,
    stream: AtomicU64,
    ended: bool,
}

impl Memory {
    pub fn new(
        driver: &Arc<dyn Driver>,
        context: DeviceId,
        at: Address,
        bytes: u64,
        hold: Hold,
        stream: StreamHandle,
    ) -> Self {
        let stream = AtomicU64::new(stream.0);
        Self { driver: Arc::clone(driver), context, at, bytes, hold, stream, ended: false }
    }

    pub fn stream(&self) -> StreamHandle {
        StreamHandle(self.stream.load(Ordering::Relaxed))
    }

    pub fn set_stream(&self, stream: StreamHandle) {
        self.stream.store(stream.0, Ordering::Relaxed);
    }

    pub fn moved(&mut self, at: Address, bytes: u64) {
        (self.at, self.bytes) = (at, bytes);
    }

    /// Gives it back; on an error, to be tried again, it is as before.
    pub fn end(mut self) -> std::result::Result<(), (Self, crate::resource::Error)> {
        match self.give_back() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.ended = false;
                Err((self, error))
            }
        }
    }

    fn give_back(&mut self) -> Result<()> {
        self.ended = true;
        let stream = self.stream();
        match &self.hold {
            Hold::Resource(resource) => resource.deallocate(self.at, self.bytes, stream)?,
            Hold::Imported(imported) => {
                // Unmapping takes the memory away from what is queued.
                self.driver.stream_synchronize(self.context, stream)?;
                imported.close()?;
            }
            Hold::Opened(base) => {
                self.driver.stream_synchronize(self.context, stream)?;
                self.driver.ipc_close(self.context, *base)?;
            }
            Hold::Owner(_) | Hold::Nobody => {}
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        // Nobody comes again, so it gets a second chance.
        if !self.ended
            && let Err(error) = self.give_back().or_else(|_| self.give_back())
        {
            tracing::warn!(address = %self.at, bytes = self.bytes, %error, "a buffer's memory could not be given back");
        }
        if let Hold::Owner(owner) = &mut self.hold
            && let Some(Owner(release)) = owner.take()
        {
            release();
        }
    }
}
