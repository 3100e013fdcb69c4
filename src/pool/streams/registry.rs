//! Finding, registering and forgetting streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::ordered_arena::OrderedArena;
use crate::error::{Error, Result};
use crate::pool::cache::stream::{Counts, Layout, Stream};
use crate::pool::cache::stream_fences::identity;
use crate::pool::order::event_pair::EventPair;
use crate::pool::order::gpu::Gpu;
use crate::units::StreamHandle;

/// At least so many more streams become known before those that are of no more use are looked for: as many as there were in all, so that
/// a stream's share of the looking does not grow with their number.
const SWEEP_EVERY: usize = 64;
/// Headers name a stream's slot in 16 bits.
const MOST: usize = 1 << 16;

/// What a handle and an identity name.
pub(crate) type Name = (StreamHandle, u64);

/// The streams of a device's pool.
#[derive(Debug)]
pub(crate) struct Streams {
    gpu: Arc<Gpu>,
    layout: Layout,
    list: RwLock<List>,
    /// Whether private pools take allocations, as the streams' fast paths know it. Changed under `switching`, as these are.
    routed: AtomicBool,
    switching: Mutex<()>,
}

/// By slot and by name.
#[derive(Debug, Default)]
pub(crate) struct List {
    slots: Vec<Option<Arc<Stream>>>,
    /// Slots that are none's.
    vacant: Vec<u16>,
    by_name: HashMap<Name, Arc<Stream>>,
    /// When so many are known, those that are of no more use are forgotten.
    sweep_at: usize,
    /// The counts of those that were forgotten: what was allocated, freed and served from a cache.
    past: Counts,
}

impl List {
    pub fn all(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.slots.iter().flatten()
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn by_slot(&self, slot: u16) -> Option<&Arc<Stream>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// Of the streams that were forgotten.
    pub fn past(&self) -> Counts {
        self.past
    }

    /// Forgets streams that hold nothing, that nobody is using, and whose handle may be dead. `is_bound`: others keep its slot.
    fn sweep(&mut self, memory: &mut OrderedArena, is_bound: impl Fn(&Stream) -> bool) {
        for slot in 0..self.slots.len() {
            let Some(stream) = self.slots[slot].as_ref() else { continue };
            // Two holds are the list's own; a third is somebody at work with it, or about to be.
            let unused = Arc::strong_count(stream) == 2 && stream.live.load(Ordering::Relaxed) == 0;
            if stream.is_durable() || !unused || is_bound(stream) {
                continue;
            }
            let stream = Arc::clone(stream);
            memory.drain(&stream);
            if stream.cover_unfenced() && stream.fences.as_ref().is_some_and(EventPair::passed) {
                memory.arena.promote(stream.owner, u64::MAX);
            }
            if memory.arena.owner_free(stream.owner) > 0 {
                continue;
            }
            let counts = stream.cache_state.lock().counts;
            self.past.allocations += counts.allocations;
            self.past.frees += counts.frees;
            self.past.missed += counts.missed;
            memory.arena.owner_remove(stream.owner);
            memory.forget(stream.slot);
            self.slots[slot] = None;
            self.vacant.push(stream.slot);
            self.by_name.remove(&(stream.handle, stream.identity));
        }
    }
}

/// A thread's default stream is not registered.
pub(crate) fn refuse_per_thread(handle: StreamHandle) -> Result<()> {
    if handle == StreamHandle::PER_THREAD {
        return Err(Error::invalid(
            "stream 2, the calling thread's default stream, cannot be registered: it ends with its thread; \
             it works without being registered",
        ));
    }
    Ok(())
}

impl Streams {
    pub fn new(gpu: &Arc<Gpu>, layout: Layout) -> Self {
        let (list, routed, switching) = (RwLock::default(), AtomicBool::new(false), Mutex::default());
        Self { gpu: Arc::clone(gpu), layout, list, routed, switching }
    }

    /// The streams as they are now. Who changes the list has the arena's lock too.
    pub fn read(&self) -> RwLockReadGuard<'_, List> {
        self.list.read()
    }

    pub fn by_slot(&self, slot: u16) -> Option<Arc<Stream>> {
        self.list.read().by_slot(slot).cloned()
    }

