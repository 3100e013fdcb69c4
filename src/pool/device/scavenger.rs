//! Giving idle memory back in the background.
//!
//! A thread for each device looks at its pool four times in the time that [`Options::give_back_ms`](crate::pool::Options) names.
//! What was needed at no moment of that time goes back to the driver, a part at a time, so that a request waits for no more than a part.
//! Needed is the most that was live and an eighth more, or what the pool grew to meanwhile: a program that repeats itself within
//! that time keeps what it has, and never pays for taking it again.

use std::sync::{Arc, Once, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::chunks::held;
use super::device_pool::DevicePool;
use super::trim::release_in_parts;
use crate::driver::{DriverError, ErrorKind, process};
use crate::error::{Error, Result};

/// How often the thread looks in the time that memory may be idle.
const LOOKS: usize = 4;
/// One part in so many of what was live is kept beside it: what programs lose to fragmentation is mostly less.
const BESIDE: u64 = 8;
/// What goes back between two chances for requests to pass.
const PART: u64 = 256 << 20;
/// The same of pinned memory, which takes the driver far longer.
const PART_OF_PINNED: u64 = 16 << 20;
/// How long the end of the process waits for a look that is under way.
const PATIENCE: Duration = Duration::from_millis(200);

/// What was needed lately, in bytes: the highest in each of the last times between two looks.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    latest: [u64; LOOKS],
    next: usize,
}

impl Needs {
    /// Notes what was needed since the last look. Returns what was needed in the whole time.
    pub fn note(&mut self, need: u64) -> u64 {
        self.latest[self.next] = need;
        self.next = (self.next + 1) % LOOKS;
        self.latest.iter().copied().max().unwrap_or(need)
    }
}

/// The thread that looks after one device's pool.
#[derive(Debug)]
pub(crate) struct Scavenger {
    watch: Arc<Watch>,
    thread: JoinHandle<()>,
}

/// Locked by the thread while it works.
#[derive(Debug, Default)]
struct Watch {
    over: Mutex<bool>,
    called: Condvar,
}

/// Every thread's, for the end of the process: CUDA must not be called after its own end.
static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

extern "C" fn end_all() {
    // In a child of a fork there are no such threads, and their locks may be held for ever.
    if process::is_forked() {
        return;
    }
    let watches = WATCHES.try_lock_for(PATIENCE).map(|mut watches| std::mem::take(&mut *watches)).unwrap_or_default();
    for watch in watches.iter().filter_map(Weak::upgrade) {
        if let Some(mut over) = watch.over.try_lock_for(PATIENCE) {
            *over = true;
        }
    }
}

impl Scavenger {
    /// Looks after `home` until it ends.
    pub fn start(home: &Arc<DevicePool>, idle: Duration) -> Result<Self> {
        let watch = Arc::new(Watch::default());
        let (theirs, weak) = (Arc::clone(&watch), Arc::downgrade(home));
        let pause = idle / LOOKS as u32;
        let thread = Builder::new().name("forebay-scavenger".into()).spawn(move || look_after(&weak, &theirs, pause));
        let thread = thread.map_err(|error| {
            let text =
                format!("a thread for giving idle memory back: {error}; raise the limit on threads (RLIMIT_NPROC)");
            Error::Driver(DriverError::new(ErrorKind::Failed, "pthread_create", text))
        })?;
        static ONCE: Once = Once::new();
        ONCE.call_once(|| process::when_exiting(end_all));
        let mut watches = WATCHES.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        Ok(Self { watch, thread })
    }

    /// Returns when the thread is at its end.
    pub fn end(self) {
        *self.watch.over.lock() = true;
        self.watch.called.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread for giving idle memory back panicked");
        }
    }
}

fn look_after(home: &Weak<DevicePool>, watch: &Watch, pause: Duration) {
    let mut needs = Needs::default();
    let mut over = watch.over.lock();
    loop {
        // It may be over before this thread gets here.
        watch.called.wait_while_for(&mut over, |over| !*over, pause);
        if *over {
            return;
        }
        let Some(home) = home.upgrade() else { return };
        scavenge(&home, &mut needs);
    }
}

