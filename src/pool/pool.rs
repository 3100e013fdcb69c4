//! The pool as its callers see it: every device of one driver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::cache::hit::{self, Recent};
use super::cache::stream::Stream;
use super::cache::thread_cache;
use super::device::DevicePool;
use super::device::pressure::{Pressure, Source, announce};
use super::device::scavenger::Tidier;
use super::graph::private::Filter;
use super::options::{Location, Options};
use super::report::stats::{Stats, StreamStats};
use super::streams::registry::Standing;
use crate::block::block_grains;
use crate::driver::{self, Choice, Driver};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, GRAIN, StreamHandle};

/// One memory pool per device, shared by whoever holds this.
///
/// Any thread may call anything. Blocks are freed in the order of the stream given to [`Pool::free`];
/// a stream handle must be alive in the call that passes it, and is not used after that call unless it
/// is a default stream, registered, or recorded as a further user of a live block.
#[derive(Debug)]
pub struct Pool {
    id: u64,
    driver: Arc<dyn Driver>,
    options: Options,
    pub(crate) devices: Arc<Devices>,
    /// One device is opened at a time.
    opening: Mutex<()>,
    pub(crate) pressure: Arc<Pressure>,
}

/// A pool's devices, as other pools know them, which may ask them for memory and keep nothing alive by that but this.
#[derive(Debug)]
pub(crate) struct Devices {
    pub open: Box<[OnceLock<Arc<DevicePool>>]>,
    /// Whether the pool has ended. Read-locked by who uses its devices without holding the pool.
    ended: RwLock<bool>,
}

impl Devices {
    fn new(count: u32) -> Self {
        Self { open: (0..count).map(|_| OnceLock::new()).collect(), ended: RwLock::new(false) }
    }

    /// Gives back what one of them can spare, if it was ever used. Returns the bytes that went.
    pub fn trim(&self, device: DeviceId) -> u64 {
        let ended = self.ended.read();
        let home = self.open.get(device.0 as usize).and_then(OnceLock::get).filter(|_| !*ended);
        home.map_or(0, |home| home.trim(0).unwrap_or(0))
    }
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Pool {
    /// A pool of its own. Takes no memory before the first request.
    ///
    /// # Errors
    /// The driver cannot be used, or an option is out of range.
    pub fn new(options: Options) -> Result<Arc<Self>> {
        options.validate()?;
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        let choice = match options.driver {
            Some(choice) => choice,
            None => Choice::from_environment()?,
        };
        Self::with_driver(driver::open(choice)?, options)
    }

    /// The same on a driver that the caller opened.
    ///
    /// # Errors
    /// An option is out of range.
    pub fn with_driver(driver: Arc<dyn Driver>, options: Options) -> Result<Arc<Self>> {
        options.validate()?;
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        driver::process::watch_fork();
        thread_cache::watch_fork();
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let devices = Arc::new(Devices::new(driver.device_count()));
        let source = Source { memory: driver.memory(), host: options.location != Location::Device };
        let pressure = Arc::new(Pressure::new(id, source));
        announce(id, source, Arc::downgrade(&devices));
        Ok(Arc::new(Self { id, driver, options, devices, opening: Mutex::new(()), pressure }))
    }

    /// What tells this pool from every other of the process; never 0.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The driver's name: `"cuda"` or `"host"`.
    #[must_use]
    pub fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    /// The driver under the pool.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// What it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether its memory is the host's.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.options.location != Location::Device
    }

