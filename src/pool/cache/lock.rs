//! The lock of a stream's cache, which nearly always one thread takes.
//!
//! That thread, the lock's *holder*, enters without an atomic read-modify-write instruction: it stores that it is inside, and looks
//! whether it still is the holder. Any other thread takes a spin lock, ends the holding, has every processor that runs this process
//! pass a memory barrier (`membarrier`), and waits until the holder is outside. That costs microseconds, so the holder gets its
//! place back only after [`TURNS`] turns with nobody else's between. Where the kernel has no such barrier, there is no holder.
//!
//! Only one thread ever holds a given lock, the first that took so many turns: so nobody else writes to `inside`. A thread that
//! shares a stream with others takes the spin lock, for good.
//!
//! After "Quickly Reacquirable Locks" (Dice, Moir, Scherer, 2003), with the barrier in place of stopping the holder.
//! `docs/decisions/cache-lock.md` has what it brings.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use lock_api::{GuardNoSend, RawMutex};
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

use crate::cpu::this_thread;
use crate::driver::process;

/// Turns of one thread, with nobody else's between, after which it becomes the holder.
const TURNS: u32 = 1024;

/// No thread's number.
const NOBODY: usize = 0;

/// A thread that waits looks again for a microsecond, and then lets others run: the thread inside may have lost its core.
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

/// For what is held for tens of nanoseconds. Not reentrant.
pub(crate) struct BiasedLock {
    /// The thread that may enter without `shared`. Only a thread that has `shared` changes it: `candidate` to itself, others to [`NOBODY`].
    holder: AtomicUsize,
    /// `candidate` is inside as the holder. Only `candidate` writes it.
    inside: AtomicBool,
    /// The thread that is inside came in as the holder. Only a thread that is inside uses it.
    as_holder: AtomicBool,
    /// What every thread but the holder takes. A plain store gives it up, where a lock that wakes sleepers needs a second
    /// read-modify-write.
    shared: SpinMutex<(), Briefly>,
    /// The one thread that may become the holder. Changes once, under `shared`.
    candidate: AtomicUsize,
    /// Who took `shared` last, and how often in a row. Under `shared`.
    last: AtomicUsize,
    turns: AtomicU32,
}

impl BiasedLock {
    /// As the holder, if this thread is that.
    #[inline(always)]
    fn enter(&self) -> bool {
        let thread = this_thread();
        if self.holder.load(Ordering::Relaxed) != thread {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        // Another thread stores to `holder`, has this processor pass the barrier, and then looks at `inside`. If the load below does not
        // see its store, the barrier comes behind the store above, which it then sees.
        compiler_fence(Ordering::SeqCst);
        let entered = self.holder.load(Ordering::Relaxed) == thread;
        if entered {
            self.as_holder.store(true, Ordering::Relaxed);
        } else {
            self.inside.store(false, Ordering::Release);
        }
        entered
    }

    /// With `shared`. Not inlined here and below, so that the holder's way in has the registers.
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

    /// Lets this thread in, which has `shared`, once no holder is inside.
    fn admit(&self) {
        if self.holder.load(Ordering::Relaxed) != NOBODY {
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
        if (candidate == NOBODY || candidate == thread) && process::can_pass_barrier() {
            self.candidate.store(thread, Ordering::Relaxed);
            // From its next turn on: in this one it has `shared`.
            self.holder.store(thread, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_holding(&self) {
        self.holder.store(NOBODY, Ordering::Relaxed);
        process::pass_barrier();
        while self.inside.load(Ordering::Acquire) {
            Briefly::relax();
        }
    }
}

// SAFETY: a thread is inside either with `shared`, after it saw `inside` unset behind a barrier that followed the end of the holding,
// or as the holder, whose own `inside` was set before any thread with `shared` could see it unset. So one at a time is inside. What
// one thread did inside, the next sees: each way in after another thread's turn is through `shared`, taken behind its release or, after
// the holder's turn, behind the release of `inside`.
unsafe impl RawMutex for BiasedLock {
    const INIT: Self = Self {
        holder: AtomicUsize::new(NOBODY),
        inside: AtomicBool::new(false),
        as_holder: AtomicBool::new(false),
        shared: SpinMutex::new(()),
        candidate: AtomicUsize::new(NOBODY),
        last: AtomicUsize::new(NOBODY),
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
            // SAFETY: this thread is inside, and not as the holder, so it has `shared`.
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

    /// Two numbers that are equal whenever nobody is inside.
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
    fn a_thread_becomes_the_holder_until_another_comes_and_then_again() {
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
    fn a_try_fails_while_a_thread_is_inside() {
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
    fn another_thread_waits_for_the_holder_that_is_inside() {
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
    fn one_thread_at_a_time_is_inside() {
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