    /// What a handle names now.
    pub fn name(&self, handle: StreamHandle) -> Result<Name> {
        let handle = handle.canonical();
        let identity = match identity(&self.gpu, handle)? {
            Some(identity) => identity,
            // The last that had this handle will do: a captured stream gets private memory only, and that is
            // never ordered by a fence.
            None => {
                let list = self.list.read();
                let known = list.all().filter(|known| known.handle == handle).map(|known| known.identity);
                known.max().unwrap_or(0)
            }
        };
        Ok((handle, identity))
    }

    pub fn find(&self, name: Name) -> Option<Arc<Stream>> {
        self.list.read().by_name.get(&name).cloned()
    }

    /// The stream of that name, known from now on. Under the arena's lock. `is_bound`: a stream's slot must stay its own.
    ///
    /// # Errors
    /// There are as many as headers can name.
    pub fn find_or_add(
        &self,
        name: Name,
        memory: &mut OrderedArena,
        is_bound: impl Fn(&Stream) -> bool,
    ) -> Result<Arc<Stream>> {
        let (handle, identity) = name;
        let mut list = self.list.write();
        if let Some(known) = list.by_name.get(&name) {
            return Ok(Arc::clone(known));
        }
        if list.by_name.len() + 1 >= list.sweep_at.clamp(SWEEP_EVERY, MOST + 1) {
            list.sweep(memory, is_bound);
            list.sweep_at = list.by_name.len() + list.by_name.len().max(SWEEP_EVERY);
        }
        let fences = if handle.is_legacy() { None } else { Some(EventPair::new(&self.gpu)?) };
        let slot = match list.vacant.last() {
            Some(&slot) => slot,
            None => u16::try_from(list.slots.len()).map_err(|_| {
                Error::invalid(format_args!(
                    "device {} has {MOST} streams that are registered or have memory, which is the limit: destroy or unregister some, \
                     and free what they have",
                    self.gpu.device
                ))
            })?,
        };
        let owner = memory.arena.owner_add(false);
        let stream = Stream::new((slot, handle, identity), &self.gpu, owner, fences, self.layout.clone());
        // Who opens or shuts all of them looks for it after he has said so.
        stream.open_or_shut(self.routed.load(Ordering::Acquire));
        if list.vacant.pop().is_none() {
            list.slots.push(None);
        }
        list.slots[usize::from(slot)] = Some(Arc::clone(&stream));
        list.by_name.insert(name, Arc::clone(&stream));
        Ok(stream)
    }

    /// Promises that a stream lives until it is unregistered: its frees need no event of their own.
    pub fn register(&self, stream: &Stream) -> Result<()> {
        stream.hold_back_heir()?;
        self.set_durable(stream, true);
        Ok(())
    }

    /// The stream that [`Streams::unregister`] is for.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was not registered, [`Error::Capturing`] while it is captured.
    pub fn registered(&self, handle: StreamHandle) -> Result<Arc<Stream>> {
        let handle = handle.canonical();
        let captured = || Error::Capturing(format!("stream {handle} is being captured: end the capture first").into());
        let identity = identity(&self.gpu, handle)?.ok_or_else(captured)?;
        self.find((handle, identity)).filter(|stream| stream.is_registered()).ok_or_else(|| {
            Error::NotFound(format!("stream {handle} of device {} is not registered", self.gpu.device).into())
        })
    }

    /// Ends that promise. The stream is still alive in this call, and may be destroyed after it. Under the arena's lock: other threads
    /// on the slow path may be about to use the handle, and look at the promise there.
    pub fn unregister(&self, stream: &Stream) -> Result<()> {
        if let Some(fences) = &stream.fences {
            stream.record(fences)?;
        }
        self.set_durable(stream, false);
        Ok(())
    }

    fn set_durable(&self, stream: &Stream, durable: bool) {
        let _one_at_a_time = self.switching.lock();
        stream.set_durable(durable);
        stream.open_or_shut(self.routed.load(Ordering::Acquire));
    }

    /// Opens the fast paths of all streams, or shuts them: as private pools take allocations (`is_routed`).
    pub fn open_or_shut(&self, is_routed: impl FnOnce() -> bool) {
        let _one_at_a_time = self.switching.lock();
        let routed = is_routed();
        self.routed.store(routed, Ordering::Release);
        self.list.read().all().for_each(|stream| stream.open_or_shut(routed));
    }

    /// Forgets all of them. Threads that used one lately keep it in memory; what it has of the driver goes now.
    pub fn end(&self) {
        let list = std::mem::take(&mut *self.list.write());
        list.all().filter_map(|stream| stream.fences.as_ref()).flat_map(EventPair::both).for_each(|fence| fence.end());
    }
}
