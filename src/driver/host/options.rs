//! Options of a host driver, and their environment variables.

use crate::driver::{DriverError, ErrorKind, Result};
use crate::units::Human;

const CAPACITY: &str = "FOREBAY_HOST_CAPACITY";
const DEVICES: &str = "FOREBAY_HOST_DEVICES";
const LATE: &str = "FOREBAY_HOST_LATE";

/// A pool reserves 16 times as many addresses, and a process has 128 TiB.
const MOST_CAPACITY: u64 = 4 << 40;

/// Access is one bit for each device.
const MOST_DEVICES: u32 = 64;

/// When queued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// At once, or as soon as the work that it waits for is done.
    Immediate,
    /// When stepped, or when the host waits for it.
    Manual,
    /// When this number of later items was queued, on any stream of any device, or when the host waits for it: as on a
    /// GPU that is behind its program. The same number of consecutive queries of unfinished work counts as one item, so
    /// that a program that polls makes progress.
    Late(u32),
}

/// Options of a [`HostDriver`](super::HostDriver) and its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// The number of devices, at most 64.
    pub devices: u32,
    /// Bytes of memory of each.
    pub capacity: u64,
    /// As [`Capabilities::granularity`](crate::driver::Capabilities::granularity); at least a page.
    pub granularity: u64,
    /// As [`Capabilities::vmm`](crate::driver::Capabilities::vmm).
    pub vmm: bool,
    /// As [`Capabilities::stream_identity`](crate::driver::Capabilities::stream_identity).
    pub stream_identity: bool,
    /// As [`Capabilities::driver_pools`](crate::driver::Capabilities::driver_pools). Without it no pool of any kind.
    pub driver_pools: bool,
    /// As [`Capabilities::posix_fd`](crate::driver::Capabilities::posix_fd), where there is virtual memory.
    pub posix_fd: bool,
    /// As [`Capabilities::fabric`](crate::driver::Capabilities::fabric), where there is virtual memory.
    pub fabric: bool,
    /// As [`Capabilities::rdma`](crate::driver::Capabilities::rdma), where there is virtual memory.
    pub rdma: bool,
    /// Whether physical memory and pools can lie on a NUMA node of the host.
    pub host_numa: bool,
    /// The number of NUMA nodes of the host; device `n` is nearest to node `n % numa_nodes`.
    pub numa_nodes: u32,
    /// Bytes of host memory, for its physical memory, pools and allocations together.
    pub host_capacity: u64,
    /// As [`Capabilities::pool_fd`](crate::driver::Capabilities::pool_fd), where there are pools.
    pub pool_fd: bool,
    /// As [`Capabilities::host_pools`](crate::driver::Capabilities::host_pools), where there are pools.
    pub host_pools: bool,
    /// As [`Capabilities::managed_pools`](crate::driver::Capabilities::managed_pools), where there are pools.
    pub managed_pools: bool,
    /// As [`Capabilities::managed`](crate::driver::Capabilities::managed).
    pub managed: bool,
    /// As [`Capabilities::legacy_ipc`](crate::driver::Capabilities::legacy_ipc).
    pub legacy_ipc: bool,
    /// Whether [`event_record_all`](crate::driver::Driver::event_record_all) works.
    pub device_events: bool,
    /// As [`Capabilities::version`](crate::driver::Capabilities::version).
    pub version: u32,
    /// The initial clock.
    pub clock: Clock,
}

impl Default for HostOptions {
    /// One device like an H200, in a host of two nodes and 1 TiB. An H200 by itself has no fabric either.
    fn default() -> Self {
        Self {
            devices: 1,
            capacity: 141 << 30,
            granularity: 2 << 20,
            vmm: true,
            stream_identity: true,
            driver_pools: true,
            posix_fd: true,
            fabric: false,
            rdma: true,
            host_numa: true,
            numa_nodes: 2,
            host_capacity: 1 << 40,
            pool_fd: true,
            host_pools: true,
            managed_pools: true,
            managed: true,
            legacy_ipc: true,
            device_events: true,
            version: 13_000,
            clock: Clock::Immediate,
        }
    }
}

