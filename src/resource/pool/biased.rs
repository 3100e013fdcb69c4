//! A lock for what is nearly always taken by one and the same thread, which then needs no atomic instruction for it.
//!
//! A thread that takes the lock long enough without anybody else becomes its *holder*: it enters by saying so with a plain
//! store, and looking whether it still is the holder. Who else wants the lock ends that, makes every processor that runs the
//! process pass a full barrier (`membarrier`), and waits until the holder is not inside. That costs microseconds, so it takes
//! a thousand turns to become the holder again. Where the kernel has no such barrier, nobody becomes the holder.
//!
//! After "Quickly Reacquirable Locks" (Dice, Moir, Scherer, 2003), with the barrier in place of stopping the holder.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use lock_api::{Mutex, MutexGuard, RawMutex};
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

use super::doors::this_thread;
use crate::driver::process;

/// Turns of one thread, with nobody else's between, after which it becomes the holder.
const TURNS: u32 = 1024;

/// Nobody.
const NOBODY: usize = 0;

/// How a thread waits for what is held for tens of nanoseconds: for a microsecond it looks again, and then lets others run, since who
/// holds it may have lost its core.
#[derive(Debug)]
pub(super) struct Briefly;

impl RelaxStrategy for Briefly {
    fn relax() {
        for _ in 0..32 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// For what is never held longer: given up by a plain store, where a lock that can wake a sleeper needs a second atomic
/// instruction.
pub(super) type Spinning = SpinMutex<(), Briefly>;

/// For what may be held long; who waits sleeps.
pub(super) type Sleeping = parking_lot::RawMutex;

/// Who took the lock last, and how often in a row.
#[derive(Debug)]
struct Turns {
    last: usize,
    count: u32,
    /// How many it takes to become the holder.
    needed: u32,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// A value that one thread at a time may use. Not reentrant.
pub(super) struct Biased<T, R> {
    /// Who may enter without the lock. Threads that share the value only read this line.
    holder: Apart<AtomicUsize>,
    /// It is inside, or has the lock.
    inside: AtomicBool,
    /// Whoever is not the holder takes this; only who has it changes `holder`.
    lock: Mutex<R, Turns>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard alone, and there is one guard at a time: see `enter_held` and `admit`.
unsafe impl<T: Send, R: Sync> Sync for Biased<T, R> {}

impl<T, R: RawMutex> Biased<T, R> {
    pub fn new(value: T) -> Self {
        // The count ends at TURNS.
        let needed = if process::can_pass_barrier_everywhere() { TURNS } else { TURNS + 1 };
        Self {
            holder: Apart(AtomicUsize::new(NOBODY)),
            inside: AtomicBool::new(false),
            lock: Mutex::new(Turns { last: NOBODY, count: 0, needed }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value, which is then used for a moment.
    #[inline]
    pub fn enter(&self) -> Guard<'_, T, R> {
        let thread = this_thread();
        self.enter_as(thread).unwrap_or_else(|| self.take(thread))
    }

    /// The value for a moment, if `thread`, the caller's number, is the holder.
    #[inline(always)]
    pub fn enter_as(&self, thread: usize) -> Option<Guard<'_, T, R>> {
        self.enter_held(thread).then_some(Guard { home: self, taken: None, inside: true })
    }

    /// The value for a moment, if nobody else has it.
    #[inline]
    pub fn try_enter(&self) -> Option<Guard<'_, T, R>> {
        let thread = this_thread();
        // The holder itself may have the lock.
        if self.inside.load(Ordering::Relaxed) && self.holder.0.load(Ordering::Relaxed) == thread {
            return None;
        }
        self.enter_as(thread).or_else(|| self.lock.try_lock().map(|taken| self.admit(taken, thread)))
    }

    /// Waits for the value, which may then be used for long: others wait for the lock.
    #[inline(never)]
    pub fn lock(&self) -> Guard<'_, T, R> {
        self.take(this_thread())
    }

    /// Goes in as the holder, if the thread is that.
    #[inline(always)]
    fn enter_held(&self, thread: usize) -> bool {
        if self.holder.0.load(Ordering::Relaxed) != thread {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        // Who ends the holding stores first, passes the barrier on this processor too, and looks then: if this load does not
        // see that store, the barrier comes behind the store above, and he sees that one.
        compiler_fence(Ordering::SeqCst);
        if self.holder.0.load(Ordering::Relaxed) == thread {
            return true;
        }
        self.inside.store(false, Ordering::Release);
        false
    }

    #[inline(never)]
    fn take(&self, thread: usize) -> Guard<'_, T, R> {
        self.admit(self.lock.lock(), thread)
    }

    /// Lets a thread in that has the lock, once no other holder is inside.
    fn admit<'a>(&'a self, mut taken: MutexGuard<'a, R, Turns>, thread: usize) -> Guard<'a, T, R> {
        let holds = self.is_left_to(thread);
        if taken.last != thread {
            (taken.last, taken.count) = (thread, 0);
        }
        if !holds {
            taken.count = (taken.count + 1).min(TURNS);
            if taken.count == taken.needed {
                taken.count = 0;
                // From its next turn on. This one still has the lock, and until it ends nobody else is in.
                self.holder.0.store(thread, Ordering::Relaxed);
            }
        }
        Guard { home: self, taken: Some(taken), inside: holds }
    }

    /// Ends the holding of any other thread, and waits until that is not inside. Whether `thread` is the holder. pre: it has the
    /// lock.
    fn is_left_to(&self, thread: usize) -> bool {
        let holder = self.holder.0.load(Ordering::Relaxed);
        if holder == thread {
            self.inside.store(true, Ordering::Relaxed);
            return true;
        }
        if holder != NOBODY {
            self.holder.0.store(NOBODY, Ordering::Relaxed);
            process::pass_barrier_everywhere();
            while self.inside.load(Ordering::Acquire) {
                Briefly::relax();
            }
        }
        false
    }
}

impl<T, R> fmt::Debug for Biased<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").field("holder", &self.holder.0).finish_non_exhaustive()
    }
}

/// The use of the value, until it is dropped.
pub(super) struct Guard<'a, T, R: RawMutex> {
    home: &'a Biased<T, R>,
    /// `None`: as the holder.
    taken: Option<MutexGuard<'a, R, Turns>>,
    /// By the holder.
    inside: bool,
}

