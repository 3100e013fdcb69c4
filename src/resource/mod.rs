//! What a caller can ask for.
//!
//! ```text
//!   memory_resource  what every source of memory offers; the sources:
//!     pool_resource    Forebay's own pool of each device, and of pinned host memory
//!     driver_pool      the driver's stream-ordered pools: device, pinned, managed
//!     virtual_memory   buffers that grow
//!     host             page-locked and managed memory without streams
//!   stream_tracking  any of them, for callers that free on whatever stream is current
//!   buffer           a piece of memory from any of them, or from elsewhere
//!   ipc              how memory reaches another process of the same user: descriptors, the exchange, imports
//! ```

pub mod buffer;
pub mod driver_pool;
pub mod host;
pub mod ipc;
pub mod memory_resource;
pub mod pointers;
pub mod pool_resource;
pub mod stream_tracking;
pub mod virtual_memory;
