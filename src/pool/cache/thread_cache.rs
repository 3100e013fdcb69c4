//! By which a thread finds the streams that it used lately, without asking anybody.
//!
//! An entry belongs to one thread, and only that thread looks into it. All of them are in one list of the process, at a place that
//! the thread and the stream's handle give, since a library that is loaded at run time pays a call for a variable of its thread.
//! A thread that finds no place for one takes the longer way.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use super::stream::Stream;
use crate::cpu::this_thread;
use crate::driver::process;
use crate::units::{DeviceId, StreamHandle};

/// Entries at one place.
const WAYS: usize = 4;
/// So many that dozens of threads seldom have the same one. 256 KiB in all, of which the kernel backs what is touched.
const PLACES: usize = 1024;
/// How many streams a thread remembers.
const MOST: usize = 4;
/// Of no thread.
const NOBODY: usize = 0;

/// On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// Whose it is; only that thread reads or writes `known`.
    owner: AtomicUsize,
    known: Cell<Known>,
}

/// A stream, and what it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pool: u64,
    handle: StreamHandle,
    stream: *const Stream,
    device: i32,
}

// SAFETY: a thread looks into an entry only after it has seen that it is its own, and writes there only when it has made it
// its own; between two owners lies a release and an acquisition of `owner`.
unsafe impl Sync for Entry {}

impl Entry {
    const fn new() -> Self {
        let known = Known { pool: 0, handle: StreamHandle::LEGACY, stream: std::ptr::null(), device: 0 };
        Self { owner: AtomicUsize::new(NOBODY), known: Cell::new(known) }
    }

    /// What is known here, if it is the thread's, and called so.
    #[inline(always)]
    fn get(&self, thread: usize, pool: u64, handle: StreamHandle) -> Option<Known> {
        let own = self.owner.load(Ordering::Relaxed) == thread;
        own.then(|| self.known.get()).filter(|known| known.pool == pool && known.handle == handle)
    }
}

impl Known {
    /// Whether the stream is used on that device.
    #[inline(always)]
    pub fn is_on(&self, device: i32) -> bool {
        self.device == device
    }

    /// The stream. Not to be kept beyond the call in which it was found, nor while anything is called that may use the pool.
    #[inline(always)]
    pub fn stream<'a>(&self) -> &'a Stream {
        // SAFETY: entered in `open` for a stream that this thread's list keeps alive until `shut`, and this thread is in neither now.
        unsafe { &*self.stream }
    }
}

static ENTRIES: [[Entry; WAYS]; PLACES] = [const { [const { Entry::new() }; WAYS] }; PLACES];

#[inline(always)]
fn ways(thread: usize, handle: StreamHandle) -> &'static [Entry; WAYS] {
    // Fibonacci hashing (Knuth, volume 3, 6.4): the highest bits depend on all of both numbers. The pool's is not in it, though two
    // pools on one stream then share a place: it has to be loaded first, and all that the fast path does waits for the place.
    let mixed = (thread as u64).wrapping_add(handle.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &ENTRIES[(mixed >> (u64::BITS - PLACES.ilog2())) as usize]
}

/// The first that fits of the streams of that name that this thread used lately.
#[inline(always)]
pub(crate) fn find(pool: u64, handle: StreamHandle, fits: impl Fn(&Known) -> bool) -> Option<Known> {
    let thread = this_thread();
    ways(thread, handle).iter().find_map(|entry| entry.get(thread, pool, handle).filter(|known| fits(known)))
}

/// Makes an entry of this thread's, if there is a place.
///
/// # Safety
/// The stream lives until this thread calls [`shut`], which it does before it ends.
unsafe fn open(known: Known) {
    let thread = this_thread();
    let free =
        |entry: &&Entry| entry.owner.compare_exchange(NOBODY, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(entry) = ways(thread, known.handle).iter().find(free) else { return };
    entry.known.set(known);
}

/// Ends this thread's entries for streams of such handles.
fn shut(handle: StreamHandle) {
    let thread = this_thread();
    let own = ways(thread, handle).iter().filter(|entry| entry.owner.load(Ordering::Relaxed) == thread);
    own.for_each(|entry| entry.owner.store(NOBODY, Ordering::Release));
}

/// From now on all of them are ended in children of `fork`: their one thread has the number of one of their parent's.
pub(crate) fn watch_fork() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to atomics.
    ONCE.call_once(|| unsafe { process::when_forked(shut_all) });
}

extern "C" fn shut_all() {
    let used = |entry: &&Entry| entry.owner.load(Ordering::Relaxed) != NOBODY;
    ENTRIES.iter().flatten().filter(used).for_each(|entry| entry.owner.store(NOBODY, Ordering::Relaxed));
}

// ---- what keeps the streams alive ------------------------------------------------------------------------

/// A stream that this thread used lately.
struct Recent {
    pool: u64,
    device: DeviceId,
    handle: StreamHandle,
    stream: Arc<Stream>,
}

/// Owns what this thread's entries lead to. The oldest is first.
struct Recents(RefCell<Vec<Recent>>);

impl Recents {
    /// Calls `edit` with the list while no entry is there. Not possible inside of a callback of this list's own drop.
    fn change(&self, edit: impl FnOnce(&mut Vec<Recent>)) {
        let Ok(mut recent) = self.0.try_borrow_mut() else { return };
        recent.iter().for_each(|recent| shut(recent.handle));
        edit(&mut recent);
        for &Recent { pool, device, handle, ref stream } in recent.iter() {
            let known = Known { pool, handle, stream: Arc::as_ptr(stream), device: device.0 as i32 };
            // SAFETY: the list keeps the stream alive, and ends its entries before it changes, or ends with this thread.
            unsafe { open(known) };
        }
    }
}

impl Drop for Recents {
    fn drop(&mut self) {
        if process::is_forked() {
            // What they lead to is the parent's: if these are the last who have it, it stays.
            std::mem::forget(self.0.take());
            return;
        }
        self.change(Vec::clear);
    }
}

thread_local! {
    static RECENT: Recents = const { Recents(RefCell::new(Vec::new())) };
}

/// Changes this thread's list. While the thread ends nothing is remembered.
fn change(edit: impl FnOnce(&mut Vec<Recent>)) {
    let _ = RECENT.try_with(|recent| recent.change(edit));
}

/// Remembers a stream for this thread; the oldest makes room.
#[cold]
pub(crate) fn remember(pool: u64, stream: &Arc<Stream>) {
    let (device, handle, stream) = (stream.gpu.device, stream.handle, Arc::clone(stream));
    change(|recent| {
        recent.retain(|entry| (entry.pool, entry.device, entry.handle) != (pool, device, handle));
        if recent.len() == MOST {
            recent.remove(0);
        }
        recent.push(Recent { pool, device, handle, stream });
    });
}

/// Forgets everything of a pool on this thread.
pub(crate) fn forget(pool: u64) {
    change(|recent| recent.retain(|entry| entry.pool != pool));
}

/// The stream of that name on a device, to be kept, if this thread used it lately.
pub(crate) fn recall(pool: u64, device: i32, handle: StreamHandle) -> Option<Arc<Stream>> {
    let recalled = RECENT.try_with(|Recents(recent)| {
        let recent = recent.try_borrow().ok()?;
        let fits = |entry: &&Recent| entry.handle == handle && entry.pool == pool && entry.device.0 as i32 == device;
        recent.iter().find(fits).map(|entry| Arc::clone(&entry.stream))
    });
    recalled.ok().flatten()
}
