//! The pool for its callers: all devices of one driver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::bad_free::bad_free;
use super::cache::stream::Stream;
use super::cache::stream_fences::Standing;
use super::cache::thread_cache;
use super::device::device_pool::DevicePool;
use super::device::free::record_use;
use super::device::pressure::{Pressure, Source, Trim, add_pool};
use super::device::scavenger::Scavenger;
use super::fallback::device::{Device, PRIVATE_POOLS};
use super::options::{Location, Options};
use super::report::stats::{Stats, StreamStats};
use crate::driver::{self, Choice, Driver};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// One memory pool per device, shared by all holders of this.
///
/// Any thread may call any function. Blocks are freed in the order of the stream given to [`Pool::free`]. A stream
/// handle must be alive in the call that passes it. It is not used after that call unless it is a default stream,
/// registered, or recorded as a further user of a live block.
#[derive(Debug)]
pub struct Pool {
    pub(super) id: u64,
    driver: Arc<dyn Driver>,
    options: Options,
    devices: Arc<Devices>,
    /// Locked while a device is opened. The threads of the open devices.
    opening: Mutex<Vec<Scavenger>>,
    pub(crate) pressure: Arc<Pressure>,
}

/// A pool's devices, which other pools may ask for memory. The reference keeps nothing else alive.
#[derive(Debug)]
pub(super) struct Devices {
    open: Box<[OnceLock<Device>]>,
    /// Whether the pool has ended. Read-locked by code that uses the devices without a reference to the pool.
    ended: RwLock<bool>,
}

impl Devices {
    fn new(count: u32) -> Self {
        Self { open: (0..count).map(|_| OnceLock::new()).collect(), ended: RwLock::new(false) }
    }

    fn opened(&self) -> impl Iterator<Item = &Device> {
        self.open.iter().filter_map(OnceLock::get)
    }
}

impl Trim for Devices {
    fn trim(&self, device: DeviceId) -> u64 {
        let ended = self.ended.read();
        let open = self.open.get(device.0 as usize).and_then(OnceLock::get).filter(|_| !*ended);
        open.map_or(0, |open| open.trim(0).unwrap_or(0))
    }
}

/// A stream that the fast path found, and whether it is known to be captured.
pub(super) struct Found {
    pub stream: Arc<Stream>,
    pub captured: bool,
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Pool {
    /// Makes a pool. Takes no memory before the first request.
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
        let spare: std::sync::Weak<dyn Trim> = Arc::downgrade(&devices) as _;
        add_pool(id, source, spare);
        Ok(Arc::new(Self { id, driver, options, devices, opening: Mutex::default(), pressure }))
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

    /// The options that the pool was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether the pool's memory is pinned memory of the host.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.options.location != Location::Device
    }