    /// How many devices there are.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.devices.open.len() as u32
    }

    /// One device's pool, opened on first use.
    ///
    /// # Errors
    /// [`Error::BadDevice`], [`Error::Forked`], or the driver's.
    pub fn device(&self, ordinal: i32) -> Result<&Arc<DevicePool>> {
        let place = self.place(ordinal)?;
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let _one_at_a_time = self.opening.lock();
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let device = DeviceId(ordinal.unsigned_abs());
        let fresh = DevicePool::new(Arc::clone(&self.driver), device, &self.options, Arc::clone(&self.pressure))?;
        let fresh = Arc::new(fresh);
        if self.options.give_back_ms > 0 {
            let idle = Duration::from_millis(self.options.give_back_ms.into());
            let tidier = Tidier::start(&fresh, idle).inspect_err(|_| fresh.close())?;
            *fresh.tidier.lock() = Some(tidier);
        }
        Ok(place.get_or_init(|| fresh))
    }

    /// The same, without opening it.
    pub(crate) fn device_if_used(&self, ordinal: i32) -> Result<Option<&Arc<DevicePool>>> {
        Ok(self.place(ordinal)?.get())
    }

    fn place(&self, ordinal: i32) -> Result<&OnceLock<Arc<DevicePool>>> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        let place = usize::try_from(ordinal).ok().and_then(|index| self.devices.open.get(index));
        place.ok_or_else(|| Error::BadDevice { asked: ordinal.into(), count: self.device_count() })
    }

    pub(crate) fn opened(&self) -> impl Iterator<Item = &Arc<DevicePool>> {
        self.devices.open.iter().filter_map(OnceLock::get)
    }

    // ---- memory --------------------------------------------------------------------------------------

    /// Allocates `bytes` on `device`, usable on `stream` from now on. 0 bytes give the null address.
    ///
    /// # Errors
    /// See [`Error`]; nothing was changed.
    #[inline(always)]
    pub fn malloc(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        match self.near(device, stream, DevicePool::is_as_known).and_then(|near| near.malloc(bytes, tag)) {
            Some(address) => Ok(address),
            None => self.malloc_missed(bytes, device, stream, tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn malloc_missed(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        let grains = self.grains(bytes, device)?;
        if grains == 0 {
            return Ok(Address(0));
        }
        self.on_stream(device, stream, |home, stream, captured| {
            Ok(home.asked(bytes, home.allocate(stream, grains, tag, captured)?))
        })
    }

    /// Allocates memory that nothing queued on any stream uses, so that the host may touch it at once: for pools of
    /// pinned memory. Takes what is proven unused, or grows; waits only where neither is possible.
    ///
    /// # Errors
    /// As [`Pool::malloc`].
    pub fn malloc_ready(&self, bytes: u64, device: i32, stream: StreamHandle, tag: u8) -> Result<Address> {
        let grains = self.grains(bytes, device)?;
        if grains == 0 {
            return Ok(Address(0));
        }
        self.on_stream(device, stream, |home, stream, captured| {
            Ok(home.asked(bytes, home.allocate_ready(stream, grains, tag, captured)?))
        })
    }

    /// How many grains a request needs, if it can be made here at all.
    pub(crate) fn grains(&self, bytes: u64, device: i32) -> Result<u64> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        if bytes > i64::MAX as u64 {
            return Err(Error::invalid(format_args!(
                "{bytes} bytes asked for: no size is that large; a negative number reads as one"
            )));
        }
        if bytes == 0 {
            self.device(device)?;
        }
        Ok(block_grains(bytes))
    }

    /// Frees the block that starts at `at`, in the order of `stream`. The null address is fine.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts there; nothing was changed.
    #[inline(always)]
    pub fn free(&self, at: Address, stream: StreamHandle) -> Result<()> {
        self.free_by(at, stream, DevicePool::free)
    }

    /// The same, and also behind what the stream of the allocation has now, whether it is still alive or not: for
    /// callers that free on whatever stream happens to be current.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_behind_both(&self, at: Address, stream: StreamHandle) -> Result<()> {
        self.free_by(at, stream, DevicePool::free_behind_both)
    }

    /// The same behind everything that the device has now, whoever queued it: for memory that was in hands that do not
    /// say which streams used it.
    ///
    /// # Errors
    /// As [`Pool::free`].
    pub fn free_behind_everything(&self, at: Address) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let device = self.device_of(at)?;
        self.on_stream(device, StreamHandle::LEGACY, |home, stream, captured| {
            home.free_behind_everything(stream, at, captured)
        })
    }

    /// The ways to free in the order of a stream differ only where a hit does not do.
    #[inline(always)]
    fn free_by(
        &self,
        at: Address,
        stream: StreamHandle,
        free: impl Fn(&DevicePool, &Arc<Stream>, Address, bool) -> Result<()>,
    ) -> Result<()> {
        let near = self.near_block(at, stream, DevicePool::is_as_known);
        match near.and_then(|near| near.free_fenced(at, |_, _, _| Some(()))) {
            Some(()) => Ok(()),
            None => self.free_missed(at, stream, free),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_missed(
        &self,
        at: Address,
        stream: StreamHandle,
        free: impl Fn(&DevicePool, &Arc<Stream>, Address, bool) -> Result<()>,
    ) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let device = self.device_of(at)?;
        self.on_stream(device, stream, |home, stream, captured| free(home, stream, at, captured))
    }

    /// Notes that the block is also used on `stream`, which must live until the block is freed. The block
    /// is reused only once the work that `stream` has at the time of the free is done.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts at `at`.
    pub fn record_use(&self, at: Address, stream: StreamHandle) -> Result<()> {
        let device = self.device_of(at)?;
        self.on_stream(device, stream, |home, stream, _| home.record_use(stream, at))
    }

    /// The block around an address: its start and its size in bytes, as rounded up to 512.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block is there.
    pub fn block_around(&self, at: Address) -> Result<(Address, u64)> {
        let device = self.device_of(at)?;
        self.device(device)?.block_around(at)
    }

    /// The size in bytes of the block that starts at `at`.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts there.
    pub fn block_size(&self, at: Address) -> Result<u64> {
        let device = self.device_of(at)?;
        let (_, header) = self.device(device)?.find_live(at)?;
        Ok(header.grains() * GRAIN)
    }

    pub(crate) fn device_of(&self, at: Address) -> Result<i32> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        let found = self.opened().find(|home| home.contains(at));
        found.map(|home| home.device().0 as i32).ok_or_else(|| {
            Error::BadFree(format!("{at} is not memory of this pool: free it where it was allocated").into())
        })
    }

    // ---- streams -------------------------------------------------------------------------------------

    /// Calls `work` with what a handle names on a device, from this thread's recent streams where it is there, and
    /// with whether that stream is known to be captured.
    pub(crate) fn on_stream<T>(
        &self,
        device: i32,
        handle: StreamHandle,
        work: impl Fn(&DevicePool, &Arc<Stream>, bool) -> Result<T>,
    ) -> Result<T> {
        let handle = handle.canonical();
        let known = hit::recall(self.id, device, handle, |home, stream| {
            let standing = home.standing(stream);
            (standing != Standing::Stale).then(|| work(home, stream, standing == Standing::Captured))
        });
        if let Some(result) = known {
            return result;
        }
        let home = self.device(device)?;
        let stream = home.stream(handle)?;
        let fresh = Recent {
            pool: self.id,
            device: home.device(),
            handle,
            home: Arc::clone(home),
            stream: Arc::clone(&stream),
        };
        hit::remember(fresh);
        work(home, &stream, home.standing(&stream) == Standing::Captured)
    }

    /// Promises that `stream` lives until [`Pool::stream_unregister`]: its frees then cost no event.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stream_register(&self, device: i32, stream: StreamHandle) -> Result<()> {
        self.device(device)?.register(stream)
    }

    /// Ends the promise; the stream may be destroyed after this call.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was not registered.
    pub fn stream_unregister(&self, device: i32, stream: StreamHandle) -> Result<()> {
        self.device(device)?.unregister(stream)
    }

    /// Destroys a stream that was made for the caller, registered or not. Its queued work still runs.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a default stream. The driver's, and then the stream is as before.
    pub fn stream_destroy(&self, device: i32, stream: StreamHandle) -> Result<()> {
        let home = self.device(device)?;
        let registered = match home.unregister(stream) {
            Err(Error::NotFound(_)) if !stream.is_default() => false,
            other => other.map(|()| true)?,
        };
        if let Err(error) = self.driver.stream_destroy(home.device(), stream) {
            if registered {
                // The call can be made again.
                home.register(stream)?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    // ---- private pools -------------------------------------------------------------------------------

    /// Sends allocations on streams that `takes` accepts to private pool `id`, and holds that pool.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn private_begin(&self, device: i32, id: u128, takes: Filter) -> Result<()> {
        self.device(device)?.private_begin(id, takes);
        Ok(())
    }

    /// Ends the newest [`Pool::private_begin`] of this id.
    ///
    /// # Errors
    /// [`Error::NotFound`] if none is under way.
    pub fn private_end(&self, device: i32, id: u128) -> Result<()> {
        self.device(device)?.private_end(id)
    }

    /// Lets go of one hold; with the last, the pool's memory goes back to everybody.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown id.
    pub fn private_release(&self, device: i32, id: u128) -> Result<()> {
        self.device(device)?.private_release(id)
    }

    // ---- figures -------------------------------------------------------------------------------------

    /// A device's figures.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stats(&self, device: i32) -> Result<Stats> {
        Ok(self.device(device)?.stats())
    }

    /// One stream's figures; zeros for a stream that was never used.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stream_stats(&self, device: i32, stream: StreamHandle) -> Result<StreamStats> {
        Ok(self.device(device)?.stream(stream)?.stats())
    }

    /// Makes the present figures the peaks.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn reset_peaks(&self, device: i32) -> Result<()> {
        self.device(device)?.reset_peaks();
        Ok(())
    }

    /// A page about a device for a person.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn report(&self, device: i32) -> Result<String> {
        Ok(self.device(device)?.report())
    }

    /// Verifies every equation of the pool. Slow; for tests. What other threads allocate or free meanwhile may not fit them.
    ///
    /// # Errors
    /// [`Error::Invalid`] with a sentence about the first equation that fails.
    pub fn check(&self, device: i32) -> Result<()> {
        self.device(device)?.check().map_err(Error::invalid)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if driver::process::is_forked() {
            return;
        }
        // Another pool may be trimming this one: it ends after that, and before this call does.
        let mut ended = self.devices.ended.write();
        *ended = true;
        for home in self.opened() {
            home.close();
        }
        // This thread's recent streams would keep the emptied pools in memory.
        hit::forget(self.id);
    }
}