impl<T, R: RawMutex> Guard<'_, T, R> {
    /// Lets others in while `work` is done. pre: from [`Biased::lock`].
    pub fn unlocked<U>(&mut self, work: impl FnOnce() -> U) -> U {
        let Some(taken) = &mut self.taken else { return work() };
        if self.inside {
            self.home.inside.store(false, Ordering::Release);
        }
        let result = MutexGuard::unlocked(taken, work);
        self.inside = self.home.is_left_to(this_thread());
        result
    }
}

impl<T, R: RawMutex> Deref for Guard<'_, T, R> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: either this thread has the lock, and the holder was seen outside after it had ceased to be that, or is this
        // thread; or it is the holder, and said so before anybody who has the lock could see it outside. So this is the only guard.
        unsafe { &*self.home.value.get() }
    }
}

impl<T, R: RawMutex> DerefMut for Guard<'_, T, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.home.value.get() }
    }
}

impl<T, R: RawMutex> Drop for Guard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inside {
            self.home.inside.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers that are equal whenever nobody is inside.
    type Pair = Biased<(u64, u64), Spinning>;

    /// One as made, and one of a kernel without the barrier.
    fn pairs() -> [Pair; 2] {
        let without = Pair::new((0, 0));
        without.lock.lock().needed = TURNS + 1;
        [Pair::new((0, 0)), without]
    }

    fn turn(pair: &Pair) {
        let mut both = pair.enter();
        assert_eq!(both.0, both.1, "somebody else is inside");
        both.0 += 1;
        std::hint::black_box(&mut *both);
        both.1 += 1;
    }

    #[test]
    fn one_thread_becomes_the_holder_and_another_ends_that() {
        let held = |pair: &Pair| pair.holder.0.load(Ordering::Relaxed) == this_thread();
        let [pair, without] = pairs();
        (0..TURNS).for_each(|_| turn(&pair));
        (0..2 * TURNS).for_each(|_| turn(&without));
        assert!(held(&pair) && !held(&without));
        turn(&pair);
        std::thread::scope(|scope| {
            scope.spawn(|| turn(&pair));
        });
        assert_eq!(pair.holder.0.load(Ordering::Relaxed), NOBODY);
        turn(&pair);
        assert!(!held(&pair), "not at once");
        assert_eq!(*pair.enter(), (u64::from(TURNS) + 3, u64::from(TURNS) + 3));
    }

    #[test]
    fn nobody_is_inside_with_somebody_else() {
        for pair in pairs() {
            let (holder, others) = (40 * u64::from(TURNS), 200);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..holder).for_each(|_| turn(&pair)));
                for pause in [30, 170] {
                    let pair = &pair;
                    scope.spawn(move || {
                        for _ in 0..others {
                            std::thread::sleep(std::time::Duration::from_micros(pause));
                            turn(pair);
                        }
                    });
                }
            });
            assert_eq!(*pair.enter(), (holder + 2 * others, holder + 2 * others));
        }
    }
}
