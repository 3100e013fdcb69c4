//! The lock of a stream's cache, which nearly always the same thread takes.
//!
//! That thread, the *holder*, enters without an atomic read-modify-write instruction: it stores that it is inside and
//! checks that it is still the holder. Any other thread takes a spin lock, ends the holding, makes every processor that
//! runs this process pass a memory barrier (`membarrier`), and waits until the holder is outside. That costs
//! microseconds, so the thread becomes the holder again only after [`TURNS`] turns in a row. Where the kernel has no
//! such barrier, there is no holder.
//!
//! Only the first thread with that many turns in a row ever holds a given lock, so no other thread writes `inside`. All
//! others always take the spin lock.
//!
//! After "Quickly Reacquirable Locks" (Dice, Moir, Scherer, 2003), with the barrier instead of stopping the holder.
//! `docs/decisions/cache-lock.md` has the measurements.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use lock_api::{GuardNoSend, RawMutex};
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

use crate::cpu::this_thread;
use crate::driver::process;

/// Turns in a row after which a thread becomes the holder.
const TURNS: u32 = 1024;

/// Not a thread's number.
const NO_THREAD: usize = 0;

/// Spins for about a microsecond, then yields: the thread inside may have lost its core.
#[derive(Debug)]
pub(crate) struct Briefly;

