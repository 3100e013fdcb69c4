//! The thread cache: entries by which a thread finds the streams that it used lately.
//!
//! An entry belongs to one thread, and only that thread reads it. All entries are in one table of the process, at an
//! index that the thread and the stream's handle give: in a library loaded at run time, a thread-local variable would
//! cost a call. A thread that finds no free entry takes the slow path.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use super::stream::Stream;
use crate::cpu::this_thread;
use crate::driver::process;
use crate::units::{DeviceId, StreamHandle};

/// Entries per index.
const WAYS: usize = 4;
/// Large enough that dozens of threads seldom share an index. 256 KiB in all; the kernel backs only the pages in use.
const SETS: usize = 1024;
/// Streams that a thread caches.
const MAX_STREAMS: usize = 4;
/// Not a thread's number.
const NO_THREAD: usize = 0;

/// One entry, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// The thread that may read and write `known`.
    owner: AtomicUsize,
    known: Cell<CachedStream>,
}

/// A stream and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedStream {
    pool: u64,
    handle: StreamHandle,
    stream: *const Stream,
    device: i32,
}

// SAFETY: a thread reads an entry only after it has seen itself as the owner, and writes one only after it has made
// itself the owner; between two owners there is a release and an acquire of `owner`.
unsafe impl Sync for Entry {}

impl Entry {
    const fn new() -> Self {
        let known = CachedStream { pool: 0, handle: StreamHandle::LEGACY, stream: std::ptr::null(), device: 0 };
        Self { owner: AtomicUsize::new(NO_THREAD), known: Cell::new(known) }
    }

    /// The stream in this entry, if the thread owns the entry and the name is the same.
    #[inline(always)]
    fn get(&self, thread: usize, pool: u64, handle: StreamHandle) -> Option<CachedStream> {
        let own = self.owner.load(Ordering::Relaxed) == thread;
        own.then(|| self.known.get()).filter(|known| known.pool == pool && known.handle == handle)
    }
}

impl CachedStream {
    /// Whether the stream belongs to that device.
    #[inline(always)]
    pub fn is_on(&self, device: i32) -> bool {
        self.device == device
    }

    /// The stream. The reference must not outlive the call that found it, nor a call that may use the pool.
    #[inline(always)]
    pub fn stream<'a>(&self) -> &'a Stream {
        // SAFETY: `add_entry` entered a stream that this thread's list keeps alive until `remove_entries`, and this
        // thread is in neither.
        unsafe { &*self.stream }
    }
}

static ENTRIES: [[Entry; WAYS]; SETS] = [const { [const { Entry::new() }; WAYS] }; SETS];

#[inline(always)]
fn ways(thread: usize, handle: StreamHandle) -> &'static [Entry; WAYS] {
    // Fibonacci hashing (Knuth, volume 3, 6.4): the highest bits depend on all bits of both numbers. The pool's number
    // is left out, although two pools then share an index for one stream: it would have to be loaded first, and the
    // whole fast path waits for the index.
    let mixed = (thread as u64).wrapping_add(handle.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &ENTRIES[(mixed >> (u64::BITS - SETS.ilog2())) as usize]
}

/// The first entry of this thread for that name that `fits`.
#[inline(always)]
pub(crate) fn find(pool: u64, handle: StreamHandle, fits: impl Fn(&CachedStream) -> bool) -> Option<CachedStream> {
    let thread = this_thread();
    ways(thread, handle).iter().find_map(|entry| entry.get(thread, pool, handle).filter(|known| fits(known)))
}

/// Adds an entry for this thread, if there is a free one.
///
/// # Safety
/// The stream lives until this thread calls [`remove_entries`], which it does before it ends.
unsafe fn add_entry(known: CachedStream) {
    let thread = this_thread();
    let free =
        |entry: &&Entry| entry.owner.compare_exchange(NO_THREAD, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(entry) = ways(thread, known.handle).iter().find(free) else { return };
    entry.known.set(known);
}

/// Removes this thread's entries for streams of that handle.
fn remove_entries(handle: StreamHandle) {
    let thread = this_thread();
    let own = ways(thread, handle).iter().filter(|entry| entry.owner.load(Ordering::Relaxed) == thread);
    own.for_each(|entry| entry.owner.store(NO_THREAD, Ordering::Release));
}

/// Makes a forked child drop all entries: its one thread has the number of a thread of the parent.
pub(crate) fn watch_fork() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to atomics.
    ONCE.call_once(|| unsafe { process::when_forked(remove_all_entries) });
}

extern "C" fn remove_all_entries() {
    let used = |entry: &&Entry| entry.owner.load(Ordering::Relaxed) != NO_THREAD;
    ENTRIES.iter().flatten().filter(used).for_each(|entry| entry.owner.store(NO_THREAD, Ordering::Relaxed));
}

// ---- references to the streams ---------------------------------------------------------------------------

/// A stream that this thread used lately.
struct Recent {
    pool: u64,
    device: DeviceId,
    handle: StreamHandle,
    stream: Arc<Stream>,
}

/// Keeps the streams of this thread's entries alive, oldest first.
struct Recents(RefCell<Vec<Recent>>);

impl Recents {
    /// Removes the entries, calls `edit` with the list, and adds the entries again. Does nothing if called from a drop
    /// inside `edit`.
    fn change(&self, edit: impl FnOnce(&mut Vec<Recent>)) {
        let Ok(mut recent) = self.0.try_borrow_mut() else { return };
        recent.iter().for_each(|recent| remove_entries(recent.handle));
        edit(&mut recent);
        for &Recent { pool, device, handle, ref stream } in recent.iter() {
            let known = CachedStream { pool, handle, stream: Arc::as_ptr(stream), device: device.0 as i32 };
            // SAFETY: the list keeps the stream alive and removes its entries before it changes or the thread ends.
            unsafe { add_entry(known) };
        }
    }
}

impl Drop for Recents {
    fn drop(&mut self) {
        if process::is_forked() {
            // The streams are the parent's. They are not dropped, even if this is the last reference.
            std::mem::forget(self.0.take());
            return;
        }
        self.change(Vec::clear);
    }
}

thread_local! {
    static RECENT: Recents = const { Recents(RefCell::new(Vec::new())) };
}

/// Changes this thread's list. Does nothing while the thread ends.
fn change(edit: impl FnOnce(&mut Vec<Recent>)) {
    let _ = RECENT.try_with(|recent| recent.change(edit));
}

/// Adds a stream to this thread's list, in place of the oldest if the list is full.
#[cold]
pub(crate) fn remember(pool: u64, stream: &Arc<Stream>) {
    let (device, handle, stream) = (stream.gpu.device, stream.handle, Arc::clone(stream));
    change(|recent| {
        recent.retain(|entry| (entry.pool, entry.device, entry.handle) != (pool, device, handle));
        if recent.len() == MAX_STREAMS {
            recent.remove(0);
        }
        recent.push(Recent { pool, device, handle, stream });
    });
}

/// Removes a pool's streams from this thread's list.
pub(crate) fn forget(pool: u64) {
    change(|recent| recent.retain(|entry| entry.pool != pool));
}

/// A counted reference to the stream of that handle on a device, if this thread used it lately.
pub(crate) fn recall(pool: u64, device: i32, handle: StreamHandle) -> Option<Arc<Stream>> {
    let recalled = RECENT.try_with(|Recents(recent)| {
        let recent = recent.try_borrow().ok()?;
        let fits = |entry: &&Recent| entry.handle == handle && entry.pool == pool && entry.device.0 as i32 == device;
        recent.iter().find(fits).map(|entry| Arc::clone(&entry.stream))
    });
    recalled.ok().flatten()
}
