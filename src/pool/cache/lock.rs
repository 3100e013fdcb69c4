//! The lock of what is held for tens of nanoseconds: a stream's cache.

use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

/// Who waits looks again for a microsecond, and then lets others run, since who holds it may have lost its core.
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

/// Given up by a plain store, where a lock that can wake a sleeper needs a second atomic instruction.
pub(crate) type BriefLock<T> = lock_api::Mutex<SpinMutex<(), Briefly>, T>;

pub(crate) type BriefGuard<'a, T> = lock_api::MutexGuard<'a, SpinMutex<(), Briefly>, T>;
