//! Running queued work.
//!
//! Work runs on the thread that queued it, stepped it or waits for it, outside every lock. The driver has no threads,
//! so a test with the manual clock is deterministic.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::fault::Call;
use super::memory::Memory;
use super::options::HostOptions;
use super::stream::{Mark, Obstacle, Streams, Work};
use crate::driver::{DriverError, ErrorKind, Result};
use crate::units::{DeviceId, StreamHandle};

/// The streams, and the memory that their work uses.
pub(super) struct Queues {
    devices: u32,
    streams: Mutex<Streams>,
    /// Signalled whenever an item of work is done.
    progress: Condvar,
    memory: Arc<RwLock<Memory>>,
    bad_accesses: AtomicU64,
}

impl Queues {
    pub(super) fn new(options: HostOptions, memory: Arc<RwLock<Memory>>) -> Self {
        Self {
            devices: options.devices,
            streams: Mutex::new(Streams::new(options.devices, options.clock)),
            progress: Condvar::new(),
            memory,
            bad_accesses: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock()
    }

    /// The number of copies and fills that found their memory unmapped when they ran.
    pub(super) fn bad_accesses(&self) -> u64 {
        self.bad_accesses.load(Ordering::Relaxed)
    }

    fn bad_access(&self) {
        self.bad_accesses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn enqueue(&self, call: Call, device: DeviceId, stream: StreamHandle, work: Work) -> Result<()> {
        let mut streams = self.streams.lock();
        let identity = streams.resolve(call, device, stream)?;
        streams.push(identity, work);
        self.pump(streams);
        Ok(())
    }

    /// Runs the work that is due by the clock. Takes the lock's guard and releases it while work runs.
    pub(super) fn pump<'a>(&'a self, mut streams: MutexGuard<'a, Streams>) {
        while let Some((identity, work)) = streams.take_due() {
            drop(streams);
            self.run(identity, work);
            streams = self.streams.lock();
        }
    }

    /// Answers a query whether work is done. A query of unfinished work counts towards [`Clock::Late`].
    pub(super) fn answer<'a>(&'a self, mut streams: MutexGuard<'a, Streams>, done: bool) -> bool {
        if !done {
            streams.count_query();
            self.pump(streams);
        }
        done
    }

    /// Waits until `mark` has passed. Runs the work that it depends on, also on other streams, and no other work.
    pub(super) fn wait(&self, call: Call, mark: Mark) -> Result<()> {
        let mut streams = self.streams.lock();
        loop {
            match streams.obstacle(mark) {
                Obstacle::None => return Ok(()),
                Obstacle::Item(identity, work) => {
                    drop(streams);
                    self.run(identity, work);
                    streams = self.streams.lock();
                }
                Obstacle::Running => self.progress.wait(&mut streams),
                Obstacle::Ourselves => {
                    let detail = "a host_call must not wait for the stream it runs on";
                    return Err(DriverError::new(ErrorKind::Failed, call.name(), detail));
                }
            }
        }
    }

    /// Waits for all work of all devices.
    pub(super) fn drain(&self, call: Call) -> Result<()> {
        let marks = {
            let streams = self.streams.lock();
            (0..self.devices).flat_map(|device| streams.tails(DeviceId(device))).collect::<Vec<_>>()
        };
        marks.into_iter().try_for_each(|mark| self.wait(call, mark))?;
        self.shrink_pools();
        Ok(())
    }

    /// Shrinks pools to their thresholds, as CUDA does at each synchronization.
    pub(super) fn shrink_pools(&self) {
        if self.memory.read().pools.exceed() {
            let Memory { places, pools, .. } = &mut *self.memory.write();
            pools.shrink_to_thresholds(places);
        }
    }

    /// Runs an item that was taken from a stream.
    pub(super) fn run(&self, identity: u64, work: Work) {
        /// Releases the stream even if the closure panics.
        struct Finish<'a>(&'a Queues, u64);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                self.0.streams.lock().finish(self.1);
                self.0.progress.notify_all();
            }
        }
        let _finish = Finish(self, identity);
        match work {
            Work::Run(call) => call(),
            Work::Copy { device, to, from, bytes } => {
                let memory = self.memory.read();
                let readable = memory.check_access(device, from.0, bytes, false);
                if readable.and_then(|()| memory.check_access(device, to.0, bytes, true)).is_err() {
                    self.bad_access();
                    return;
                }
                // SAFETY: both ranges are granted and stay mapped while the lock is held, or are the
                // program's own memory, which the caller of `copy` vouches for. `copy` allows an overlap.
                unsafe { ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes as usize) };
            }
            Work::Fill { device, to, value, width, bytes } => {
                let memory = self.memory.read();
                if memory.check_access(device, to.0, bytes, true).is_err() {
                    self.bad_access();
                    return;
                }
                // SAFETY: as for the copy; `fill_pattern` checked the alignment.
                unsafe { fill(to.0, value, width, bytes) };
            }
            Work::PoolFree { at } => {
                let Memory { places, blocks, pools, .. } = &mut *self.memory.write();
                pools.finish_free(places, blocks, at);
            }
            Work::Record | Work::Wait(_) => {}
        }
    }
}

/// # Safety
/// The range must be writable and not in use by other code; address and size are multiples of `width`.
unsafe fn fill(to: u64, value: u32, width: u32, bytes: u64) {
    let count = (bytes / u64::from(width)) as usize;
    #[expect(clippy::cast_possible_truncation, reason = "the low bytes are what is asked for")]
    match width {
        // SAFETY: the caller's, for all three.
        1 => unsafe { ptr::write_bytes(to as *mut u8, value as u8, count) },
        // SAFETY: as above.
        2 => (0..count).for_each(|index| unsafe { (to as *mut u16).add(index).write(value as u16) }),
        // SAFETY: as above.
        _ => (0..count).for_each(|index| unsafe { (to as *mut u32).add(index).write(value) }),
    }
}
