//! Forebay's own pool: the algorithm of `crate::pool` with locks, limits, lifetimes and the driver.
//!
//! ```text
//!   Pool            every device of one driver; which thread uses which stream
//!    └ DevicePool   one device: the arena behind its lock, the ladder (`room`), fences (`settle`), `trim`
//!       └ Stream    one stream: its front cache behind its own lock
//! ```
//!
//! `shared` holds the one pool of the process that every framework uses.

mod account;
mod allowance;
mod backing;
mod bare;
mod biased;
mod borrow;
mod captured;
mod device;
mod doors;
mod export;
mod fence;
mod growth;
mod handover;
mod hit;
mod inner;
mod limits;
mod options;
mod peak;
mod peers;
#[expect(clippy::module_inception, reason = "the pool itself, beside its parts")]
mod pool;
mod pressure;
mod private;
mod private_state;
mod quick;
mod relief;
mod report;
mod room;
mod rounds;
mod segments;
mod settle;
mod shared;
mod snapshot;
mod stats;
mod stream;
mod streams;
mod tidy;
mod times;
mod trim;

pub use account::Account;
pub use device::DevicePool;
pub(crate) use export::Export;
pub use options::{Location, Options};
pub use pool::Pool;
pub use pressure::Callback;
pub use private::{Filter, own_private_id};
pub use shared::{configure, existing, shared};
pub use snapshot::{BlockInfo, BlockState, Mapping, Observer};
pub use stats::{Stats, StreamStats};
pub use stream::TAGS;
