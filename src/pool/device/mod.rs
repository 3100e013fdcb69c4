//! One device's pool: the fast ways in and out. What they cannot serve goes to `room.rs` and `settle.rs`.
//!
//! Locks, always taken in this order: `inner` (the arena), then one stream's `hot`, then `peaks`.
//! A hit takes its stream's `hot` alone; one that the front cannot serve tries for `inner` under it, and never waits for it
//! there. Nothing waits for the GPU under `inner`.

pub(crate) mod backing;
pub(crate) mod export;
mod peers;
pub(crate) mod pressure;
pub(crate) mod reclaim;
pub(crate) mod scavenger;
pub(crate) mod slow_path;
pub(crate) mod state;
pub(crate) mod times;
pub(crate) mod trim;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use self::backing::Backing;
use self::pressure::Pressure;
use self::scavenger::Tidier;
use self::slow_path::Asker;
use self::state::Inner;
use self::times::Times;
use crate::arena::{Arena, ArenaOptions, IDLE};
use crate::block::{Header, State, Table};
use crate::driver::{Capabilities, Capture, Driver, DriverError, ErrorKind, Place};
use crate::error::{Error, Result};
use crate::pool::cache::lock::{ARENA, Biased, Seat, Sleeping};
use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::{Cached, Front};
use crate::pool::graph::private::Route;
use crate::pool::options::Options;
use crate::pool::order::fence::Events;
use crate::units::{Address, DeviceId, GRAIN, StreamHandle};

/// Requests up to this many bytes live in the zone of small blocks.
pub(crate) const SMALL: u64 = 256 << 10;

/// The arena is so many times as long as the device's memory: moved chunks leave holes behind, and
/// addresses cost nothing.
const ADDRESSES_PER_BYTE: u64 = 16;

/// The pool of one device.
#[derive(Debug)]
pub struct DevicePool {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) device: DeviceId,
    pub(crate) capabilities: Capabilities,
    pub(crate) options: Options,
    pub(crate) backing: Backing,
    /// Start and length of the reservation.
    pub(crate) base: Address,
    pub(crate) span: u64,
    pub(crate) table: Arc<Table>,
    pub(crate) inner: Biased<Inner, Sleeping, ARENA>,
    pub(crate) streams: RwLock<Streams>,
    /// Private pools that take allocations now; 0 on the fast way.
    pub(crate) routes: RwLock<Vec<Route>>,
    pub(crate) routing: AtomicUsize,
    /// Whether there are any, as the streams' quick ways know it. Changed under `switching`, as these are.
    pub(crate) routed: AtomicBool,
    pub(crate) switching: Mutex<()>,
    /// Most bytes to hold.
    pub(crate) limit: AtomicU64,
    pub(crate) peaks: Mutex<Peaks>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) events: Arc<Events>,
    pub(crate) times: Times,
    /// Gives idle memory back, where the options say so.
    pub(crate) tidier: Mutex<Option<Tidier>>,
}

/// The streams a device's pool knows.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub slots: Vec<Option<Arc<Stream>>>,
    /// Slots that are none's.
    pub vacant: Vec<u16>,
    pub by_key: HashMap<(StreamHandle, u64), Arc<Stream>>,
    /// When so many are known, those that are of no more use are forgotten.
    pub sweep_at: usize,
}

impl Streams {
    pub fn all(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.slots.iter().flatten()
    }
}

/// Highest figures so far, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    pub live: u64,
    /// Since [`DevicePool::recent_peak`] asked last.
    pub recent: u64,
    /// By so much streams may still rise beyond their marks.
    pub kept_back: u64,
}

