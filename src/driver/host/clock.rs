//! Control of streams by tests, beyond the methods of the trait.

use super::fault::Call;
use super::stream::Work;
use super::{Clock, HostDriver};
use crate::driver::Result;
use crate::units::{DeviceId, StreamHandle};

impl HostDriver {
    /// Queues a closure on a stream, in place of a kernel. It may use memory and queue more work, but not wait for
    /// work, as CUDA's host functions. Other threads run during the closure, as beside a running kernel.
    pub fn host_call(&self, device: DeviceId, stream: StreamHandle, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.gate.known(Call::Fill, device)?;
        self.queues.enqueue(Call::Fill, device, stream, Work::Run(call))
    }

    /// Changes the clock. [`Clock::Immediate`] runs all queued work that can run. With [`Clock::Late`], work queued
    /// before runs only when it is stepped, or when the host waits for it or for later work.
    pub fn set_clock(&self, clock: Clock) {
        let mut streams = self.queues.lock();
        streams.set_clock(clock);
        self.queues.pump(streams);
    }

    /// Runs the next item of a stream, unless it waits for another stream, runs already, or there is none.
    /// Returns whether it ran one.
    pub fn step(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        self.gate.known(Call::StreamSynchronize, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
        let work = streams.take(identity);
        drop(streams);
        Ok(work.map(|work| self.queues.run(identity, work)).is_some())
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
            let taken = self.queues.lock().take_any();
            let Some((identity, work)) = taken else { return ran };
            self.queues.run(identity, work);
            ran += 1;
        }
    }

    /// The number of items of a stream that have not begun.
    pub fn queued(&self, device: DeviceId, stream: StreamHandle) -> Result<usize> {
        self.gate.known(Call::StreamSynchronize, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
        Ok(streams.queued(identity))
    }

    /// The number of uses of a handle that names no living stream. CUDA does not detect these.
    #[must_use]
    pub fn dead_stream_uses(&self) -> u64 {
        self.queues.lock().dead_uses
    }

    /// Puts a stream under capture, as `cuStreamBeginCapture` does, and returns the capture's number. Until
    /// [`HostDriver::end_capture`] work queued on it is counted and discarded: there is no graph.
    pub fn begin_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.gate.known(Call::StreamCapture, device)?;
        if stream.is_legacy() {
            return Err(Call::StreamCapture.invalid("the legacy stream cannot be captured"));
        }
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.begin_capture(identity)
    }

    /// Ends a stream's capture. Returns the number of its items.
    pub fn end_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.gate.known(Call::StreamCapture, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.end_capture(identity)
    }
}
