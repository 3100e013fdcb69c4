//! Giving idle memory back in the background.
//!
//! One thread per device checks its pool four times within the time that
//! [`Options::give_back_ms`](crate::pool::Options) sets. Memory that was not needed within that time goes back to the
//! driver, in parts, so that a request waits for at most one part. The need is the live peak and an eighth more, or
//! what the pool grew to meanwhile. So a program that repeats itself within that time keeps its memory and never pays
//! for it again.

use std::sync::{Arc, Once, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::chunks::held;
use super::device_pool::DevicePool;
use super::trim::release_in_parts;
use crate::driver::{DriverError, ErrorKind, process};
use crate::error::{Error, Result};

/// Checks within the time that memory may be idle.
const CHECKS: usize = 4;
/// One `HEADROOM`th of the live peak is kept in addition: programs mostly lose less to fragmentation.
const HEADROOM: u64 = 8;
/// Bytes given back before the lock is released for requests.
const PART: u64 = 256 << 20;
/// The same for pinned memory, which takes the driver far longer.
const PART_OF_PINNED: u64 = 16 << 20;
/// How long the end of the process waits for a check in progress.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// The highest need of each of the last intervals between checks, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    latest: [u64; CHECKS],
    next: usize,
}

impl Needs {
    /// Stores the need since the last check. Returns the highest need within the idle time.
    pub fn note(&mut self, need: u64) -> u64 {
        self.latest[self.next] = need;
        self.next = (self.next + 1) % CHECKS;
        self.latest.iter().copied().max().unwrap_or(need)
    }
}

/// The thread that gives back one device's idle memory.
#[derive(Debug)]
pub(crate) struct Scavenger {
    watch: Arc<Watch>,
    thread: JoinHandle<()>,
}

/// Shared with the thread, which holds `stopped` while it works.
#[derive(Debug, Default)]
struct Watch {
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// All threads of the process, to stop them at its end: no CUDA call may follow CUDA's own end.
static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

extern "C" fn end_all() {
    // A forked child has no such threads, and their locks may stay held.
    if process::is_forked() {
        return;
    }
    let watches =
        WATCHES.try_lock_for(EXIT_TIMEOUT).map(|mut watches| std::mem::take(&mut *watches)).unwrap_or_default();
    for watch in watches.iter().filter_map(Weak::upgrade) {
        if let Some(mut stopped) = watch.stopped.try_lock_for(EXIT_TIMEOUT) {
            *stopped = true;
        }
    }
}

impl Scavenger {
    /// Starts the thread, which ends with the pool.
    pub fn start(pool: &Arc<DevicePool>, idle: Duration) -> Result<Self> {
        let watch = Arc::new(Watch::default());
        let (shared, weak) = (Arc::clone(&watch), Arc::downgrade(pool));
        let pause = idle / CHECKS as u32;
        let thread = Builder::new().name("forebay-scavenger".into()).spawn(move || run(&weak, &shared, pause));
        let thread = thread.map_err(|error| {
            let text = format!(
                "the scavenger thread could not be started: {error}; raise the limit on threads (RLIMIT_NPROC)"
            );
            Error::Driver(DriverError::new(ErrorKind::Failed, "pthread_create", text))
        })?;
        static ONCE: Once = Once::new();
        ONCE.call_once(|| process::when_exiting(end_all));
        let mut watches = WATCHES.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        Ok(Self { watch, thread })
    }

    /// Stops the thread and waits for its end.
    pub fn end(self) {
        *self.watch.stopped.lock() = true;
        self.watch.wake.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the scavenger thread panicked");
        }
    }
}

fn run(pool: &Weak<DevicePool>, watch: &Watch, pause: Duration) {
    let mut needs = Needs::default();
    let mut stopped = watch.stopped.lock();
    loop {
        // `stopped` may be set before this thread gets here.
        watch.wake.wait_while_for(&mut stopped, |stopped| !*stopped, pause);
        if *stopped {
            return;
        }
        let Some(pool) = pool.upgrade() else { return };
        scavenge(&pool, &mut needs);
    }
}

