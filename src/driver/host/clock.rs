//! Everything a test does to streams that the trait has no method for.

use super::fault::Call;
use super::stream::Work;
use super::{Clock, HostDriver};
use crate::driver::Result;
use crate::units::{DeviceId, StreamHandle};

impl HostDriver {
    /// Queues a closure on a stream: the stand-in for a kernel. It may touch memory and queue more work,
    /// but not wait for any (CUDA forbids its host functions that too). A closure may take its time:
    /// other threads go on meanwhile, as they do beside a running kernel.
    pub fn host_call(&self, device: DeviceId, stream: StreamHandle, call: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.gate.known(Call::Fill, device)?;
        self.queues.enqueue(Call::Fill, device, stream, Work::Run(call))
    }

    /// Changes the clock. To [`Clock::Immediate`]: what is queued and can run runs now. To [`Clock::Late`]: what was queued before
    /// waits to be stepped, or for the host to wait for it or for what comes after it.
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

    /// How many items of a stream have not begun.
    pub fn queued(&self, device: DeviceId, stream: StreamHandle) -> Result<usize> {
        self.gate.known(Call::StreamSynchronize, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamSynchronize, device, stream)?;
        Ok(streams.queued(identity))
    }

    /// How often a handle was used that names no living stream. CUDA would not have noticed.
    #[must_use]
    pub fn dead_stream_uses(&self) -> u64 {
        self.queues.lock().dead_uses
    }

    /// Puts a stream under capture, as `cuStreamBeginCapture` does, and returns the capture's number.
    /// Until [`HostDriver::end_capture`] work queued on it is counted and thrown away: there is no graph.
    pub fn begin_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.gate.known(Call::StreamCapture, device)?;
        if stream.is_legacy() {
            return Err(Call::StreamCapture.invalid("the legacy stream cannot be captured"));
        }
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.begin_capture(identity)
    }

    /// Ends a stream's capture. Returns how many items it had.
    pub fn end_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.gate.known(Call::StreamCapture, device)?;
        let mut streams = self.queues.lock();
        let identity = streams.resolve(Call::StreamCapture, device, stream)?;
        streams.end_capture(identity)
    }
}
