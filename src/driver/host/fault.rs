//! Faults and counters: every driver call passes here first, and a test can make the n-th one fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::driver::{DriverError, ErrorKind, Result};

/// The methods of [`Driver`](crate::driver::Driver) that call the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the trait's method of that name")]
pub enum Call {
    MemoryInfo,
    Reserve,
    Unreserve,
    Create,
    Release,
    Map,
    Grant,
    Unmap,
    Allocate,
    Free,
    StreamCreate,
    StreamDestroy,
    StreamSynchronize,
    StreamIdentity,
    StreamCapture,
    EventCreate,
    EventDestroy,
    EventRecord,
    EventRecordAll,
    EventPassed,
    EventWait,
    StreamWait,
    Synchronize,
    Copy,
    Fill,
    TrimDriverPools,
}

impl Call {
    /// Every call.
    pub const ALL: [Self; 26] = [
        Self::MemoryInfo,
        Self::Reserve,
        Self::Unreserve,
        Self::Create,
        Self::Release,
        Self::Map,
        Self::Grant,
        Self::Unmap,
        Self::Allocate,
        Self::Free,
        Self::StreamCreate,
        Self::StreamDestroy,
        Self::StreamSynchronize,
        Self::StreamIdentity,
        Self::StreamCapture,
        Self::EventCreate,
        Self::EventDestroy,
        Self::EventRecord,
        Self::EventRecordAll,
        Self::EventPassed,
        Self::EventWait,
        Self::StreamWait,
        Self::Synchronize,
        Self::Copy,
        Self::Fill,
        Self::TrimDriverPools,
    ];

    /// The name in error messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryInfo => "host memory_info",
            Self::Reserve => "host reserve",
            Self::Unreserve => "host unreserve",
            Self::Create => "host create",
            Self::Release => "host release",
            Self::Map => "host map",
            Self::Grant => "host grant",
            Self::Unmap => "host unmap",
            Self::Allocate => "host allocate",
            Self::Free => "host free",
            Self::StreamCreate => "host stream_create",
            Self::StreamDestroy => "host stream_destroy",
            Self::StreamSynchronize => "host stream_synchronize",
            Self::StreamIdentity => "host stream_identity",
            Self::StreamCapture => "host stream_capture",
            Self::EventCreate => "host event_create",
            Self::EventDestroy => "host event_destroy",
            Self::EventRecord => "host event_record",
            Self::EventRecordAll => "host event_record_all",
            Self::EventPassed => "host event_passed",
            Self::EventWait => "host event_wait",
            Self::StreamWait => "host stream_wait",
            Self::Synchronize => "host synchronize",
            Self::Copy => "host copy",
            Self::Fill => "host fill",
            Self::TrimDriverPools => "host trim_driver_pools",
        }
    }

    pub(super) fn invalid(self, detail: impl Into<String>) -> DriverError {
        DriverError::new(ErrorKind::Invalid, self.name(), detail)
    }

    /// The error of a failed system call. Too many mappings are not a device without memory: giving back
    /// some would not help, so only calls that ask for room answer [`ErrorKind::OutOfMemory`].
    pub(super) fn failed(self, what: &str) -> DriverError {
        let cause = std::io::Error::last_os_error();
        let code = cause.raw_os_error().unwrap_or(0);
        let (kind, hint) = match (code, self) {
            (libc::ENOMEM, Self::Reserve | Self::Create | Self::Allocate) => {
                (ErrorKind::OutOfMemory, "; is a limit on addresses too low?")
            }
            (libc::ENOMEM, _) => (ErrorKind::Failed, "; is vm.max_map_count too low for so many mappings?"),
            _ => (ErrorKind::Failed, ""),
        };
        DriverError { kind, call: self.name(), code, detail: format!("{what}: {cause}{hint}") }
    }
}

/// A fault that waits for its call.
struct Plan {
    call: Call,
    /// Fails when this many calls of the kind have been made, it included.
    at: u64,
    kind: ErrorKind,
}

/// Counters of calls, and the faults planned for them.
pub(super) struct Faults {
    counts: [AtomicU64; Call::ALL.len()],
    plans: Mutex<Vec<Plan>>,
    /// Whether `plans` has any: what most calls look at instead of the lock.
    armed: AtomicBool,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            plans: Mutex::new(Vec::new()),
            armed: AtomicBool::new(false),
        }
    }

    /// Counts a call; fails where a fault is due.
    pub(super) fn enter(&self, call: Call) -> Result<()> {
        let number = self.counts[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut plans = self.plans.lock();
        let Some(index) = plans.iter().position(|plan| plan.call == call && plan.at == number) else {
            return Ok(());
        };
        let plan = plans.swap_remove(index);
        self.armed.store(!plans.is_empty(), Ordering::Release);
        Err(DriverError::new(plan.kind, call.name(), format!("a planned fault, call number {number}")))
    }

    pub(super) fn plan(&self, call: Call, nth: u64, kind: ErrorKind) {
        let mut plans = self.plans.lock();
        plans.push(Plan { call, at: self.calls(call) + nth.max(1), kind });
        self.armed.store(true, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.plans.lock().clear();
        self.armed.store(false, Ordering::Release);
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_stands_at_its_own_place() {
        for (index, call) in Call::ALL.iter().enumerate() {
            assert_eq!(*call as usize, index, "{call:?}");
        }
    }
}