/// Checks once and gives back what was not needed. Returns the bytes given back.
fn scavenge(pool: &DevicePool, needs: &mut Needs) -> u64 {
    let live = pool.live_peak.take_recent(&pool.streams);
    let (grown, held) = {
        let mut state = pool.state.lock();
        (std::mem::take(&mut state.grown_to), held(&pool.backing, &state))
    };
    let keep = needs.note((live + live / HEADROOM).max(grown));
    let part = if pool.backing.is_host() { PART_OF_PINNED } else { PART };
    if held <= keep { 0 } else { release_in_parts(pool, keep, part) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::host::{Clock, HostDriver, HostOptions};
    use crate::pool::{Options, Pool};
    use crate::units::{DeviceId, StreamHandle};

    const MIB: u64 = 1 << 20;

    fn pool(clock: Clock, options: Options) -> (Arc<HostDriver>, Arc<Pool>) {
        let host = HostOptions { capacity: 4 << 30, clock, ..HostOptions::default() };
        let driver = Arc::new(HostDriver::new(host).expect("a host driver"));
        let pool = Pool::with_driver(Arc::clone(&driver) as Arc<dyn Driver>, options);
        (driver, pool.expect("a pool"))
    }

    fn take_and_give(pool: &Pool, bytes: u64) {
        let block = pool.malloc(bytes, 0, StreamHandle::LEGACY, 0).expect("memory");
        pool.free(block, StreamHandle::LEGACY).expect("a free");
    }

    fn held(pool: &Pool) -> u64 {
        pool.stats(0).expect("statistics").physical
    }

    #[test]
    fn a_need_counts_for_all_checks_within_the_idle_time() {
        let mut needs = Needs::default();
        assert_eq!([5, 9, 3, 0, 1, 0, 0].map(|need| needs.note(need)), [5, 9, 9, 9, 9, 3, 1]);
    }

    #[test]
    fn only_memory_unneeded_within_the_idle_time_goes_back() {
        let (_driver, pool) = pool(Clock::Immediate, Options { max_chunk: 16 * MIB, ..Options::default() });
        let device = pool.device(0).expect("a device").as_arena().expect("an arena");
        let mut needs = Needs::default();
        let stays = pool.malloc(64 * MIB, 0, StreamHandle::LEGACY, 0).expect("memory");
        for _ in 0..3 * CHECKS {
            take_and_give(&pool, 512 * MIB);
            assert_eq!(scavenge(device, &mut needs), 0, "needed just now");
        }
        for check in 1..CHECKS {
            assert_eq!(scavenge(device, &mut needs), 0, "check {check}: needed within the idle time");
        }
        assert_eq!(held(&pool), 576 * MIB);
        let gone = scavenge(device, &mut needs);
        assert_eq!((gone, held(&pool)), (512 * MIB, 64 * MIB), "a chunk of 16 MiB is more than the eighth in addition");
        assert_eq!(scavenge(device, &mut needs), 0);
        pool.free(stays, StreamHandle::LEGACY).expect("a free");
        let gone: u64 = (0..=CHECKS).map(|_| scavenge(device, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (64 * MIB, 0));
        take_and_give(&pool, 512 * MIB);
        pool.check(0).expect("every equation holds");
    }

    #[test]
    fn growth_counts_as_a_need_even_if_less_was_live() {
        let (driver, pool) = pool(Clock::Manual, Options { grow_first: true, ..Options::default() });
        let device = pool.device(0).expect("a device").as_arena().expect("an arena");
        // Work on one stream is not over when the other stream needs the same amount.
        for _ in 0..2 {
            let stream = driver.stream_create(DeviceId(0)).expect("a stream");
            pool.stream_register(0, stream).expect("a registration");
            let block = pool.malloc(20 * MIB, 0, stream, 0).expect("memory");
            driver.fill(DeviceId(0), block, 1, 20 * MIB, stream).expect("work");
            pool.free(block, stream).expect("a free");
        }
        driver.run_all();
        let mut needs = Needs::default();
        for _ in 0..CHECKS {
            assert_eq!((scavenge(device, &mut needs), held(&pool)), (0, 40 * MIB));
        }
        // A check may have to record a fence; the next check gives back what that covers.
        let mut gone = 0;
        for _ in 0..3 {
            gone += scavenge(device, &mut needs);
            driver.run_all();
        }
        assert_eq!((gone, held(&pool)), (40 * MIB, 0));
    }

    #[test]
    fn the_scavenger_records_no_device_wide_event() {
        let (driver, pool) = pool(Clock::Immediate, Options::default());
        let device = pool.device(0).expect("a device").as_arena().expect("an arena");
        let stream = driver.stream_create(DeviceId(0)).expect("a stream");
        let block = |bytes| pool.malloc(bytes, 0, stream, 0).expect("memory");
        let blocks = [block(20 * MIB), block(40 * MIB)];
        // The first free on an unregistered stream records an event; the next may go without.
        for block in blocks {
            pool.free(block, stream).expect("a free");
        }
        let mut needs = Needs::default();
        let gone: u64 = (0..=CHECKS).map(|_| scavenge(device, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (0, 60 * MIB), "nothing covers the second");
        assert_eq!(pool.trim(0, 0), Ok(60 * MIB));
    }

    #[test]
    fn nothing_goes_back_during_an_announced_capture() {
        let (_driver, pool) = pool(Clock::Immediate, Options::default());
        let device = pool.device(0).expect("a device").as_arena().expect("an arena");
        take_and_give(&pool, 64 * MIB);
        pool.private_begin(0, 7, Box::new(|_| false)).expect("a private pool");
        let mut needs = Needs::default();
        let gone: u64 = (0..=CHECKS).map(|_| scavenge(device, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (0, 64 * MIB));
        pool.private_end(0, 7).expect("its end");
        assert_eq!(scavenge(device, &mut needs), 64 * MIB);
        pool.private_release(0, 7).expect("its release");
    }
}
