//! A lock for what is nearly always taken by one and the same thread, which then needs no atomic instruction for it.
//!
//! A thread that takes the lock long enough without anybody else becomes its *holder*: it enters by saying so with a plain
//! store in a [`Seat`] of its own, and looking whether it still is the holder. Who else wants the lock ends that, makes every
//! processor that runs the process pass a full barrier (`membarrier`), and waits until the holder is not inside. That costs
//! microseconds, so it takes a thousand turns to become the holder again. Where the kernel has no such barrier, nobody does.
//!
//! The seat is the thread's own, since a thread that was stopped between looking and saying says so late, when another may be the
//! holder: what it takes back then must not be the other's word.
//!
//! After "Quickly Reacquirable Locks" (Dice, Moir, Scherer, 2003), with the barrier in place of stopping the holder.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use lock_api::{Mutex, MutexGuard, RawMutex};
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

use super::thread_cache::this_thread;
use crate::driver::process;

/// Turns of one thread, with nobody else's between, after which it becomes the holder.
const TURNS: u32 = 1024;

/// Of no thread.
pub(crate) const NOBODY: usize = 0;

/// How a thread waits for what is held for tens of nanoseconds: for a microsecond it looks again, and then lets others run, since who
/// holds it may have lost its core.
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

/// For what is never held longer: given up by a plain store, where a lock that can wake a sleeper needs a second atomic
/// instruction.
pub(crate) type Spinning = SpinMutex<(), Briefly>;

/// For what may be held long; who waits sleeps.
pub(crate) type Sleeping = parking_lot::RawMutex;

/// Where a thread says that it is inside. Never ends, but may become another thread's.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Whose it is; only that thread writes to `inside`.
    pub owner: AtomicUsize,
    /// By what it is inside of.
    inside: [AtomicBool; 2],
}

/// The front of a stream.
pub(crate) const FRONT: usize = 0;
/// The arena of a device. Entered from inside a front, not the other way round.
pub(crate) const ARENA: usize = 1;

impl Seat {
    pub const fn new() -> Self {
        Self { owner: AtomicUsize::new(NOBODY), inside: [const { AtomicBool::new(false) }; 2] }
    }
}

/// Who took the lock last, and how often in a row.
#[derive(Debug)]
struct Turns {
    last: usize,
    count: u32,
    /// Whether anybody may become the holder: the kernel's barrier can end that.
    barriers: bool,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// A value that one thread at a time may use. Not reentrant. `WHAT` it is: [`FRONT`] or [`ARENA`].
pub(crate) struct Biased<T, R, const WHAT: usize> {
    /// The seat of who may enter without the lock. Threads that share the value only read this line.
    holder: Apart<AtomicPtr<Seat>>,
    /// Whoever is not the holder takes this; only who has it changes `holder`.
    lock: Mutex<R, Turns>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard alone, and there is one guard at a time: see `enter_as` and `admit`.
unsafe impl<T: Send, R: Sync, const WHAT: usize> Sync for Biased<T, R, WHAT> {}

impl<T, R: RawMutex, const WHAT: usize> Biased<T, R, WHAT> {
    pub fn new(value: T) -> Self {
        Self {
            holder: Apart(AtomicPtr::new(ptr::null_mut())),
            lock: Mutex::new(Turns { last: NOBODY, count: 0, barriers: process::can_pass_barrier_everywhere() }),
            value: UnsafeCell::new(value),
        }
    }