impl RelaxStrategy for Briefly {
    fn relax() {
        for _ in 0..32 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// A lock for critical sections of tens of nanoseconds. Not reentrant.
pub(crate) struct BiasedLock {
    /// The thread that may enter without `shared`. Changed only under `shared`: by `candidate` to itself, by others to
    /// [`NO_THREAD`].
    holder: AtomicUsize,
    /// Whether `candidate` is inside as the holder. Only `candidate` writes it.
    inside: AtomicBool,
    /// Whether the thread inside entered as the holder. Only the thread inside uses it.
    as_holder: AtomicBool,
    /// The spin lock of all threads but the holder. A plain store unlocks it; a lock that wakes sleepers needs a second
    /// read-modify-write.
    shared: SpinMutex<(), Briefly>,
    /// The only thread that may become the holder. Changes once, under `shared`.
    candidate: AtomicUsize,
    /// The thread that took `shared` last, and how often in a row. Under `shared`.
    last: AtomicUsize,
    turns: AtomicU32,
}

impl BiasedLock {
    /// Enters if this thread is the holder.
    #[inline(always)]
    fn enter(&self) -> bool {
        let thread = this_thread();
        if self.holder.load(Ordering::Relaxed) != thread {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        // Another thread stores to `holder`, makes this processor pass the barrier, and then reads `inside`. If the
        // load below does not see that store, the barrier follows the store above, and the other thread sees `inside`
        // set.
        compiler_fence(Ordering::SeqCst);
        let entered = self.holder.load(Ordering::Relaxed) == thread;
        if entered {
            self.as_holder.store(true, Ordering::Relaxed);
        } else {
            self.inside.store(false, Ordering::Release);
        }
        entered
    }

    /// Enters with `shared`. Not inlined, nor the functions below, to leave the registers to the holder's path.
    #[inline(never)]
    fn share(&self) {
        RawMutex::lock(&self.shared);
        self.admit();
    }

    #[inline(never)]
    fn try_share(&self) -> bool {
        let shared = RawMutex::try_lock(&self.shared);
        if shared {
            self.admit();
        }
        shared
    }

    /// Lets this thread, which has `shared`, enter once no holder is inside.
    fn admit(&self) {
        if self.holder.load(Ordering::Relaxed) != NO_THREAD {
            self.end_holding();
        }
        self.as_holder.store(false, Ordering::Relaxed);
        let thread = this_thread();
        if self.last.load(Ordering::Relaxed) != thread {
            self.last.store(thread, Ordering::Relaxed);
            self.turns.store(0, Ordering::Relaxed);
        }
        let turns = self.turns.load(Ordering::Relaxed) + 1;
        self.turns.store(turns % TURNS, Ordering::Relaxed);
        if turns == TURNS {
            self.begin_holding(thread);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_holding(&self, thread: usize) {
        let candidate = self.candidate.load(Ordering::Relaxed);
        if (candidate == NO_THREAD || candidate == thread) && process::can_pass_barrier() {
            self.candidate.store(thread, Ordering::Relaxed);
            // From the next turn on: in this one the thread has `shared`.
            self.holder.store(thread, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_holding(&self) {
        self.holder.store(NO_THREAD, Ordering::Relaxed);
        process::pass_barrier();
        while self.inside.load(Ordering::Acquire) {
            Briefly::relax();
        }
    }
}

// SAFETY: a thread is inside with `shared`, after it saw `inside` unset behind a barrier that followed the end of the
// holding; or as the holder, which set `inside` before a thread with `shared` could see it unset. So only one thread is
// inside. Each thread sees what the one before did: after another thread's turn a thread enters through `shared`, whose
// acquisition follows that thread's release of `shared` or, after the holder's turn, its release of `inside`.
unsafe impl RawMutex for BiasedLock {
    const INIT: Self = Self {
        holder: AtomicUsize::new(NO_THREAD),
        inside: AtomicBool::new(false),
        as_holder: AtomicBool::new(false),
        shared: SpinMutex::new(()),
        candidate: AtomicUsize::new(NO_THREAD),
        last: AtomicUsize::new(NO_THREAD),
        turns: AtomicU32::new(0),
    };

    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.enter() {
            self.share();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.enter() || self.try_share()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        if self.as_holder.load(Ordering::Relaxed) {
            self.inside.store(false, Ordering::Release);
        } else {
            // SAFETY: this thread is inside and not as the holder, so it has `shared`.
            unsafe { RawMutex::unlock(&self.shared) };
        }
    }
}

pub(crate) type CacheLock<T> = lock_api::Mutex<BiasedLock, T>;

pub(crate) type CacheGuard<'a, T> = lock_api::MutexGuard<'a, BiasedLock, T>;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    /// Two numbers that are equal whenever no thread is inside.
    type Pair = CacheLock<(u64, u64)>;

    fn turn(pair: &Pair) {
        let mut both = pair.lock();
        assert_eq!(both.0, both.1, "another thread is inside");
        both.0 += 1;
        std::hint::black_box(&mut *both);
        both.1 += 1;
    }

    fn lock(pair: &Pair) -> &BiasedLock {
        // SAFETY: nothing is unlocked through it.
        unsafe { pair.raw() }
    }

    fn is_held_by_this_thread(pair: &Pair) -> bool {
        lock(pair).holder.load(Ordering::Relaxed) == this_thread()
    }

    fn elsewhere(work: impl FnOnce() + Send) {
        std::thread::scope(|scope| drop(scope.spawn(work)));
    }

    #[test]
    fn a_thread_becomes_the_holder_again_after_another_took_the_lock() {
        let pair = Pair::new((0, 0));
        (1..TURNS).for_each(|_| turn(&pair));
        assert!(!is_held_by_this_thread(&pair));
        turn(&pair);
        assert!(is_held_by_this_thread(&pair));
        turn(&pair);
        elsewhere(|| turn(&pair));
        assert!(!is_held_by_this_thread(&pair));
        (0..TURNS).for_each(|_| turn(&pair));
        assert!(is_held_by_this_thread(&pair));
        assert_eq!(pair.lock().0, u64::from(2 * TURNS) + 2);
    }

    #[test]
    fn no_second_thread_becomes_the_holder() {
        let pair = Pair::new((0, 0));
        (0..TURNS).for_each(|_| turn(&pair));
        elsewhere(|| {
            (0..2 * TURNS).for_each(|_| turn(&pair));
            assert!(!is_held_by_this_thread(&pair));
        });
    }

    #[test]
    fn try_lock_fails_while_a_thread_is_inside() {
        let pair = Pair::new((0, 0));
        let inside = pair.lock();
        elsewhere(|| assert!(pair.try_lock().is_none()));
        drop(inside);
        assert!(pair.try_lock().is_some());
        (0..TURNS).for_each(|_| turn(&pair));
        assert!(pair.try_lock().is_some(), "as the holder");
        elsewhere(|| assert!(pair.try_lock().is_some(), "which is outside"));
    }

    #[test]
    fn another_thread_waits_while_the_holder_is_inside() {
        let pair = Pair::new((0, 0));
        (0..TURNS).for_each(|_| turn(&pair));
        let (entered, waits) = (Barrier::new(2), AtomicBool::new(true));
        std::thread::scope(|scope| {
            let inside = pair.lock();
            assert!(lock(&pair).inside.load(Ordering::Relaxed));
            scope.spawn(|| {
                entered.wait();
                turn(&pair);
                waits.store(false, Ordering::SeqCst);
            });
            entered.wait();
            std::thread::sleep(Duration::from_millis(50));
            assert!(waits.load(Ordering::SeqCst), "a thread came in beside the holder");
            drop(inside);
        });
        assert!(!waits.load(Ordering::SeqCst));
    }

    #[test]
    fn only_one_thread_is_inside_at_a_time() {
        let pair = Pair::new((0, 0));
        let (holder, others, done) = (40 * u64::from(TURNS), 200, AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..holder).for_each(|_| turn(&pair)));
            for pause in [30, 170] {
                let (pair, done) = (&pair, &done);
                scope.spawn(move || {
                    for _ in 0..others {
                        std::thread::sleep(Duration::from_micros(pause));
                        turn(pair);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 2 * others);
        assert_eq!(*pair.lock(), (holder + 2 * others, holder + 2 * others));
    }
}
