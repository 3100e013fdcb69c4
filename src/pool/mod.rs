//! The pool of one process: the arena behind locks, with limits, lifetimes and the driver.
//!
//! ```text
//!   Pool            every device of one driver; which thread uses which stream
//!    └ Device       one device's pool, of one of two kinds
//!       ├ DevicePool     the arena behind its lock, the slow path, reclaim, `trim`
//!       │  └ Stream      one stream: its cache behind its own lock
//!       └ DriverOrdered  the driver's stream-ordered pool, where there is no virtual memory management
//! ```
//!
//! `shared` holds the pool that all frameworks of the process share.

mod bad_free;
mod block_info;
mod blocks;
mod cache;
mod captures;
mod device;
mod fallback;
mod graph;
mod limits;
mod options;
mod order;
#[expect(clippy::module_inception, reason = "the pool itself, beside its parts")]
mod pool;
mod report;
mod shared;
mod sharing;
mod streams;

pub use block_info::BlockInfo;
pub use cache::stream::TAGS;
pub use device::device_pool::DevicePool;
pub(crate) use device::free::FreeAfter;
pub use device::observer::{Mapping, Observer};
pub use device::pressure::Callback;
pub(crate) use device::state::Export;
pub use fallback::device::Device;
pub use graph::id::own_private_id;
pub use graph::routes::Filter;
pub use options::{Location, Options};
pub use pool::Pool;
pub use report::snapshot::{BlockState, SnapshotBlock};
pub use report::stats::{Stats, StreamStats};
pub use shared::{configure, existing, shared};