    /// The value for a moment, if `seat`, the calling thread's, is the holder's. pre: by that seat the thread is inside of nothing else
    /// of this kind, since the word that it is would be taken back here.
    #[inline(always)]
    pub fn enter_as(&self, seat: &'static Seat) -> Option<Guard<'_, T, R, WHAT>> {
        seat.inside[WHAT].store(true, Ordering::Relaxed);
        // Who ends the holding stores first, passes the barrier on this processor too, and looks then: if this load does not
        // see that store, the barrier comes behind the store above, and he sees that one.
        compiler_fence(Ordering::SeqCst);
        if ptr::eq(self.holder.0.load(Ordering::Relaxed), seat) {
            return Some(Guard { home: self, taken: None, seat: Some(seat) });
        }
        seat.inside[WHAT].store(false, Ordering::Release);
        None
    }

    /// Waits for the value, which is then used for a moment. With a `seat` of its own the calling thread may become the holder; where
    /// it is that by another seat, by this one from now on.
    #[inline(always)]
    pub fn enter(&self, seat: Option<&'static Seat>) -> Guard<'_, T, R, WHAT> {
        self.enter_held(seat).unwrap_or_else(|| self.wait(seat))
    }

    #[inline(never)]
    fn wait(&self, seat: Option<&'static Seat>) -> Guard<'_, T, R, WHAT> {
        self.admit(self.lock.lock(), seat)
    }

    /// The same if nobody else has it.
    #[inline]
    pub fn try_enter(&self, seat: Option<&'static Seat>) -> Option<Guard<'_, T, R, WHAT>> {
        // The holder may have the lock, too.
        if self.lock.is_locked() {
            return None;
        }
        self.enter_held(seat).or_else(|| self.lock.try_lock().map(|taken| self.admit(taken, seat)))
    }

    /// Waits for the value, which may then be used for long: others wait for the lock.
    #[inline(never)]
    pub fn lock(&self) -> Guard<'_, T, R, WHAT> {
        self.admit(self.lock.lock(), None)
    }

    /// The holder's seat, if it is this thread's.
    fn own_seat(&self) -> Option<&'static Seat> {
        // SAFETY: seats never end.
        let seat: &'static Seat = unsafe { self.holder.0.load(Ordering::Relaxed).as_ref() }?;
        (seat.owner.load(Ordering::Relaxed) == this_thread()).then_some(seat)
    }

    /// As the holder; where no seat is named, by whichever of this thread's is the holder's.
    #[inline(always)]
    fn enter_held(&self, seat: Option<&'static Seat>) -> Option<Guard<'_, T, R, WHAT>> {
        seat.or_else(|| self.own_seat()).and_then(|seat| self.enter_as(seat))
    }

    /// Lets a thread in that has the lock, once no other holder is inside.
    #[inline(never)]
    fn admit<'a>(&'a self, mut taken: MutexGuard<'a, R, Turns>, seat: Option<&'static Seat>) -> Guard<'a, T, R, WHAT> {
        self.end_other_holder();
        let thread = this_thread();
        if taken.last != thread {
            (taken.last, taken.count) = (thread, 0);
        }
        taken.count = (taken.count + 1).min(TURNS);
        if taken.count == TURNS && taken.barriers {
            // It may be refused by now.
            taken.barriers = process::can_pass_barrier_everywhere();
        }
        let earned = taken.count == TURNS && taken.barriers;
        if let Some(seat) = seat.filter(|_| earned || self.own_seat().is_some()) {
            taken.count = 0;
            // From its next turn on. This one still has the lock, and until it ends nobody else is in.
            self.holder.0.store(ptr::from_ref(seat).cast_mut(), Ordering::Relaxed);
        }
        Guard { home: self, taken: Some(taken), seat: None }
    }

    /// Ends the holding of any other thread, and waits until that is not inside. pre: this thread has the lock, and is not inside.
    fn end_other_holder(&self) {
        // SAFETY: seats never end.
        let Some(seat) = (unsafe { self.holder.0.load(Ordering::Relaxed).as_ref() }) else { return };
        if seat.owner.load(Ordering::Relaxed) == this_thread() {
            return;
        }
        self.holder.0.store(ptr::null_mut(), Ordering::Relaxed);
        process::pass_barrier_everywhere();
        while seat.inside[WHAT].load(Ordering::Acquire) {
            Briefly::relax();
        }
    }
}

impl<T, R, const WHAT: usize> fmt::Debug for Biased<T, R, WHAT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").field("holder", &self.holder.0).finish_non_exhaustive()
    }
}

/// The use of the value, until it is dropped.
pub(crate) struct Guard<'a, T, R: RawMutex, const WHAT: usize> {
    home: &'a Biased<T, R, WHAT>,
    /// Where it was taken with the lock.
    taken: Option<MutexGuard<'a, R, Turns>>,
    /// Where it was entered as the holder.
    seat: Option<&'static Seat>,
}

impl<T, R: RawMutex, const WHAT: usize> Guard<'_, T, R, WHAT> {
    /// Lets others in while `work` is done. pre: from [`Biased::lock`].
    pub fn unlocked<U>(&mut self, work: impl FnOnce() -> U) -> U {
        let Some(taken) = &mut self.taken else { return work() };
        let result = MutexGuard::unlocked(taken, work);
        self.home.end_other_holder();
        result
    }
}