impl HostOptions {
    /// The defaults, with `FOREBAY_HOST_CAPACITY` (bytes, or with K, M, G or T), `FOREBAY_HOST_DEVICES` and
    /// `FOREBAY_HOST_LATE` (the items of [`Clock::Late`], or 0).
    /// errors: [`ErrorKind::Invalid`] for an invalid value, which the text names.
    pub fn from_environment() -> Result<Self> {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::from_text(read(CAPACITY).as_deref(), read(DEVICES).as_deref(), read(LATE).as_deref())
    }

    fn from_text(capacity: Option<&str>, devices: Option<&str>, late: Option<&str>) -> Result<Self> {
        let mut options = Self::default();
        if let Some(text) = capacity {
            let possible = options.granularity..=MOST_CAPACITY;
            options.capacity = parse_bytes(text).filter(|bytes| possible.contains(bytes)).ok_or_else(|| {
                invalid(format!(
                    "{CAPACITY}={text:?} is not a size: a whole number of bytes, or one with K, M, G or T after it, \
                     {} to {}",
                    Human(options.granularity),
                    Human(MOST_CAPACITY)
                ))
            })?;
        }
        if let Some(text) = devices {
            options.devices =
                text.trim().parse().ok().filter(|count| (1..=MOST_DEVICES).contains(count)).ok_or_else(|| {
                    invalid(format!("{DEVICES}={text:?} is not a number of devices: 1 to {MOST_DEVICES}"))
                })?;
        }
        if let Some(text) = late {
            let items = text.trim().parse().map_err(|_| {
                invalid(format!("{LATE}={text:?} is not a number of items of work: 0 to {}, 0 for at once", u32::MAX))
            })?;
            options.clock = if items == 0 { Clock::Immediate } else { Clock::Late(items) };
        }
        Ok(options)
    }

    pub(super) fn check(&self, page: u64) -> Result<()> {
        if !(1..=MOST_DEVICES).contains(&self.devices) {
            return Err(invalid(format!("{} devices: 1 to {MOST_DEVICES} are possible", self.devices)));
        }
        if self.numa_nodes == 0 {
            return Err(invalid("0 NUMA nodes: a host has at least 1".into()));
        }
        if !self.granularity.is_power_of_two() || self.granularity < page {
            let granularity = self.granularity;
            return Err(invalid(format!("granularity {granularity} is not a power of two of at least {page}")));
        }
        Ok(())
    }
}

fn invalid(detail: String) -> DriverError {
    DriverError::new(ErrorKind::Invalid, "host options", detail)
}

/// `64M` is 64 MiB.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_a_suffix() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("64M"), Some(64 << 20));
        assert_eq!(parse_bytes(" 2 g "), Some(2 << 30));
        assert_eq!(parse_bytes("1T"), Some(1 << 40));
        for wrong in ["", "M", "-1", "1.5G", "12X", "99999999999999999999", "20000000T", "é"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_bad_value_is_named_with_its_variable_and_what_is_allowed() {
        let options = HostOptions::from_text(Some("64M"), Some("3"), Some("100")).unwrap();
        assert_eq!((options.capacity, options.devices, options.clock), (64 << 20, 3, Clock::Late(100)));
        for late in [None, Some("0")] {
            assert_eq!(HostOptions::from_text(None, None, late).unwrap(), HostOptions::default());
        }
        for (capacity, devices, late, variable, value) in [
            (Some("lots"), None, None, CAPACITY, "lots"),
            (Some("1K"), None, None, CAPACITY, "1K"),
            (Some("1048576T"), None, None, CAPACITY, "1048576T"),
            (Some("4398046511105"), None, None, CAPACITY, "4398046511105"),
            (None, Some("0"), None, DEVICES, "0"),
            (None, Some("65"), None, DEVICES, "65"),
            (None, None, Some("soon"), LATE, "soon"),
            (None, None, Some("-1"), LATE, "-1"),
        ] {
            let error = HostOptions::from_text(capacity, devices, late).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.detail.contains(&format!("{variable}={value:?}")), "{error}");
        }
    }
}