    /// The number of devices.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.devices.open.len() as u32
    }

    /// One device's pool, opened on first use.
    ///
    /// # Errors
    /// [`Error::BadDevice`], [`Error::Forked`], or the driver's.
    pub fn device(&self, ordinal: i32) -> Result<&Device> {
        let place = self.place(ordinal)?;
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let mut scavengers = self.opening.lock();
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let device = DeviceId(ordinal.unsigned_abs());
        let fresh = Device::open(&self.driver, device, &self.options, &self.pressure)?;
        if let Device::Arena(arena) = &fresh
            && self.options.give_back_ms > 0
        {
            let idle = Duration::from_millis(self.options.give_back_ms.into());
            scavengers.push(Scavenger::start(arena, idle).inspect_err(|_| fresh.close())?);
        }
        Ok(place.get_or_init(|| fresh))
    }

    /// The same, without opening it.
    pub(crate) fn device_if_used(&self, ordinal: i32) -> Result<Option<&Device>> {
        Ok(self.place(ordinal)?.get())
    }

    fn place(&self, ordinal: i32) -> Result<&OnceLock<Device>> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        let place = usize::try_from(ordinal).ok().and_then(|index| self.devices.open.get(index));
        place.ok_or_else(|| Error::BadDevice { asked: ordinal.into(), count: self.device_count() })
    }

    pub(crate) fn opened(&self) -> impl Iterator<Item = &Device> {
        self.devices.opened()
    }

    /// Gives back what a device's pool can spare, if the device was used. Returns the bytes given back.
    pub(crate) fn trim_spare(&self, device: DeviceId) -> u64 {
        self.devices.trim(device)
    }

    // ---- blocks --------------------------------------------------------------------------------------

    /// Records that the block is also used on `stream`, which must live until the block is freed. The block is reused
    /// only after the work that `stream` has at the time of the free.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts at `at`.
    pub fn record_use(&self, at: Address, stream: StreamHandle) -> Result<()> {
        let device = self.device_of(at)?;
        if let Some(pool) = self.device(device)?.driver_ordered() {
            return pool.record_use(at, stream);
        }
        self.on_stream(None, device, stream, |pool, found| record_use(pool, &found.stream, at))
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
        self.device(device)?.block_size(at)
    }

    pub(crate) fn device_of(&self, at: Address) -> Result<i32> {
        if driver::process::is_forked() {
            return Err(Error::Forked);
        }
        let found = self.opened().find(|pool| pool.contains(at)).or_else(|| self.opened().find(|pool| pool.spans(at)));
        found.map(|pool| pool.device().0 as i32).ok_or_else(|| bad_free(at, false, None))
    }

    // ---- streams -------------------------------------------------------------------------------------

    /// Calls `work` with the stream that a handle names on a device: `found`, else from this thread's recent streams,
    /// else from the list.
    pub(super) fn on_stream<T>(
        &self,
        found: Option<Found>,
        device: i32,
        handle: StreamHandle,
        work: impl FnOnce(&DevicePool, &Found) -> Result<T>,
    ) -> Result<T> {
        let pool = self.device(device)?.arena(PRIVATE_POOLS)?;
        let found = match found {
            Some(found) => found,
            None => self.find_stream(pool, device, handle.canonical())?,
        };
        work(pool, &found)
    }

    fn find_stream(&self, pool: &DevicePool, device: i32, handle: StreamHandle) -> Result<Found> {
        if let Some(stream) = thread_cache::recall(self.id, device, handle) {
            let standing = stream.standing();
            if standing != Standing::Stale {
                return Ok(Found { captured: standing == Standing::Captured, stream });
            }
        }
        let stream = pool.stream(handle)?;
        thread_cache::remember(self.id, &stream);
        Ok(Found { captured: stream.standing() == Standing::Captured, stream })
    }

    /// The device's pool that a stream belongs to.
    pub(super) fn open_of(&self, stream: &Stream) -> Option<&Arc<DevicePool>> {
        self.devices.open.get(stream.gpu.device.0 as usize).and_then(OnceLock::get)?.as_arena()
    }

    /// Registers a stream: the caller promises that it lives until [`Pool::stream_unregister`], so its frees need no
    /// events.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stream_register(&self, device: i32, stream: StreamHandle) -> Result<()> {
        self.device(device)?.register(stream)
    }

    /// Ends the registration; the stream may be destroyed after this call.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was not registered.
    pub fn stream_unregister(&self, device: i32, stream: StreamHandle) -> Result<()> {
        self.device(device)?.unregister(stream)
    }

    /// Destroys a stream that was made for the caller, registered or not. Its queued work still runs.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a default stream. On the driver's error the stream is as before.
    pub fn stream_destroy(&self, device: i32, stream: StreamHandle) -> Result<()> {
        let opened = self.device(device)?;
        let registered = match opened.unregister(stream) {
            Err(Error::NotFound(_)) if !stream.is_default() => false,
            other => other.map(|()| true)?,
        };
        if let Err(error) = self.driver.stream_destroy(opened.device(), stream) {
            if registered {
                // Registered again, so that the call can be repeated.
                opened.register(stream)?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    // ---- statistics ----------------------------------------------------------------------------------

    /// A device's statistics.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stats(&self, device: i32) -> Result<Stats> {
        self.device(device)?.stats()
    }

    /// One stream's statistics; zeros for a stream that was never used.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stream_stats(&self, device: i32, stream: StreamHandle) -> Result<StreamStats> {
        self.device(device)?.stream_stats(stream)
    }

    /// Resets the peaks to the present values.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn reset_peaks(&self, device: i32) -> Result<()> {
        let pool = self.device(device)?;
        pool.reset_live_peak();
        pool.reset_physical_peak()
    }

    /// A report about a device for the user.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn report(&self, device: i32) -> Result<String> {
        self.device(device)?.report()
    }

    /// Verifies every equation of the pool. Slow; for tests. Concurrent calls of other threads can make it fail.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first equation that fails.
    pub fn check(&self, device: i32) -> Result<()> {
        self.device(device)?.check()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if driver::process::is_forked() {
            return;
        }
        // Another pool may be trimming this one, and finishes first.
        self.opening.get_mut().drain(..).for_each(Scavenger::end);
        let mut ended = self.devices.ended.write();
        *ended = true;
        for device in self.opened() {
            device.close();
        }
        // The entries of this thread would keep the closed pools in memory.
        thread_cache::forget(self.id);
    }
}