impl<T, R: RawMutex, const WHAT: usize> Deref for Guard<'_, T, R, WHAT> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: either this thread has the lock, and the holder is this thread, or was seen outside after it had ceased to be that;
        // or this is the holder, and said so before anybody who has the lock could see it outside. So this is the only guard.
        unsafe { &*self.home.value.get() }
    }
}

impl<T, R: RawMutex, const WHAT: usize> DerefMut for Guard<'_, T, R, WHAT> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.home.value.get() }
    }
}

impl<T, R: RawMutex, const WHAT: usize> Drop for Guard<'_, T, R, WHAT> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            seat.inside[WHAT].store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers that are equal whenever nobody is inside.
    type Pair = Biased<(u64, u64), Spinning, FRONT>;

    fn pair() -> Pair {
        Pair::new((0, 0))
    }

    /// A seat of the calling thread.
    fn seat() -> &'static Seat {
        let seat = Seat::new();
        seat.owner.store(this_thread(), Ordering::Relaxed);
        Box::leak(Box::new(seat))
    }

    fn turn(pair: &Pair, seat: &'static Seat) {
        let mut both = pair.enter(Some(seat));
        assert_eq!(both.0, both.1, "somebody else is inside");
        both.0 += 1;
        std::hint::black_box(&mut *both);
        both.1 += 1;
    }

    #[test]
    fn one_thread_becomes_the_holder_and_another_ends_that() {
        let (pair, without, own) = (pair(), pair(), seat());
        // As a kernel without the barrier would have it.
        without.lock.lock().barriers = false;
        let held = |pair: &Pair| pair.enter_as(own).is_some();
        (0..TURNS).for_each(|_| turn(&pair, own));
        (0..2 * TURNS).for_each(|_| turn(&without, own));
        assert!(held(&pair) && !held(&without));
        turn(&pair, own);
        std::thread::scope(|scope| {
            scope.spawn(|| turn(&pair, seat()));
        });
        assert!(!held(&pair));
        turn(&pair, own);
        assert!(!held(&pair), "not at once");
        assert_eq!(*pair.lock(), (u64::from(TURNS) + 3, u64::from(TURNS) + 3));
    }

    #[test]
    fn the_holder_may_take_the_lock_too_and_is_let_in_by_nothing_else_meanwhile() {
        let (pair, own) = (pair(), seat());
        (0..TURNS).for_each(|_| turn(&pair, own));
        let mut both = pair.lock();
        assert!(pair.try_enter(Some(own)).is_none());
        both.unlocked(|| turn(&pair, own));
        drop(both);
        assert!(pair.try_enter(Some(own)).is_some() && pair.enter_as(own).is_some());
    }

    #[test]
    fn a_holder_changes_its_seat_at_once() {
        let (pair, [first, second]) = (pair(), [seat(), seat()]);
        (0..TURNS).for_each(|_| turn(&pair, first));
        turn(&pair, second);
        assert!(pair.enter_as(first).is_none() && pair.enter_as(second).is_some());
    }

    #[test]
    fn what_a_late_thread_takes_back_is_not_the_word_of_the_holder() {
        let (pair, own) = (pair(), seat());
        (0..TURNS).for_each(|_| turn(&pair, own));
        let inside = pair.enter_as(own).expect("the holder");
        let (late, waits) = (std::sync::Barrier::new(2), AtomicBool::new(true));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It was the holder once, and tries again.
                assert!(pair.enter_as(seat()).is_none());
                late.wait();
            });
            late.wait();
            scope.spawn(|| {
                turn(&pair, seat());
                waits.store(false, Ordering::SeqCst);
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(waits.load(Ordering::SeqCst), "somebody came in beside the holder");
            drop(inside);
        });
        assert!(!waits.load(Ordering::SeqCst));
    }

    #[test]
    fn nobody_is_inside_with_somebody_else() {
        let pair = pair();
        let (holder, others) = (40 * u64::from(TURNS), 200);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = seat();
                (0..holder).for_each(|_| turn(&pair, own));
            });
            for pause in [30, 170] {
                let pair = &pair;
                scope.spawn(move || {
                    let own = seat();
                    for _ in 0..others {
                        std::thread::sleep(std::time::Duration::from_micros(pause));
                        turn(pair, own);
                    }
                });
            }
        });
        assert_eq!(*pair.lock(), (holder + 2 * others, holder + 2 * others));
    }
}
