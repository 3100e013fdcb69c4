//! Forebay's own pool of one process: the arena behind locks, with limits, lifetimes and the driver.
//!
//! ```text
//!   Pool            every device of one driver; which thread uses which stream
//!    └ DevicePool   one device: the arena behind its lock, the slow path, reclaim, `trim`
//!       └ Stream    one stream: its cache behind its own lock
//! ```
//!
//! `shared` holds the one pool of the process that every framework uses.

mod block_info;
mod cache;
mod device;
mod graph;
mod limits;
mod options;
mod order;
#[expect(clippy::module_inception, reason = "the pool itself, beside its parts")]
mod pool;
mod report;
mod shared;
mod streams;

pub use block_info::Account;
pub use cache::stream::TAGS;
pub use device::DevicePool;
pub(crate) use device::export::Export;
pub use device::pressure::Callback;
pub use graph::private::{Filter, own_private_id};
pub use options::{Location, Options};
pub use pool::Pool;
pub use report::snapshot::{BlockInfo, BlockState, Mapping, Observer};
pub use report::stats::{Stats, StreamStats};
pub use shared::{configure, existing, shared};
