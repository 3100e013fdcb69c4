//! The ledger: counts every call, and prices it by its measured time on an H200 (driver 580, CUDA 13.0).
//!
//! So a replay on the host driver reports the driver time on that GPU, to an order of magnitude. Calls without a
//! measurement (reserve, unreserve, memory_info, copies, sharing) cost nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::Call;
use crate::driver::{Ledger, Place};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Nanoseconds at four sizes, smallest first.
type Table = [(u64, f64); 4];

const fn chunks(prices: [f64; 4]) -> Table {
    [(2 * MIB, prices[0]), (32 * MIB, prices[1]), (512 * MIB, prices[2]), (4 * GIB, prices[3])]
}

const fn plain(prices: [f64; 4]) -> Table {
    [(4 * KIB, prices[0]), (MIB, prices[1]), (64 * MIB, prices[2]), (GIB, prices[3])]
}

const CREATE: Table = chunks([10_500.0, 19_600.0, 15_800.0, 318_000.0]);
const MAP: Table = chunks([1_000.0, 900.0, 1_000.0, 1_700.0]);
const GRANT: Table = chunks([25_000.0, 25_000.0, 48_000.0, 157_000.0]);
const UNMAP: Table = chunks([17_000.0, 17_000.0, 25_000.0, 56_000.0]);
const RELEASE: Table = chunks([12_500.0, 25_000.0, 239_000.0, 2_042_000.0]);
const ALLOCATE: Table = plain([76_000.0, 65_000.0, 1_691_000.0, 255_000.0]);
const FREE: Table = plain([40_000.0, 44_000.0, 81_000.0, 350_000.0]);
const HOST_ALLOCATE: Table = plain([1_531_000.0, 618_000.0, 31_965_000.0, 390_000_000.0]);
const HOST_FREE: Table = plain([265_000.0, 314_000.0, 5_595_000.0, 89_000_000.0]);
/// Milliseconds for 1 GiB, in proportion to the size, since pages are pinned one by one.
const HOST_CREATE: u64 = 297;
const HOST_GRANT: u64 = 26;
const REGISTER: u64 = 24;
/// One call on a driver pool: an allocation that made it grow, and any other.
const POOL_COLD: u64 = 6_000;
const POOL_WARM: u64 = 400;

/// The price of `call` on one handle or allocation of `bytes`, in nanoseconds.
pub(super) fn price(call: Call, bytes: u64) -> u64 {
    let table = match call {
        Call::Create | Call::CreateWith => &CREATE,
        Call::Map => &MAP,
        Call::Grant | Call::GrantAccess => &GRANT,
        Call::Unmap => &UNMAP,
        Call::Release => &RELEASE,
        Call::Allocate => &ALLOCATE,
        Call::Free => &FREE,
        Call::HostAllocate => &HOST_ALLOCATE,
        Call::HostFree => &HOST_FREE,
        Call::HostRegister => return by_size(REGISTER, bytes),
        // `bytes` is the growth of the pool.
        Call::PoolAllocate if bytes > 0 => return POOL_COLD,
        Call::PoolAllocate | Call::PoolFree => return POOL_WARM,
        // For a whole device: not measured, priced like the call for one stream.
        Call::EventRecord | Call::EventRecordAll => return 170,
        // The call is priced, not the wait.
        Call::EventPassed | Call::EventWait => return 130,
        Call::StreamWait => return 110,
        Call::StreamSynchronize | Call::StreamIdle => return 140,
        Call::StreamCapture | Call::StreamIdentity => return 16,
        _ => return 0,
    };
    interpolate(table, bytes)
}

/// [`price`] for a handle of physical memory that lies at `place`.
pub(super) fn price_at(call: Call, place: Place, bytes: u64) -> u64 {
    match call {
        Call::CreateWith if place.is_host() => by_size(HOST_CREATE, bytes),
        Call::Grant | Call::GrantAccess if place.is_host() => by_size(HOST_GRANT, bytes),
        _ => price(call, bytes),
    }
}

/// Nanoseconds for `bytes` bytes, if 1 GiB takes `milliseconds`.
fn by_size(milliseconds: u64, bytes: u64) -> u64 {
    (u128::from(bytes) * u128::from(milliseconds) * 1_000_000 / u128::from(GIB)) as u64
}

/// Straight lines between the measured sizes, both axes logarithmic: a cost that grows with the size
/// stays proportional to it. Below the table its first price, above it the last one times the size.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "prices are positive, small, and good to two digits"
)]
fn interpolate(table: &Table, bytes: u64) -> u64 {
    let (first, last) = (table[0], table[table.len() - 1]);
    if bytes <= first.0 {
        return first.1 as u64;
    }
    if bytes >= last.0 {
        return (last.1 * (bytes as f64 / last.0 as f64)) as u64;
    }
    for pair in table.windows(2) {
        let ((low, cheap), (high, dear)) = (pair[0], pair[1]);
        if bytes == low {
            return cheap as u64;
        }
        if bytes < high {
            let along = (bytes as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
            return (cheap * (dear / cheap).powf(along)).round() as u64;
        }
    }
    last.1 as u64
}

/// The sums. Relaxed atomics, since they order nothing.
#[derive(Default)]
pub(super) struct Totals {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Totals {
    /// Counts a call, failed or not.
    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the price of a call on one handle of `bytes` bytes; called once for each handle.
    pub(super) fn charge(&self, call: Call, bytes: u64) {
        self.nanoseconds.fetch_add(price(call, bytes), Ordering::Relaxed);
    }

    /// [`Totals::charge`] for physical memory that lies at `place`.
    pub(super) fn charge_at(&self, call: Call, place: Place, bytes: u64) {
        self.nanoseconds.fetch_add(price_at(call, place, bytes), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Ledger {
        Ledger { calls: self.calls.load(Ordering::Relaxed), nanoseconds: self.nanoseconds.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_sizes_cost_what_was_measured() {
        assert_eq!(price(Call::Create, 2 * MIB), 10_500);
        assert_eq!(price(Call::Create, 32 * MIB), 19_600);
        assert_eq!(price(Call::Release, 512 * MIB), 239_000);
        assert_eq!(price(Call::Grant, 4 * GIB), 157_000);
        assert_eq!(price(Call::Allocate, 4 * KIB), 76_000);
        assert_eq!(price(Call::Free, GIB), 350_000);
        assert_eq!(price(Call::HostAllocate, GIB), 390_000_000);
        assert_eq!(price(Call::HostFree, 64 * MIB), 5_595_000);
        assert_eq!(price_at(Call::CreateWith, Place::HostNuma(0), GIB), 297_000_000);
        assert_eq!(price_at(Call::CreateWith, Place::Device(crate::units::DeviceId(0)), 2 * MIB), 10_500);
        assert_eq!((price(Call::PoolAllocate, MIB), price(Call::PoolAllocate, 0)), (6_000, 400));
    }

    #[test]
    fn between_and_beyond_the_sizes_prices_follow_the_line() {
        let between = price(Call::Release, 128 * MIB);
        assert!((25_000..239_000).contains(&between), "{between}");
        assert_eq!(price(Call::Create, 8 * GIB), 636_000);
        assert_eq!(price(Call::Create, 4 * KIB), 10_500);
    }
}
