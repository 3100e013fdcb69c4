//! The list of known streams: finding, registering and removing them.

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

/// Unused streams are removed when as many streams were added as there were, but at least this many: so the cost per
/// stream does not grow with their number.
const SWEEP_EVERY: usize = 64;
/// Block headers have 16 bits for a stream's slot.
const MAX_STREAMS: usize = 1 << 16;

/// A handle, and the identity that tells the streams with this handle apart.
pub(crate) type Name = (StreamHandle, u64);

/// The streams of a device's pool.
#[derive(Debug)]
pub(crate) struct Streams {
    gpu: Arc<Gpu>,
    layout: Layout,
    list: RwLock<List>,
    /// Whether private pools take allocations, as set in the streams' fast paths. Changed with them under `switching`.
    routed: AtomicBool,
    switching: Mutex<()>,
}

/// Streams by slot and by name.
#[derive(Debug, Default)]
pub(crate) struct List {
    slots: Vec<Option<Arc<Stream>>>,
    /// Slots without a stream.
    vacant: Vec<u16>,
    by_name: HashMap<Name, Arc<Stream>>,
    /// The number of streams at which unused ones are removed.
    sweep_at: usize,
    /// The sums of the removed streams' allocations, frees and misses.
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

    /// The counts of removed streams.
    pub fn past(&self) -> Counts {
        self.past
    }

    /// Removes streams that have no memory, that no thread uses, and whose handle may be dead. `is_bound`: other state
    /// still names the stream.
    fn sweep(&mut self, memory: &mut OrderedArena, is_bound: impl Fn(&Stream) -> bool) {
        for slot in 0..self.slots.len() {
            let Some(stream) = self.slots[slot].as_ref() else { continue };
            // The list itself has two references; a third belongs to a thread that uses the stream.
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

/// Refuses to register a thread's default stream.
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

    /// The list as it is now. It changes only under the arena's lock.
    pub fn read(&self) -> RwLockReadGuard<'_, List> {
        self.list.read()
    }

    pub fn by_slot(&self, slot: u16) -> Option<Arc<Stream>> {
        self.list.read().by_slot(slot).cloned()
    }

    /// The name of the stream that `handle` names now.
    pub fn name(&self, handle: StreamHandle) -> Result<Name> {
        let handle = handle.canonical();
        let identity = match identity(&self.gpu, handle)? {
            Some(identity) => identity,
            // The newest stream with this handle serves: a captured stream gets only private memory, which no fence
            // ever orders.
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

    /// The stream of that name, which is added if it is new. Under the arena's lock. `is_bound`: the stream's slot must
    /// not be reused.
    ///
    /// # Errors
    /// All slots are in use.
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
        if list.by_name.len() + 1 >= list.sweep_at.clamp(SWEEP_EVERY, MAX_STREAMS + 1) {
            list.sweep(memory, is_bound);
            list.sweep_at = list.by_name.len() + list.by_name.len().max(SWEEP_EVERY);
        }
        let fences = if handle.is_legacy() { None } else { Some(EventPair::new(&self.gpu)?) };
        let slot = match list.vacant.last() {
            Some(&slot) => slot,
            None => u16::try_from(list.slots.len()).map_err(|_| {
                Error::invalid(format_args!(
                    "device {} has {MAX_STREAMS} streams that are registered or have memory, which is the limit: destroy or unregister some, \
                     and free what they have",
                    self.gpu.device
                ))
            })?,
        };
        let owner = memory.arena.owner_add(false);
        let stream = Stream::new((slot, handle, identity), &self.gpu, owner, fences, self.layout.clone());
        // A thread that changes `routed` visits the list afterwards, so it finds this stream.
        stream.update_fast_path(self.routed.load(Ordering::Acquire));
        if list.vacant.pop().is_none() {
            list.slots.push(None);
        }
        list.slots[usize::from(slot)] = Some(Arc::clone(&stream));
        list.by_name.insert(name, Arc::clone(&stream));
        Ok(stream)
    }

    /// Registers a stream: its frees need no events of their own.
    pub fn register(&self, stream: &Stream) -> Result<()> {
        stream.order_reused_handle()?;
        self.set_durable(stream, true);
        Ok(())
    }

    /// The registered stream that `handle` names, for [`Streams::unregister`].
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not registered, [`Error::Capturing`] while it is captured.
    pub fn registered(&self, handle: StreamHandle) -> Result<Arc<Stream>> {
        let handle = handle.canonical();
        let captured = || Error::Capturing(format!("stream {handle} is being captured: end the capture first").into());
        let identity = identity(&self.gpu, handle)?.ok_or_else(captured)?;
        self.find((handle, identity)).filter(|stream| stream.is_registered()).ok_or_else(|| {
            Error::NotFound(format!("stream {handle} of device {} is not registered", self.gpu.device).into())
        })
    }

    /// Ends the registration. The stream must still be alive in this call; it may be destroyed afterwards. Under the
    /// arena's lock: other threads on the slow path check there whether they may use the handle.
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
        stream.update_fast_path(self.routed.load(Ordering::Acquire));
    }

    /// Opens or closes the fast paths of all streams. `is_routed`: whether private pools take allocations.
    pub fn update_fast_path(&self, is_routed: impl FnOnce() -> bool) {
        let _one_at_a_time = self.switching.lock();
        let routed = is_routed();
        self.routed.store(routed, Ordering::Release);
        self.list.read().all().for_each(|stream| stream.update_fast_path(routed));
    }

    /// Removes all streams. Threads that used one lately keep its memory; its driver objects are destroyed now.
    pub fn end(&self) {
        let list = std::mem::take(&mut *self.list.write());
        list.all().filter_map(|stream| stream.fences.as_ref()).flat_map(EventPair::both).for_each(|fence| fence.end());
    }
}
