//! Faults and counters: every driver call enters here first, and a test can make the n-th call fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::driver::{DriverError, ErrorKind, Result};

/// Declares the calls once: variant, place in [`Call::ALL`], and name in error messages.
macro_rules! calls {
    ($($call:ident = $name:literal,)*) => {
        /// The methods of [`Driver`](crate::driver::Driver) and the traits below it that call the driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is the trait's method of that name")]
        pub enum Call {
            $($call,)*
        }

        impl Call {
            /// Every call.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$call),*];

            /// The name in error messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$call => $name,)*
                }
            }
        }
    };
}

calls! {
    MemoryInfo = "host memory_info",
    Reserve = "host reserve",
    Unreserve = "host unreserve",
    Create = "host create",
    Release = "host release",
    Map = "host map",
    Grant = "host grant",
    Unmap = "host unmap",
    Allocate = "host allocate",
    Free = "host free",
    StreamCreate = "host stream_create",
    StreamDestroy = "host stream_destroy",
    StreamSynchronize = "host stream_synchronize",
    StreamIdle = "host stream_idle",
    StreamIdentity = "host stream_identity",
    StreamCapture = "host stream_capture",
    EventCreate = "host event_create",
    EventDestroy = "host event_destroy",
    EventRecord = "host event_record",
    EventRecordAll = "host event_record_all",
    EventPassed = "host event_passed",
    EventWait = "host event_wait",
    StreamWait = "host stream_wait",
    Synchronize = "host synchronize",
    Copy = "host copy",
    Fill = "host fill",
    TrimDriverPools = "host trim_driver_pools",
    DeviceUuid = "host device_uuid",
    FillPattern = "host fill_pattern",
    Granularity = "host granularity",
    ReserveAt = "host reserve_at",
    CreateWith = "host create_with",
    GrantAccess = "host grant_access",
    CanAccessPeer = "host can_access_peer",
    PoolDefault = "host pool_default",
    PoolCurrent = "host pool_current",
    PoolCreate = "host pool_create",
    PoolDestroy = "host pool_destroy",
    PoolAttribute = "host pool_attribute",
    PoolSetAttribute = "host pool_set_attribute",
    PoolAccess = "host pool_access",
    PoolSetAccess = "host pool_set_access",
    PoolTrim = "host pool_trim",
    PoolAllocate = "host pool_allocate",
    PoolFree = "host pool_free",
    PoolExportFd = "host pool_export_fd",
    PoolImportFd = "host pool_import_fd",
    PoolExportPointer = "host pool_export_pointer",
    PoolImportPointer = "host pool_import_pointer",
    HostAllocate = "host host_allocate",
    HostFree = "host host_free",
    HostRegister = "host host_register",
    HostUnregister = "host host_unregister",
    HostDeviceAddress = "host host_device_address",
    ManagedAllocate = "host managed_allocate",
    Pointer = "host pointer",
    ExportFd = "host export_fd",
    ImportFd = "host import_fd",
    ExportFabric = "host export_fabric",
    ImportFabric = "host import_fabric",
    IpcExport = "host ipc_export",
    IpcOpen = "host ipc_open",
    IpcClose = "host ipc_close",
}

impl Call {
    pub(super) fn invalid(self, detail: impl Into<String>) -> DriverError {
        DriverError::new(ErrorKind::Invalid, self.name(), detail)
    }

    pub(super) fn unsupported(self, detail: impl Into<String>) -> DriverError {
        DriverError::new(ErrorKind::Unsupported, self.name(), detail)
    }

    /// Whether the call allocates addresses or memory.
    const fn allocates(self) -> bool {
        use Call::{Allocate, Create, CreateWith, HostAllocate, ManagedAllocate, PoolAllocate, Reserve, ReserveAt};
        matches!(
            self,
            Reserve | ReserveAt | Create | CreateWith | Allocate | HostAllocate | ManagedAllocate | PoolAllocate
        )
    }

    /// The error of a failed system call. Only calls that allocate give [`ErrorKind::OutOfMemory`]: others fail for too
    /// many mappings, where freeing memory would not help.
    pub(super) fn failed(self, what: &str) -> DriverError {
        self.failed_with(what, &std::io::Error::last_os_error())
    }

    /// [`Call::failed`] with a given cause.
    pub(super) fn failed_with(self, what: &str, cause: &std::io::Error) -> DriverError {
        let code = cause.raw_os_error().unwrap_or(0);
        let (kind, hint) = match code {
            libc::ENOMEM if self.allocates() => (ErrorKind::OutOfMemory, "; is a limit on addresses too low?"),
            libc::ENOMEM => (ErrorKind::Failed, "; is vm.max_map_count too low for so many mappings?"),
            _ => (ErrorKind::Failed, ""),
        };
        DriverError { kind, call: self.name(), code, detail: format!("{what}: {cause}{hint}") }
    }
}

/// A planned fault.
struct Plan {
    call: Call,
    /// The number of the call that fails, counted over all calls of its kind.
    at: u64,
    kind: ErrorKind,
}

/// Counters of calls, and the faults planned for them.
pub(super) struct Faults {
    counts: [AtomicU64; Call::ALL.len()],
    plans: Mutex<Vec<Plan>>,
    /// Whether `plans` has any, so that most calls need no lock.
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

    /// Counts a call, and fails if a fault is planned for it.
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
