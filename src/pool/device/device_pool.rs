//! The pool of one device, composed of its parts. Its operations are in the files beside it and in `report/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::backing::Backing;
use super::chunks;
use super::pressure::Pressure;
use super::state::State;
use crate::arena::{Arena, ArenaOptions};
use crate::block::{Header, State as BlockState, Table};
use crate::driver::{Driver, ErrorKind, Physical, Place};
use crate::error::{Error, Result};
use crate::pool::bad_free::bad_free;
use crate::pool::cache::stream::{Layout, Stream};
use crate::pool::graph::routes::Routes;
use crate::pool::options::{Options, effective_limit};
use crate::pool::order::gpu::Gpu;
use crate::pool::streams::live_peak::LivePeak;
use crate::pool::streams::registry::{Streams, refuse_per_thread};
use crate::units::{Address, DeviceId, GRANULE, StreamHandle};

/// Requests up to this many bytes live in the zone of small blocks.
const SMALL: u64 = 256 << 10;

const _: () = assert!(
    Table::short(SMALL / GRANULE) == crate::pool::cache::stream_cache::StreamCache::SHORT,
    "the stream cache and the table agree on which blocks are short"
);

/// The pool of one device.
#[derive(Debug)]
pub struct DevicePool {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) backing: Backing,
    pub(crate) layout: Layout,
    /// Pages of the largest chunk, a power of two; 0: follow the pool's size.
    pub(crate) max_chunk_pages: u64,
    /// Whether to take new memory rather than make a stream wait.
    pub(crate) grow_first: bool,
    pub(crate) state: Mutex<State>,
    pub(crate) streams: Streams,
    pub(crate) routes: Routes,
    /// The most bytes that the pool may hold.
    pub(crate) limit: AtomicU64,
    pub(crate) live_peak: LivePeak,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) times: Times,
}

/// The time spent on requests that no free memory could serve, in nanoseconds since the pool was made.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Searching for memory, and driver calls.
    pub making: AtomicU64,
    /// Waiting for the GPU, and reclaiming memory from other pools and callbacks.
    pub waiting: AtomicU64,
}