impl DevicePool {
    /// Reserves the addresses of a device's pool; no memory is taken yet.
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
            return Err(Error::invalid(format_args!(
                "max_chunk is {} bytes; device {device} maps no less than {granularity} at a time",
                options.max_chunk
            )));
        }
        let span = (backing.total * ADDRESSES_PER_BYTE).next_multiple_of(granularity);
        let base = backing.reserve(span)?;
        let pages = span / granularity;
        let shape = ArenaOptions {
            page_grains: granularity / GRAIN,
            pages,
            small_pages: pages / 4,
            small_grains: SMALL / GRAIN,
            max_chunk_pages: options.max_chunk / granularity,
        };
        let table = Arc::new(Table::new(&shape.table_shape()));
        let arena = Arena::new(shape, Arc::clone(&table));
        let pool = Self {
            events: Events::new(&driver, device),
            inner: Biased::new(Inner::new(arena, driver.now())),
            driver,
            device,
            capabilities,
            options: options.clone(),
            base,
            span,
            table,
            backing,
            streams: RwLock::default(),
            routes: RwLock::default(),
            routing: AtomicUsize::new(0),
            routed: AtomicBool::new(false),
            switching: Mutex::default(),
            limit: AtomicU64::new(u64::MAX),
            peaks: Mutex::default(),
            pressure,
            times: Times::default(),
            tidier: Mutex::default(),
        };
        pool.limit.store(pool.effective_limit(options.limit, options.fraction), Ordering::Relaxed);
        Ok(pool)
    }

    /// The smaller of two limits, each 0 for none.
    pub(crate) fn effective_limit(&self, bytes: u64, fraction: f64) -> u64 {
        let bytes = if bytes == 0 { u64::MAX } else { bytes };
        if fraction == 0.0 {
            return bytes;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of memory need not be exact to the byte"
        )]
        let share = (self.backing.total as f64 * fraction) as u64;
        // 0 would read as no limit.
        bytes.min(share.max(1))
    }

    /// Which device this is.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Where its memory lies.
    #[must_use]
    pub fn place(&self) -> Place {
        self.backing.place()
    }

    /// Whether its memory can be given to other processes as file descriptors.
    #[must_use]
    pub fn is_shareable(&self) -> bool {
        self.backing.is_shareable()
    }

    // ---- out -----------------------------------------------------------------------------------------

    /// Gives out `grains` on `stream`, charged to framework `tag`.
    pub(crate) fn allocate(&self, stream: &Arc<Stream>, grains: u64, tag: u8, captured: bool) -> Result<Address> {
        if let Some(id) = self.route_of(stream.handle) {
            return self.allocate_private(id, stream, grains, tag);
        }
        if captured {
            return Err(refuse_capture(stream));
        }
        if !stream.is_durable() {
            self.hold_back_heir(stream)?;
        }
        let cached = stream.hot.enter(None).pop(grains);
        let start = match cached {
            Some(start) => start,
            None => {
                // A hit asks nobody; here one driver call more is nothing.
                let capturable = stream.is_durable() && !Self::lives_forever(stream.handle);
                if capturable && self.driver.stream_capture(self.device, stream.handle)? != Capture::None {
                    return Err(refuse_capture(stream));
                }
                self.make_room(stream, grains)?
            }
        };
        self.table.write(start, Header::live(grains, stream.slot, tag, false));
        self.book(stream, grains, tag, cached.is_some());
        Ok(self.address(start))
    }

    /// Gives out memory whose every use is proven to be over.
    pub(crate) fn allocate_ready(&self, stream: &Arc<Stream>, grains: u64, tag: u8, captured: bool) -> Result<Address> {
        if captured {
            return Err(refuse_capture(stream));
        }
        let cached = self.pop_passed(stream, grains);
        let start = match cached {
            Some(start) => start,
            None => self.room_for(Asker { stream, owner: IDLE, private: true }, grains)?,
        };
        self.table.write(start, Header::live(grains, stream.slot, tag, false));
        self.book(stream, grains, tag, cached.is_some());
        Ok(self.address(start))
    }

    /// A block from the stream's front cache, if everything there is proven unused. Its fence is raised before a block is
    /// put there, or the block is bare, so under the lock a fence that has passed covers them all.
    fn pop_passed(&self, stream: &Stream, grains: u64) -> Option<u64> {
        let fences = stream.own_fences()?;
        let mut hot = stream.hot.enter(None);
        if hot.bare.is_none() && fences.passed() { hot.front.pop(grains) } else { None }
    }

    /// Books a block as live. `hit`: the front had it.
    pub(crate) fn book(&self, stream: &Stream, grains: u64, tag: u8, hit: bool) {
        let peak = {
            let mut hot = stream.hot.enter(None);
            hot.counts.missed += u64::from(!hit);
            stream.charge(&mut hot, grains, tag)
        };
        if peak {
            self.rose(stream);
        }
    }

    // ---- in ------------------------------------------------------------------------------------------

    /// Takes a block back in the order of `stream`.
    pub(crate) fn free(&self, stream: &Arc<Stream>, at: Address, captured: bool) -> Result<()> {
        let (start, header) = self.find_live(at)?;
        if header.is_special() {
            return self.free_special(stream, start, header, Freeing { behind: Behind::Stream, captured });
        }
        if !self.take_from(stream, start, header) {
            return self.free_contended(stream, at, captured);
        }
        if let Err(error) = self.raise_own(stream, captured) {
            tracing::debug!(device = %self.device, %error, "a free could not be fenced; its block waits for the device");
            self.inner.lock().quarantine.push((start, stream.owner));
            return Ok(());
        }
        let block = Cached { start, grains: header.grains() };
        if header.stream() != stream.slot && Front::is_long(block.grains) {
            self.hand_back(stream, block);
            return Ok(());
        }
        let left = stream.hot.enter(None).push(block);
        if let Some(block) = left {
            self.give_back(stream, block, None);
        }
        Ok(())
    }

    /// Takes a block back in the order of `stream` and of the stream it was allocated on, which may be dead.
    pub(crate) fn free_behind_both(&self, stream: &Arc<Stream>, at: Address, captured: bool) -> Result<()> {
        let (start, header) = self.find_live(at)?;
        if header.stream() == stream.slot {
            return self.free(stream, at, captured);
        }
        self.free_special(stream, start, header, Freeing { behind: Behind::Allocation, captured })
    }

    /// Takes a block back in the order of `stream` and of everything else that the device has now.
    pub(crate) fn free_behind_everything(&self, stream: &Arc<Stream>, at: Address, captured: bool) -> Result<()> {
        let (start, header) = self.find_live(at)?;
        self.free_special(stream, start, header, Freeing { behind: Behind::Everything, captured })
    }

    /// Takes a block that a front cache did not keep.
    #[inline(never)]
    pub(crate) fn give_back(&self, stream: &Stream, block: Cached, seat: Option<&'static Seat>) {
        self.inner.enter(seat).give(block.start, stream.slot, stream.owner);
    }

    /// Ends a live block's life in the books, if its header still says so.
    fn take_from(&self, stream: &Stream, start: u64, header: Header) -> bool {
        if header.stream() == stream.slot { self.take_charged(stream, start, header) } else { self.take(start, header) }
    }

    /// The same where the stream that the block is charged to has to be looked up.
    pub(crate) fn take(&self, start: u64, header: Header) -> bool {
        let streams = self.streams.read();
        match streams.slots.get(header.stream() as usize).and_then(Option::as_ref) {
            Some(charged) => self.take_charged(charged, start, header),
            None => self.table.swap(start, header, header.cached()),
        }
    }

    fn take_charged(&self, charged: &Stream, start: u64, header: Header) -> bool {
        let mut hot = charged.hot.enter(None);
        let ours = self.table.swap(start, header, header.cached());
        if ours {
            charged.credit(&mut hot, header.grains(), header.tag());
        }
        ours
    }

    /// Another thread changed the header under us: it freed the block, or recorded a further use of it.
    #[cold]
    fn free_contended(&self, stream: &Arc<Stream>, at: Address, captured: bool) -> Result<()> {
        let (start, header) = self.find_live(at)?;
        if header.is_special() {
            self.free_special(stream, start, header, Freeing { behind: Behind::Stream, captured })
        } else {
            Err(self.bad_free(at))
        }
    }

    /// Changes a live block's header, if it still says `old`. Under the lock of the stream the block is
    /// charged to, as a hit does: of two that want to change it, one gets `true`.
    pub(crate) fn change_header(&self, start: u64, old: Header, new: Header) -> bool {
        let streams = self.streams.read();
        let charged = streams.slots.get(old.stream() as usize).and_then(Option::as_ref);
        let _hot = charged.map(|stream| stream.hot.enter(None));
        self.table.swap(start, old, new)
    }

    /// Raises the fence of a stream whose handle may be dead after this call; others need none.
    pub(crate) fn raise_own(&self, stream: &Stream, captured: bool) -> crate::driver::Result<()> {
        let Some(fences) = stream.own_fences() else { return Ok(()) };
        if captured {
            // The record would become part of the graph and stand for nothing.
            let why = format!("stream {} is being captured", stream.handle);
            return Err(DriverError::new(ErrorKind::Capturing, "event record", why));
        }
        let raised = self.hold_back_heir(stream).and_then(|()| self.raise_fence(stream, fences));
        match raised {
            // The process is ending: no work will run that could be disturbed.
            Err(error) if error.kind == ErrorKind::Deinitialized => Ok(()),
            result => result,
        }
    }

    /// Where streams cannot be told apart, another one may have taken the handle over: it is ordered behind
    /// what the old one freed.
    pub(crate) fn hold_back_heir(&self, stream: &Stream) -> crate::driver::Result<()> {
        match &stream.fences {
            Some(fences) if !self.capabilities.stream_identity => fences.hold_back(stream.handle),
            _ => Ok(()),
        }
    }

    // ---- addresses -----------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn address(&self, start: u64) -> Address {
        self.base.plus(start * GRAIN)
    }

    /// The grain at an address of this device's pool, whatever is there.
    #[inline]
    pub(crate) fn grain(&self, at: Address) -> Option<u64> {
        let offset = at.0.wrapping_sub(self.base.0);
        (offset < self.span).then_some(offset / GRAIN)
    }

    /// Whether the address lies in the reservation.
    #[inline]
    pub(crate) fn spans(&self, at: Address) -> bool {
        at.0.wrapping_sub(self.base.0) < self.span
    }

    /// Whether the address belongs to this device's pool.
    #[inline]
    pub(crate) fn contains(&self, at: Address) -> bool {
        self.grain(at).is_some()
    }

    #[inline]
    pub(crate) fn find_live(&self, at: Address) -> Result<(u64, Header)> {
        let header = |start| (start, self.table.read(start));
        match self.grain(at).map(header) {
            Some((start, header)) if header.state() == State::Live && at.0.is_multiple_of(GRAIN) => Ok((start, header)),
            _ => Err(self.bad_free(at)),
        }
    }

    #[cold]
    pub(crate) fn bad_free(&self, at: Address) -> Error {
        let text = match self.grain(at) {
            None => format!("{at} is not memory of this pool: free it where it was allocated"),
            Some(start) => {
                let block = self.inner.lock().arena.containing(start);
                // What waits in a front cache is live for the arena, and freed for its user.
                match block.filter(|&(block, _)| self.table.read(block).state() == State::Live) {
                    Some((block, grains)) => format!(
                        "{at} lies {} bytes inside the live block of {} bytes at {}: only its start can be freed",
                        at.0 - self.address(block).0,
                        grains * GRAIN,
                        self.address(block)
                    ),
                    None => format!("{at} is not live: it was freed before, or never given out"),
                }
            }
        };
        Error::BadFree(text.into())
    }

    /// The live block that contains an address: its start and length in bytes.
    pub fn block_around(&self, at: Address) -> Result<(Address, u64)> {
        let found = self.grain(at).and_then(|grain| self.inner.lock().arena.containing(grain));
        let live =
            found.map(|(start, _)| (start, self.table.read(start))).filter(|(_, header)| header.state() == State::Live);
        let block = live.map(|(start, header)| (self.address(start), header.grains() * GRAIN));
        // Behind a small block among large ones there may be memory that is nobody's.
        block.filter(|&(start, bytes)| at.0 - start.0 < bytes).ok_or_else(|| self.bad_free(at))
    }

    /// Whether the handle always names the same living stream.
    pub(crate) fn lives_forever(handle: StreamHandle) -> bool {
        handle.is_legacy()
    }
}

/// Which work a block that comes back may still be used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// What the freeing stream has now.
    Stream,
    /// Also what the stream of the allocation has, whether that is alive or not.
    Allocation,
    /// Also what every other stream of the device has.
    Everything,
}

/// How a block comes back.
#[derive(Clone, Copy)]
pub(crate) struct Freeing {
    pub behind: Behind,
    /// The freeing stream is being captured.
    pub captured: bool,
}

/// What a graph uses must not be anybody's memory.
fn refuse_capture(stream: &Stream) -> Error {
    Error::Capturing(
        format!(
            "stream {} is being captured: memory for a graph must come from a private pool, begun with \
             forebay_private_begin before the capture",
            stream.handle
        )
        .into(),
    )
}
