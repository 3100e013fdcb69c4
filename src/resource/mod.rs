//! What a caller can ask for.
//!
//! ```text
//!   memory_resource  what every source of memory offers; the sources:
//!     pool             Forebay's own pool of each device, and of pinned host memory (own_pool: as a resource)
//!     driver_pool      the driver's stream-ordered pools: device, pinned, managed
//!     virtual_memory   buffers that grow
//!     plain            page-locked and managed memory without streams
//!   ordered          any of them, for callers that free on whatever stream is current
//!   buffer           a piece of memory from any of them, or from elsewhere
//!   log              what is worth a word and is in nobody's answer: to stderr, and to the program
//!   sharing          how memory reaches another process of the same user: descriptors, the exchange, imports
//! ```

pub mod buffer;
pub mod driver_pool;
mod error;
pub mod log;
pub mod memory_resource;
pub mod ordered;
pub mod own_pool;
pub mod plain;
pub mod pointers;
pub mod pool;
pub mod sharing;
pub mod virtual_memory;

pub use error::{Error, Result};
pub use pool::{
    Account, BlockInfo, BlockState, Callback, DevicePool, Filter, Location, Mapping, Observer, Options, Pool, Stats,
    StreamStats, TAGS, configure, existing, own_private_id, shared,
};
