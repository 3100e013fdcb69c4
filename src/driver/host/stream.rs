//! Streams, events and captures of the host driver: queues of work and positions in them.
//!
//! An event is a mark: "stream s, up to its n-th item". It has passed when s has done n items. A record
//! is itself an item, so on a held-back stream even an event recorded first is pending, as on a GPU.
//! A wait is an item that cannot run before its mark has passed, and keeps the mark it was queued with.
//! An event for a whole device has a mark on each of its busy streams, and is no item on any.
//!
//! The legacy stream (0 and 1) is one more queue: it does **not** wait for the others here, nor they for it. Code that
//! relies on that implicit order would be wrong for non-blocking streams.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::fault::Call;
use super::options::Clock;
use crate::driver::{Capture, DriverError, ErrorKind, Event, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// The first handle of a created stream; those below have meanings of their own.
const FIRST_HANDLE: u64 = 16;

/// A position: all items of a stream up to and including this one, counted from 1.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    stream: u64,
    number: u64,
}

/// The positions of an event, which passes when all have passed.
#[derive(Clone)]
pub(super) enum Marks {
    One(Mark),
    Many(Arc<[Mark]>),
}

impl Deref for Marks {
    type Target = [Mark];

    fn deref(&self) -> &[Mark] {
        match self {
            Self::One(mark) => std::slice::from_ref(mark),
            Self::Many(marks) => marks,
        }
    }
}

/// One item of a queue.
pub(super) enum Work {
    Run(Box<dyn FnOnce() + Send>),
    Copy {
        device: DeviceId,
        to: Address,
        from: Address,
        bytes: u64,
    },
    /// Fills with the low `width` bytes of `value`, repeated.
    Fill {
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
    },
    PoolFree {
        at: Address,
    },
    Record,
    Wait(Marks),
}

/// One stream, keyed by its identity, which is never reused.
struct Stream {
    device: DeviceId,
    queue: VecDeque<Work>,
    submitted: u64,
    done: u64,
    /// The thread that runs the item taken last.
    runner: Option<ThreadId>,
    /// Destroyed: kept only until its work is done.
    destroyed: bool,
    capture: Option<CaptureState>,
}

#[derive(Clone, Copy)]
struct CaptureState {
    number: u64,
    items: u64,
}

impl Stream {
    fn new(device: DeviceId) -> Self {
        Self { device, queue: VecDeque::new(), submitted: 0, done: 0, runner: None, destroyed: false, capture: None }
    }
}

struct EventState {
    device: DeviceId,
    marks: Option<Marks>,
}

/// The next obstacle before a mark.
pub(super) enum Obstacle {
    /// None: the mark has passed.
    None,
    /// This item of this stream can run now, and must.
    Item(u64, Work),
    /// Another thread runs the item in front.
    Running,
    /// The calling thread runs it, so a wait would never end.
    Ourselves,
}

/// All streams and events of all devices.
pub(super) struct Streams {
    clock: Clock,
    streams: BTreeMap<u64, Stream>,
    created: HashMap<u64, u64>,
    free_handles: BTreeSet<u64>,
    next_handle: u64,
    per_thread: HashMap<(DeviceId, ThreadId), u64>,
    next_identity: u64,
    events: HashMap<u64, EventState>,
    next_event: u64,
    next_capture: u64,
    /// Items queued and not yet taken, on all streams.
    pending: usize,
    /// With [`Clock::Late`]: the streams of the items queued last, oldest first.
    latest: VecDeque<Mark>,
    /// With [`Clock::Late`]: the number of consecutive queries of unfinished work.
    asked: u32,
    pub(super) dead_uses: u64,
}

impl Streams {
    pub(super) fn new(devices: u32, clock: Clock) -> Self {
        let legacy = |device| (Self::legacy(DeviceId(device)), Stream::new(DeviceId(device)));
        Self {
            clock,
            streams: (0..devices).map(legacy).collect(),
            created: HashMap::new(),
            free_handles: BTreeSet::new(),
            next_handle: FIRST_HANDLE,
            per_thread: HashMap::new(),
            next_identity: u64::from(devices) + 1,
            events: HashMap::new(),
            next_event: 1,
            next_capture: 1,
            pending: 0,
            latest: VecDeque::new(),
            asked: 0,
            dead_uses: 0,
        }
    }

