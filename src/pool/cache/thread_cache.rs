//! Doors: by which a thread finds the streams that it used lately, and their devices, without asking anybody.
//!
//! A door belongs to one thread, and only that thread looks behind it. All of them are in one list of the process, at a place that
//! the thread and the stream's handle give, since a library that is loaded at run time pays a call for a variable of its thread.
//! A thread that finds no place for one takes the longer way.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::Ordering;

use super::lock::{NOBODY, Seat};
use super::stream::Stream;
use crate::driver::process;
use crate::pool::device::DevicePool;
use crate::units::{DeviceId, StreamHandle};

/// Doors at one place. The first is the nearest.
const WAYS: usize = 4;
/// So many that dozens of threads seldom have the same one. 256 KiB in all, of which the kernel backs what is touched.
const PLACES: usize = 1024;

/// On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Door {
    /// Its owner's.
    pub seat: Seat,
    /// Its owner's alone.
    room: Cell<Room>,
}

/// What is behind a door, and what that is called.
#[derive(Clone, Copy, Debug)]
struct Room {
    pool: u64,
    handle: StreamHandle,
    home: *const DevicePool,
    stream: *const Stream,
    device: i32,
}

// SAFETY: a thread looks into a room only after it has seen that the door is its own, and writes there only when it has made it
// its own; between two owners lies a release and an acquisition of `owner`.
unsafe impl Sync for Door {}

impl Door {
    const fn new() -> Self {
        Self {
            seat: Seat::new(),
            room: Cell::new(Room {
                pool: 0,
                handle: StreamHandle::LEGACY,
                home: std::ptr::null(),
                stream: std::ptr::null(),
                device: 0,
            }),
        }
    }

    #[inline(always)]
    fn is(&self, thread: usize, pool: u64, handle: StreamHandle) -> bool {
        self.seat.owner.load(Ordering::Relaxed) == thread && {
            let room = self.room.get();
            room.pool == pool && room.handle == handle
        }
    }

    /// Device and stream. pre: the calling thread's. Not to be kept beyond the call in which it was found.
    #[inline(always)]
    pub fn behind<'a>(&self) -> (&'a DevicePool, &'a Stream) {
        // SAFETY: set in `open` to what its caller keeps alive until `shut`, and this thread is in neither now.
        unsafe { (&*self.room.get().home, &*self.room.get().stream) }
    }
}

static DOORS: [[Door; WAYS]; PLACES] = [const { [const { Door::new() }; WAYS] }; PLACES];

/// A number that no other living thread has; never 0.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let thread: usize;
        // SAFETY: the ABI of x86-64 keeps a thread's own address there, which is read.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(pure, readonly, nostack, preserves_flags))
        };
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(std::ptr::from_ref).addr()
    }
}

#[inline(always)]
fn doors(thread: usize, handle: StreamHandle) -> &'static [Door; WAYS] {
    // Fibonacci hashing (Knuth, volume 3, 6.4): the highest bits depend on all of both numbers. The pool's is not in it, though two
    // pools on one stream then share a place: it has to be loaded first, and all that a hit does waits for the place.
    let mixed = (thread as u64).wrapping_add(handle.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &DOORS[(mixed >> (u64::BITS - PLACES.ilog2())) as usize]
}

/// The nearest door of this thread, if what is behind it is named so. `device`: where its device is asked for.
#[inline(always)]
pub(crate) fn nearest(pool: u64, device: Option<i32>, handle: StreamHandle) -> Option<&'static Door> {
    let thread = this_thread();
    let [nearest, ..] = doors(thread, handle);
    let fits = nearest.is(thread, pool, handle) && device.is_none_or(|device| nearest.room.get().device == device);
    fits.then_some(nearest)
}

/// The door to the first that fits of those that this thread used lately.
#[inline]
pub(crate) fn find(pool: u64, handle: StreamHandle, fits: impl Fn(&DevicePool) -> bool) -> Option<&'static Door> {
    let thread = this_thread();
    doors(thread, handle).iter().find(|door| door.is(thread, pool, handle) && fits(door.behind().0))
}

/// Opens a door for this thread, if there is a place.
///
/// # Safety
/// What is behind it lives until this thread calls [`shut`], which it does before it ends.
pub(crate) unsafe fn open(
    pool: u64,
    device: DeviceId,
    handle: StreamHandle,
    home: *const DevicePool,
    stream: *const Stream,
) {
    let thread = this_thread();
    let free =
        |door: &&Door| door.seat.owner.compare_exchange(NOBODY, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(door) = doors(thread, handle).iter().find(free) else { return };
    door.room.set(Room { pool, handle, home, stream, device: device.0 as i32 });
}

/// Shuts this thread's doors to the streams of such handles.
pub(crate) fn shut(handle: StreamHandle) {
    let thread = this_thread();
    let own = doors(thread, handle).iter().filter(|door| door.seat.owner.load(Ordering::Relaxed) == thread);
    own.for_each(|door| door.seat.owner.store(NOBODY, Ordering::Release));
}

/// From now on all of them are shut in children of `fork`: their one thread has the number of one of their parent's.
pub(crate) fn watch_fork() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to atomics.
    ONCE.call_once(|| unsafe { process::when_forked(shut_all) });
}

extern "C" fn shut_all() {
    let open = |door: &&Door| door.seat.owner.load(Ordering::Relaxed) != NOBODY;
    DOORS.iter().flatten().filter(open).for_each(|door| door.seat.owner.store(NOBODY, Ordering::Relaxed));
}
