//! Plain segments, for devices without virtual memory: where each piece of the arena really is.
//!
//! The arena's offsets stay what they are; a segment gives a run of them an address of the driver's choosing.

use crate::units::{Address, GRAIN};

/// One `cuMemAlloc`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    at: Address,
    bytes: u64,
    /// First grain of the arena that it stands for.
    start: u64,
}

/// All segments of a device, by address.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_address: Vec<Segment>,
}

impl Segments {
    pub fn add(&mut self, at: Address, bytes: u64, start: u64) {
        let place = self.by_address.partition_point(|segment| segment.at < at);
        self.by_address.insert(place, Segment { at, bytes, start });
    }

    pub fn remove(&mut self, at: Address) {
        self.by_address.retain(|segment| segment.at != at);
    }

    /// The grain at an address.
    pub fn grain(&self, at: Address) -> Option<u64> {
        let place = self.by_address.partition_point(|segment| segment.at <= at);
        let segment = self.by_address.get(place.checked_sub(1)?)?;
        let offset = at.0 - segment.at.0;
        (offset < segment.bytes).then_some(segment.start + offset / GRAIN)
    }

    /// The address of a grain; the null address outside every segment.
    pub fn address(&self, start: u64) -> Address {
        let holds = |segment: &&Segment| start >= segment.start && start < segment.start + segment.bytes / GRAIN;
        self.by_address
            .iter()
            .find(holds)
            .map_or(Address(0), |segment| segment.at.plus((start - segment.start) * GRAIN))
    }
}