    /// The legacy streams have the first identities.
    fn legacy(device: DeviceId) -> u64 {
        u64::from(device.0) + 1
    }

    fn add(&mut self, device: DeviceId) -> u64 {
        let identity = self.next_identity;
        self.next_identity += 1;
        self.streams.insert(identity, Stream::new(device));
        identity
    }

    // ---- handles ---------------------------------------------------------------------------------------

    /// The identity behind a handle. Counts handles that name no living stream, which CUDA does not detect.
    pub(super) fn resolve(&mut self, call: Call, device: DeviceId, handle: StreamHandle) -> Result<u64> {
        match handle.canonical() {
            StreamHandle::LEGACY => Ok(Self::legacy(device)),
            StreamHandle::PER_THREAD => {
                let key = (device, thread::current().id());
                if let Some(&identity) = self.per_thread.get(&key) {
                    return Ok(identity);
                }
                let identity = self.add(device);
                self.per_thread.insert(key, identity);
                Ok(identity)
            }
            other => {
                let Some(&identity) = self.created.get(&other.0) else {
                    self.dead_uses += 1;
                    return Err(call.invalid(format!("stream {handle} is destroyed, or never was")));
                };
                let owner = self.streams[&identity].device;
                if owner != device {
                    return Err(call.invalid(format!("stream {handle} belongs to device {owner}, not {device}")));
                }
                Ok(identity)
            }
        }
    }

    /// The device of a created stream that lives.
    pub(super) fn device_of(&self, handle: StreamHandle) -> Option<DeviceId> {
        self.created.get(&handle.0).map(|identity| self.streams[identity].device)
    }

    /// The lowest free handle: a destroyed stream's handle comes back soon, as addresses do on CUDA.
    pub(super) fn create(&mut self, device: DeviceId) -> StreamHandle {
        let handle = self.free_handles.pop_first().unwrap_or_else(|| {
            self.next_handle += 1;
            self.next_handle - 1
        });
        let identity = self.add(device);
        self.created.insert(handle, identity);
        StreamHandle(handle)
    }

    pub(super) fn destroy(&mut self, device: DeviceId, handle: StreamHandle) -> Result<()> {
        if handle.is_default() {
            return Err(Call::StreamDestroy.invalid(format!("{handle} is a default stream")));
        }
        let identity = self.resolve(Call::StreamDestroy, device, handle)?;
        self.created.remove(&handle.0);
        self.free_handles.insert(handle.0);
        if let Some(stream) = self.streams.get_mut(&identity) {
            stream.destroyed = true;
        }
        self.drop_if_over(identity);
        Ok(())
    }

    fn drop_if_over(&mut self, identity: u64) {
        let over = |stream: &Stream| stream.destroyed && stream.queue.is_empty() && stream.runner.is_none();
        if self.streams.get(&identity).is_some_and(over) {
            self.streams.remove(&identity);
        }
    }

    pub(super) fn created_count(&self) -> u64 {
        self.created.len() as u64
    }

    pub(super) fn queued(&self, identity: u64) -> usize {
        self.streams.get(&identity).map_or(0, |stream| stream.queue.len())
    }

