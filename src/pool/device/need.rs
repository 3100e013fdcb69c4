//! Who asks for memory, and why there is none.

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
    /// In whose order: the stream's, a private pool's, or nobody's for memory that the host may touch at once.
    pub owner: Owner,
    /// A private pool's memory may later be used on any stream, nobody's by the host: only proven idle memory will do.
    pub private: bool,
    pub granules: u64,
}

impl<'a> Need<'a> {
    pub fn of(stream: &'a Arc<Stream>, granules: u64) -> Self {
        Self { stream, owner: stream.owner, private: false, granules }
    }

    /// For memory whose every use is proven to be over.
    pub fn ready(stream: &'a Arc<Stream>, granules: u64) -> Self {
        Self { stream, owner: IDLE, private: true, granules }
    }

    /// The epoch of memory that becomes free for it; nobody's memory has none.
    pub fn epoch(&self, memory: &mut OrderedArena) -> u64 {
        if self.owner == IDLE { 0 } else { memory.epoch(self.stream.slot) }
    }
}

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum Shortage {
    /// So many more bytes than the limit allows.
    Limit(u64),
    /// The driver had no more memory.
    Device(DriverError),
    /// No run of addresses is that long.
    Addresses,
    /// There is not so much in all.
    Total,
}

/// Why a request fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// For want of so many bytes.
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
