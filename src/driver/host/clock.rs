//! When queued work runs, and everything a test does to streams that the trait has no method for.
//!
//! Work runs on the thread that queued it, stepped it or waits for it, outside every lock. There are no
//! threads of the driver's own, so a test with the manual clock has one order of events and no luck in it.

use std::ptr;

use parking_lot::MutexGuard;

use super::fault::Call;
use super::stream::{Mark, Obstacle, Streams, Work};
use super::{Clock, HostDriver};
use crate::driver::{DriverError, ErrorKind, Result};
use crate::units::{DeviceId, StreamHandle};

impl HostDriver {
    /// Queues a closure on a stream: the stand-in for a kernel. It may touch memory and queue more work,
    /// but not wait for any (CUDA forbids its host functions that too). A closure may take its time:
    /// other threads go on meanwhile, as they do beside a running kernel.
    pub fn host_call(&self, device: DeviceId, stream: StreamHandle, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.known(Call::Fill, device)?;
        self.enqueue(Call::Fill, device, stream, Work::Run(call))
    }

    /// Changes the clock. To [`Clock::Immediate`]: what is queued and can run runs now. To [`Clock::Late`]: what was queued before
    /// waits to be stepped, or for the host to wait for it or for what comes after it.
    pub fn set_clock(&self, clock: Clock) {
        let mut streams = self.streams.lock();
        streams.set_clock(clock);
        self.pump(streams);
    }

    /// Runs the next item of a stream, unless it waits for another stream, runs already, or there is none.
    /// Returns whether it ran one.
    pub fn step(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        self.known(Call::StreamSynchronize, device)?;
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
        let work = streams.take(identity);
        drop(streams);
        Ok(work.map(|work| self.run(identity, work)).is_some())
    }

    /// Steps a stream until it is empty or blocked. Returns how many items ran.
    pub fn run_stream(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        let mut ran = 0;
        while self.step(device, stream)? {
            ran += 1;
        }
        Ok(ran)
    }

    /// Steps all streams of all devices, destroyed ones included, until nothing can run. Returns how many
    /// items ran.
    pub fn run_all(&self) -> u64 {
        let mut ran = 0;
        loop {
            let taken = self.streams.lock().take_any();
            let Some((identity, work)) = taken else { return ran };
            self.run(identity, work);
            ran += 1;
        }
    }

    /// How many items of a stream have not begun.
    pub fn queued(&self, device: DeviceId, stream: StreamHandle) -> Result<usize> {
        self.known(Call::StreamSynchronize, device)?;
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
        Ok(streams.queued(identity))
    }

    /// How often a handle was used that names no living stream. CUDA would not have noticed.
    #[must_use]
    pub fn dead_stream_uses(&self) -> u64 {
        self.streams.lock().dead_uses
    }

    /// Puts a stream under capture, as `cuStreamBeginCapture` does, and returns the capture's number.
    /// Until [`HostDriver::end_capture`] work queued on it is counted and thrown away: there is no graph.
    pub fn begin_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.known(Call::StreamCapture, device)?;
        if stream.is_legacy() {
            return Err(Call::StreamCapture.invalid("the legacy stream cannot be captured"));
        }
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.begin_capture(identity)
    }

    /// Ends a stream's capture. Returns how many items it had.
    pub fn end_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.known(Call::StreamCapture, device)?;
        let mut streams = self.streams.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.end_capture(identity)
    }

    pub(super) fn enqueue(&self, call: Call, device: DeviceId, stream: StreamHandle, work: Work) -> Result<()> {
        let mut streams = self.streams.lock();
        let identity = streams.resolve(call, device, stream)?;
        streams.push(identity, work);
        self.pump(streams);
        Ok(())
    }

    /// Runs what is due by the clock. Takes the lock, to give it up while work runs.
    pub(super) fn pump<'a>(&'a self, mut streams: MutexGuard<'a, Streams>) {
        while let Some((identity, work)) = streams.take_due() {
            drop(streams);
            self.run(identity, work);
            streams = self.streams.lock();
        }
    }

    /// The answer to a question whether work is done. Who asks in vain lets some time pass.
    pub(super) fn answer<'a>(&'a self, mut streams: MutexGuard<'a, Streams>, done: bool) -> bool {
        if !done {
            streams.asked_in_vain();
            self.pump(streams);
        }
        done
    }

    /// Waits until `mark` has passed, running what stands before it, on other streams too, and no more.
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

    /// Waits for all that is queued on all devices.
    pub(super) fn drain(&self, call: Call) -> Result<()> {
        let marks = {
            let streams = self.streams.lock();
            (0..self.options.devices).flat_map(|device| streams.tails(DeviceId(device))).collect::<Vec<_>>()
        };
        marks.into_iter().try_for_each(|mark| self.wait(call, mark))?;
        self.settle();
        Ok(())
    }

    /// What CUDA does at every synchronisation: pools give back what is above their thresholds.
    pub(super) fn settle(&self) {
        if self.memory.read().pools_exceed() {
            self.memory.write().settle_pools();
        }
    }

    /// Runs an item that was taken from a stream.
    fn run(&self, identity: u64, work: Work) {
        /// Gives the stream free again even if the closure panics.
        struct Finish<'a>(&'a HostDriver, u64);
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
                // SAFETY: as for the copy; `fill_pattern` has seen to the alignment.
                unsafe { fill(to.0, value, width, bytes) };
            }
            Work::PoolFree { at } => self.memory.write().finish_pool_free(at),
            Work::Record | Work::Wait(_) => {}
        }
    }
}

/// # Safety
/// The range must be writable and nobody's but the queue's for now, address and size multiples of `width`.
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