/// Adds `time` to a sum.
pub(crate) fn add_time(sum: &AtomicU64, time: Duration) {
    sum.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl DevicePool {
    /// Reserves the addresses of a device's pool. Takes no memory yet.
    pub(crate) fn new(
        driver: Arc<dyn Driver>,
        device: DeviceId,
        options: &Options,
        pressure: Arc<Pressure>,
    ) -> Result<Self> {
        let capabilities = driver.capabilities(device)?;
        let backing = Backing::new(&driver, device, options, &capabilities)?;
        let granularity = backing.granularity;
        if options.max_chunk != 0 && options.max_chunk < granularity {
            let smallest = Err(Error::invalid(format_args!(
                "max_chunk is {} bytes; device {device} maps no less than {granularity} at a time",
                options.max_chunk
            )));
            return backing.unreserve().map_err(Error::from).and(smallest);
        }
        let (base, span) = backing.addresses();
        let pages = span / granularity;
        let shape = ArenaOptions {
            page_granules: granularity / GRANULE,
            pages,
            small_pages: pages / 4,
            small_granules: SMALL / GRANULE,
        };
        let table = Arc::new(Table::new(&shape.table_shape()));
        let arena = Arena::new(shape, Arc::clone(&table));
        let state = Mutex::new(State::new(arena, driver.now()));
        let gpu = Gpu::new(driver, device, capabilities);
        let layout = Layout { base, span, table };
        let pool = Self {
            streams: Streams::new(&gpu, layout.clone()),
            routes: Routes::new(&gpu),
            gpu,
            backing,
            layout,
            max_chunk_pages: options.max_chunk / granularity,
            grow_first: options.grow_first,
            state,
            limit: AtomicU64::new(u64::MAX),
            live_peak: LivePeak::default(),
            pressure,
            times: Times::default(),
        };
        pool.set_limit(options.limit, options.fraction);
        Ok(pool)
    }

    /// Sets the limit to the smaller of the two; 0 means none.
    pub(crate) fn set_limit(&self, bytes: u64, fraction: f64) {
        self.limit.store(effective_limit(self.backing.total, bytes, fraction), Ordering::Relaxed);
    }

    /// The pool's device.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.gpu.device
    }

    /// Where the pool's memory lies.
    #[must_use]
    pub fn place(&self) -> Place {
        self.backing.place()
    }

    /// Whether the memory can be exported to other processes as file descriptors.
    #[must_use]
    pub fn is_shareable(&self) -> bool {
        self.backing.is_shareable()
    }

    // ---- streams -------------------------------------------------------------------------------------

    /// The stream that `handle` names now.
    pub(crate) fn stream(&self, handle: StreamHandle) -> Result<Arc<Stream>> {
        let name = self.streams.name(handle)?;
        if let Some(known) = self.streams.find(name) {
            return Ok(known);
        }
        let mut state = self.state.lock();
        let (memory, is_bound) = state.memory_and_bound();
        self.streams.find_or_add(name, memory, is_bound)
    }

    /// Registers a stream: the caller promises that it lives until it is unregistered, so its frees need no events of
    /// their own.
    pub(crate) fn register(&self, handle: StreamHandle) -> Result<()> {
        refuse_per_thread(handle)?;
        self.streams.register(&*self.stream(handle)?)
    }

    /// Ends the registration. The stream must still be alive in this call; it may be destroyed afterwards.
    pub(crate) fn unregister(&self, handle: StreamHandle) -> Result<()> {
        let stream = self.streams.registered(handle)?;
        let _state = self.state.lock();
        self.streams.unregister(&stream)
    }

    // ---- blocks --------------------------------------------------------------------------------------

    /// The live block that starts at `at`.
    #[inline]
    pub(crate) fn find_live(&self, at: Address) -> Result<(u64, Header)> {
        let header = |start| (start, self.layout.table.read(start));
        match self.layout.granule(at).map(header) {
            Some((start, header)) if header.state() == BlockState::Live && at.0.is_multiple_of(GRANULE) => {
                Ok((start, header))
            }
            _ => Err(self.bad_free(at)),
        }
    }

    #[cold]
    pub(crate) fn bad_free(&self, at: Address) -> Error {
        let Layout { table, .. } = &self.layout;
        let granule = self.layout.granule(at);
        let block = granule.and_then(|granule| self.state.lock().memory.arena.containing(granule));
        // The arena counts a block in a stream cache as live; its user has freed it.
        let live = block.filter(|&(block, _)| table.read(block).state() == BlockState::Live);
        bad_free(at, granule.is_some(), live.map(|(start, granules)| (self.layout.address(start), granules * GRANULE)))
    }

    /// The live block that contains an address: its start and length in bytes.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block is there.
    pub fn block_around(&self, at: Address) -> Result<(Address, u64)> {
        let Layout { table, .. } = &self.layout;
        let found = self.layout.granule(at).and_then(|granule| self.state.lock().memory.arena.containing(granule));
        let live = found.map(|(start, _)| (start, table.read(start)));
        let live = live.filter(|(_, header)| header.state() == BlockState::Live);
        let block = live.map(|(start, header)| (self.layout.address(start), header.granules() * GRANULE));
        // The span of a small block can lie in a zone of large ones, so its last bytes may belong to no block.
        block.filter(|&(start, bytes)| at.0 - start.0 < bytes).ok_or_else(|| self.bad_free(at))
    }

    /// Stores the slack of the new block at `at`. pre: no other thread knows the block yet.
    pub(crate) fn set_slack(&self, at: Address, slack: impl FnOnce(u64) -> u32) {
        if let Some(cell) = self.layout.granule(at).and_then(|start| self.layout.table.cell(start)) {
            cell.set_slack(slack(cell.read().granules()));
        }
    }

    // ---- peaks ---------------------------------------------------------------------------------------

    /// Resets the live peak to the bytes live now.
    pub(crate) fn reset_live_peak(&self) {
        self.live_peak.reset(&self.streams);
    }

    /// Resets the physical peak to the bytes held now.
    pub(crate) fn reset_physical_peak(&self) {
        let mut state = self.state.lock();
        state.counts.physical_peak = chunks::held(&self.backing, &state);
    }

    // ---- the end -------------------------------------------------------------------------------------

    /// Gives all memory back, that of live blocks included.
    pub(crate) fn close(&self) {
        let Gpu { driver, device, .. } = &*self.gpu;
        let synchronize = || driver.synchronize(*device);
        // At the end of the process the driver may be gone; then there is nothing to wait for.
        if let Err(error) = synchronize().or_else(|_| synchronize())
            && error.kind != ErrorKind::Deinitialized
        {
            tracing::warn!(%device, %error, "closing a pool: waiting for the device failed");
        }
        let mut state = self.state.lock();
        let exports = std::mem::take(&mut state.exports);
        exports.into_values().flatten().for_each(|export| (export.on_free)());
        // Nothing retries later, so each call is tried twice.
        let again = |what: &str, call: &dyn Fn() -> crate::driver::Result<()>| {
            if let Err(error) = call().or_else(|_| call()) {
                tracing::warn!(%device, %error, "{what} failed while closing a pool");
            }
        };
        for (_, old) in std::mem::take(&mut state.retiring) {
            again("unmap", &|| self.backing.unmap(old.page, old.pages));
        }
        for chunk in state.memory.arena.all_chunks() {
            again("unmap", &|| self.backing.unmap(chunk.page, chunk.pages));
            again("release", &|| self.backing.release(Physical(chunk.handle)));
        }
        for &(physical, _) in state.orphans.iter().chain(&state.prepared) {
            again("release", &|| self.backing.release(physical));
        }
        again("unreserve", &|| self.backing.unreserve());
        *state = State::new(Arena::closed(), driver.now());
        self.streams.end();
        self.gpu.end();
    }
}
