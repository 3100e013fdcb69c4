//! Counts for tests of leaks.

use super::HostDriver;
use super::blocks::Kind;

/// Everything allocated and not freed. Equal values before and after mean that nothing leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Reservations.
    pub reservations: u64,
    /// Mappings: one handle at two addresses counts twice.
    pub mappings: u64,
    /// Physical handles created and not released.
    pub handles: u64,
    /// Physical handles imported and not released.
    pub imported: u64,
    /// Bytes counted against the capacity, on all devices: handles held or mapped, plain allocations, and what
    /// pools hold, idle or not.
    pub bytes: u64,
    /// Bytes counted against the host's capacity: handles, pools, page-locked and managed memory.
    pub host_bytes: u64,
    /// Device allocations.
    pub allocations: u64,
    /// Page-locked allocations.
    pub host_allocations: u64,
    /// Registrations of the program's memory.
    pub registrations: u64,
    /// Managed allocations.
    pub managed: u64,
    /// Pools created or imported and not destroyed; the driver's own do not count.
    pub pools: u64,
    /// Allocations of pools, imported ones included, whose free has not run.
    pub pool_allocations: u64,
    /// Allocations of other processes that are open here.
    pub ipc_mappings: u64,
    /// Events.
    pub events: u64,
    /// Streams made by `stream_create`.
    pub streams: u64,
}

impl HostDriver {
    /// The present counts.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (events, streams) = {
            let streams = self.queues.lock();
            (streams.event_count(), streams.created_count())
        };
        let memory = self.memory.read();
        let (blocks, space) = (&memory.blocks, &memory.space);
        let (bytes, host_bytes) = memory.places.used();
        Usage {
            reservations: space.reservation_count(),
            mappings: space.mapping_count(),
            handles: space.held_count(false),
            imported: space.held_count(true),
            bytes,
            host_bytes,
            allocations: blocks.count(|kind| matches!(kind, Kind::Plain { .. })),
            host_allocations: blocks.count(|kind| matches!(kind, Kind::Pinned)),
            registrations: memory.registrations.count(),
            managed: blocks.count(|kind| matches!(kind, Kind::Managed)),
            pools: memory.pools.count(),
            pool_allocations: blocks.count(|kind| matches!(kind, Kind::Pooled { .. })),
            ipc_mappings: blocks.count(|kind| matches!(kind, Kind::Opened { .. })),
            events,
            streams,
        }
    }
}
