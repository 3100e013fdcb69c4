//! What a caller can ask for.
//!
//! ```text
//!   pool             Forebay's own pool of each device, and of pinned host memory: the shared one and others
//!   sharing          how memory reaches another process of the same user: descriptors, the exchange, imports
//! ```

mod error;
pub mod pool;
pub mod sharing;

pub use error::{Error, Result};
pub use pool::{
    Callback, DevicePool, Filter, Options, Pool, Stats, StreamStats, TAGS, configure, existing, own_private_id, shared,
};