    // ---- queues ----------------------------------------------------------------------------------------

    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
        self.latest.clear();
    }

    /// Queues work on a stream. A stream under capture only counts it, since it would go into a graph.
    pub(super) fn push(&mut self, identity: u64, work: Work) -> Mark {
        let ready = self.clock == Clock::Immediate
            && match &work {
                Work::Record => true,
                Work::Wait(marks) => self.pending(marks).is_none(),
                _ => false,
            };
        let Some(stream) = self.streams.get_mut(&identity) else {
            return Mark { stream: identity, number: 0 };
        };
        if let Some(capture) = &mut stream.capture {
            capture.items += 1;
            return Mark { stream: identity, number: stream.submitted };
        }
        stream.submitted += 1;
        let mark = Mark { stream: identity, number: stream.submitted };
        if ready && stream.queue.is_empty() && stream.runner.is_none() {
            stream.done += 1;
        } else {
            stream.queue.push_back(work);
            self.pending += 1;
            if matches!(self.clock, Clock::Late(_)) {
                self.latest.push_back(mark);
                self.asked = 0;
            }
        }
        mark
    }

    fn passed(&self, mark: Mark) -> bool {
        self.streams.get(&mark.stream).is_none_or(|stream| stream.done >= mark.number)
    }

    /// The first of the marks that has not passed.
    pub(super) fn pending(&self, marks: &[Mark]) -> Option<Mark> {
        marks.iter().copied().find(|&mark| !self.passed(mark))
    }

    /// Whether the front item of a stream can run now.
    fn ready(&self, stream: &Stream) -> bool {
        stream.runner.is_none()
            && match stream.queue.front() {
                None => false,
                Some(Work::Wait(marks)) => self.pending(marks).is_none(),
                Some(_) => true,
            }
    }

    /// Takes the front item of a stream if it can run now. The taker must call [`Streams::finish`].
    pub(super) fn take(&mut self, identity: u64) -> Option<Work> {
        if !self.ready(self.streams.get(&identity)?) {
            return None;
        }
        let stream = self.streams.get_mut(&identity)?;
        stream.runner = Some(thread::current().id());
        self.pending -= 1;
        stream.queue.pop_front()
    }

    /// The next item to run by the clock, if it can run now.
    pub(super) fn take_due(&mut self) -> Option<(u64, Work)> {
        match self.clock {
            Clock::Immediate => self.take_any(),
            Clock::Manual => None,
            Clock::Late(items) => self.take_late(items as usize),
        }
    }

    fn take_late(&mut self, items: usize) -> Option<(u64, Work)> {
        while self.latest.len() > items {
            let mark = *self.latest.front()?;
            match self.obstacle(mark) {
                Obstacle::None => self.latest.pop_front(),
                Obstacle::Item(identity, work) => return Some((identity, work)),
                // The thread that runs it continues from there.
                Obstacle::Running | Obstacle::Ourselves => return None,
            };
        }
        None
    }

    /// Counts a query of unfinished work, so that a program that only polls makes progress.
    pub(super) fn count_query(&mut self) {
        let Clock::Late(items) = self.clock else { return };
        self.asked += 1;
        if self.asked >= items {
            self.asked = 0;
            // An item that counts as queued and done.
            self.latest.push_back(Mark { stream: Self::legacy(DeviceId(0)), number: 0 });
        }
    }

    /// Any item that can run now.
    pub(super) fn take_any(&mut self) -> Option<(u64, Work)> {
        if self.pending == 0 {
            return None;
        }
        let identity = self.streams.iter().find(|(_, stream)| self.ready(stream)).map(|(&identity, _)| identity)?;
        Some((identity, self.take(identity)?))
    }

    /// The item taken last from the stream is done.
    pub(super) fn finish(&mut self, identity: u64) {
        if let Some(stream) = self.streams.get_mut(&identity) {
            stream.runner = None;
            stream.done += 1;
        }
        self.drop_if_over(identity);
    }

    /// The next step towards passing `mark`. Terminates, since a wait's marks are older than the wait.
    pub(super) fn obstacle(&mut self, mark: Mark) -> Obstacle {
        let mut mark = mark;
        while !self.passed(mark) {
            let identity = mark.stream;
            let Some(stream) = self.streams.get(&identity) else { break };
            if let Some(runner) = stream.runner {
                return if runner == thread::current().id() { Obstacle::Ourselves } else { Obstacle::Running };
            }
            let other = match stream.queue.front() {
                Some(Work::Wait(marks)) => self.pending(marks),
                _ => None,
            };
            match other {
                Some(other) => mark = other,
                None => return self.take(identity).map_or(Obstacle::None, |work| Obstacle::Item(identity, work)),
            }
        }
        Obstacle::None
    }

    /// The position behind all work queued on a stream so far.
    pub(super) fn tail(&self, identity: u64) -> Mark {
        Mark { stream: identity, number: self.streams.get(&identity).map_or(0, |stream| stream.submitted) }
    }

    /// The positions behind all work queued on a device so far, destroyed streams included.
    pub(super) fn tails(&self, device: DeviceId) -> Vec<Mark> {
        let ours = self.streams.iter().filter(|(_, stream)| stream.device == device);
        ours.map(|(&stream, state)| Mark { stream, number: state.submitted }).collect()
    }

    // ---- events ----------------------------------------------------------------------------------------

    pub(super) fn event_create(&mut self, device: DeviceId) -> Event {
        let event = self.next_event;
        self.next_event += 1;
        self.events.insert(event, EventState { device, marks: None });
        Event(event)
    }

    pub(super) fn event_destroy(&mut self, event: Event) -> Result<()> {
        self.events.remove(&event.0).map(|_| ()).ok_or_else(|| no_event(Call::EventDestroy, event))
    }

    pub(super) fn event_record(&mut self, device: DeviceId, event: Event, identity: u64) -> Result<()> {
        self.event_of(Call::EventRecord, device, event)?;
        let mark = self.push(identity, Work::Record);
        self.event_of(Call::EventRecord, device, event)?.marks = Some(Marks::One(mark));
        Ok(())
    }

    /// Records on every busy stream, destroyed ones included.
    pub(super) fn event_record_all(&mut self, device: DeviceId, event: Event) -> Result<()> {
        let marks = self.tails(device).into_iter().filter(|&mark| !self.passed(mark)).collect();
        self.event_of(Call::EventRecordAll, device, event)?.marks = Some(Marks::Many(marks));
        Ok(())
    }

    fn event_of(&mut self, call: Call, device: DeviceId, event: Event) -> Result<&mut EventState> {
        match self.events.get_mut(&event.0) {
            None => Err(no_event(call, event)),
            Some(state) if state.device != device => {
                Err(call.invalid(format!("event {} belongs to device {}", event.0, state.device)))
            }
            Some(state) => Ok(state),
        }
    }

    /// The positions of the event; `None` if it was never recorded.
    pub(super) fn event_marks(&self, call: Call, event: Event) -> Result<Option<Marks>> {
        self.events.get(&event.0).map(|state| state.marks.clone()).ok_or_else(|| no_event(call, event))
    }

    pub(super) fn event_count(&self) -> u64 {
        self.events.len() as u64
    }

    // ---- capture ---------------------------------------------------------------------------------------

    pub(super) fn capture(&self, identity: u64) -> Capture {
        let capture = self.streams.get(&identity).and_then(|stream| stream.capture);
        capture.map_or(Capture::None, |state| Capture::Active(state.number))
    }

    /// Refuses calls that a capture forbids on its stream.
    pub(super) fn refuse_capture(&self, call: Call, identity: u64) -> Result<()> {
        match self.capture(identity) {
            Capture::None => Ok(()),
            Capture::Active(number) => Err(capturing(call, number)),
        }
    }

    /// Refuses calls that a capture on any stream of the device forbids.
    pub(super) fn refuse_any_capture(&self, call: Call, device: DeviceId) -> Result<()> {
        let ours = self.streams.values().filter(|stream| stream.device == device);
        match ours.filter_map(|stream| stream.capture).next() {
            None => Ok(()),
            Some(state) => Err(capturing(call, state.number)),
        }
    }

    pub(super) fn begin_capture(&mut self, identity: u64) -> Result<u64> {
        let number = self.next_capture;
        match self.streams.get_mut(&identity) {
            Some(stream) if stream.capture.is_none() => {
                stream.capture = Some(CaptureState { number, items: 0 });
                self.next_capture += 1;
                Ok(number)
            }
            _ => Err(Call::StreamCapture.invalid("the stream is being captured already")),
        }
    }

    pub(super) fn end_capture(&mut self, identity: u64) -> Result<u64> {
        let capture = self.streams.get_mut(&identity).and_then(|stream| stream.capture.take());
        capture.map(|state| state.items).ok_or_else(|| Call::StreamCapture.invalid("the stream is not being captured"))
    }
}

fn no_event(call: Call, event: Event) -> DriverError {
    call.invalid(format!("event {} is destroyed, or never was", event.0))
}

fn capturing(call: Call, number: u64) -> DriverError {
    DriverError::new(ErrorKind::Capturing, call.name(), format!("capture {number} is under way"))
}