/// Looks once: gives back what was not needed. Returns the bytes that went.
fn scavenge(pool: &DevicePool, needs: &mut Needs) -> u64 {
    let live = pool.live_peak.take_recent(&pool.streams);
    let (grown, held) = {
        let mut state = pool.state.lock();
        (std::mem::take(&mut state.grown_to), held(&pool.backing, &state))
    };
    let keep = needs.note((live + live / BESIDE).max(grown));
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
        pool.stats(0).expect("figures").physical
    }

    #[test]
    fn a_need_counts_for_as_many_looks_as_there_are_in_the_time() {
        let mut needs = Needs::default();
        assert_eq!([5, 9, 3, 0, 1, 0, 0].map(|need| needs.note(need)), [5, 9, 9, 9, 9, 3, 1]);
    }

    #[test]
    fn what_was_not_needed_in_the_time_goes_back_and_what_was_stays() {
        let (_driver, pool) = pool(Clock::Immediate, Options { max_chunk: 16 * MIB, ..Options::default() });
        let home = pool.device(0).expect("a device").as_arena().expect("an arena");
        let mut needs = Needs::default();
        let stays = pool.malloc(64 * MIB, 0, StreamHandle::LEGACY, 0).expect("memory");
        for _ in 0..3 * LOOKS {
            take_and_give(&pool, 512 * MIB);
            assert_eq!(scavenge(home, &mut needs), 0, "it was needed a moment ago");
        }
        for look in 1..LOOKS {
            assert_eq!(scavenge(home, &mut needs), 0, "look {look}: it was needed in the time");
        }
        assert_eq!(held(&pool), 576 * MIB);
        let gone = scavenge(home, &mut needs);
        assert_eq!((gone, held(&pool)), (512 * MIB, 64 * MIB), "no chunk of 16 MiB fits into the eighth beside");
        assert_eq!(scavenge(home, &mut needs), 0);
        pool.free(stays, StreamHandle::LEGACY).expect("a free");
        let gone: u64 = (0..=LOOKS).map(|_| scavenge(home, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (64 * MIB, 0));
        take_and_give(&pool, 512 * MIB);
        pool.check(0).expect("every equation holds");
    }

    #[test]
    fn what_the_pool_grew_to_counts_even_if_less_was_live() {
        let (driver, pool) = pool(Clock::Manual, Options { grow_first: true, ..Options::default() });
        let home = pool.device(0).expect("a device").as_arena().expect("an arena");
        // Work on the one stream is not over when the other needs as much.
        for _ in 0..2 {
            let stream = driver.stream_create(DeviceId(0)).expect("a stream");
            pool.stream_register(0, stream).expect("a registration");
            let block = pool.malloc(20 * MIB, 0, stream, 0).expect("memory");
            driver.fill(DeviceId(0), block, 1, 20 * MIB, stream).expect("work");
            pool.free(block, stream).expect("a free");
        }
        driver.run_all();
        let mut needs = Needs::default();
        for _ in 0..LOOKS {
            assert_eq!((scavenge(home, &mut needs), held(&pool)), (0, 40 * MIB));
        }
        // A look may find that it has to raise a fence, and what that covers is for the next.
        let mut gone = 0;
        for _ in 0..3 {
            gone += scavenge(home, &mut needs);
            driver.run_all();
        }
        assert_eq!((gone, held(&pool)), (40 * MIB, 0));
    }

    #[test]
    fn no_event_over_the_whole_device_is_raised_for_it() {
        let (driver, pool) = pool(Clock::Immediate, Options::default());
        let home = pool.device(0).expect("a device").as_arena().expect("an arena");
        let stream = driver.stream_create(DeviceId(0)).expect("a stream");
        let block = |bytes| pool.malloc(bytes, 0, stream, 0).expect("memory");
        let blocks = [block(20 * MIB), block(40 * MIB)];
        // The first free on a stream that was not registered has an event; the next may do without.
        for block in blocks {
            pool.free(block, stream).expect("a free");
        }
        let mut needs = Needs::default();
        let gone: u64 = (0..=LOOKS).map(|_| scavenge(home, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (0, 60 * MIB), "nothing covers the second");
        assert_eq!(pool.trim(0, 0), Ok(60 * MIB));
    }

    #[test]
    fn nothing_goes_back_while_a_capture_is_announced() {
        let (_driver, pool) = pool(Clock::Immediate, Options::default());
        let home = pool.device(0).expect("a device").as_arena().expect("an arena");
        take_and_give(&pool, 64 * MIB);
        pool.private_begin(0, 7, Box::new(|_| false)).expect("a private pool");
        let mut needs = Needs::default();
        let gone: u64 = (0..=LOOKS).map(|_| scavenge(home, &mut needs)).sum();
        assert_eq!((gone, held(&pool)), (0, 64 * MIB));
        pool.private_end(0, 7).expect("its end");
        assert_eq!(scavenge(home, &mut needs), 64 * MIB);
        pool.private_release(0, 7).expect("its release");
    }
}
