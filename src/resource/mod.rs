//! Memory resources, buffers, and sharing between processes.
//!
//! ```text
//!   memory_resource  the trait of every memory resource; implemented by:
//!     pool_resource    Forebay's own pool of each device, and of pinned host memory
//!     driver_pool      the driver's stream-ordered pools: device, pinned, managed
//!     virtual_memory   buffers that grow
//!     host             page-locked and managed memory without streams
//!   stream_tracking  adaptor for callers that free on another stream than the one of the allocation
//!   buffer           one allocation of a resource, or memory of another owner
//!   ipc              sharing with other processes of the same user: descriptors, the exchange, imports
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
