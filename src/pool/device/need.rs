//! A request on the slow path, and why it fails.

use std::sync::Arc;

use crate::arena::{IDLE, Owner};
use crate::driver::DriverError;
use crate::error::Error;
use crate::pool::cache::stream::Stream;
use crate::pool::streams::ordered_arena::OrderedArena;

/// A request that no cache could serve.
#[derive(Clone, Copy)]
pub(crate) struct Need<'a> {
    pub stream: &'a Arc<Stream>,
    /// The owner that gets the memory: the stream, a private pool's owner, or `IDLE` if the host may use it at once.
    pub owner: Owner,
    /// Whether only unowned memory fits: that of a private pool may later be used on any stream, and `IDLE` memory by
    /// the host.
    pub private: bool,
    pub granules: u64,
}

impl<'a> Need<'a> {
    pub fn of(stream: &'a Arc<Stream>, granules: u64) -> Self {
        Self { stream, owner: stream.owner, private: false, granules }
    }

    /// A request for memory whose every use is proven to be over.
    pub fn ready(stream: &'a Arc<Stream>, granules: u64) -> Self {
        Self { stream, owner: IDLE, private: true, granules }
    }

    /// The epoch of memory that is freed for this request; 0 for `IDLE`.
    pub fn epoch(&self, memory: &mut OrderedArena) -> u64 {
        if self.owner == IDLE { 0 } else { memory.epoch(self.stream.slot) }
    }
}

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum Shortage {
    /// Bytes by which the request exceeds the limit.
    Limit(u64),
    /// The driver's refusal.
    Device(DriverError),
    /// No free range of addresses is long enough.
    Addresses,
    /// The request is larger than the device's whole memory.
    Total,
}

/// Why a request fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A request for this many bytes found no memory.
    Memory(u64, Shortage),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::Other(error.into())
    }
}
