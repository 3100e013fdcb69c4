//! Generated programs on the host driver, with real data, on a clock that holds work back.
//!
//! A program allocates, uses, frees, records uses, captures, trims, limits and destroys streams at random. Every block is
//! filled with its own pattern by queued work, and every use is queued work that checks the pattern; how far each
//! stream has got is random too. If the pool hands memory out before its last use is over, the later owner's pattern is
//! there when the earlier owner's check runs. Every equation of the pool is checked after each step.
//!
//! `FOREBAY_STEPS` sets the number of steps of all programs together; a failure names its seed.

#![expect(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod kit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::driver::host::{Clock, HostDriver, HostOptions, Usage};
use forebay::driver::{Driver, Event};
use forebay::error::Error;
use forebay::pool::{Location, Options, Pool};
use forebay::units::{Address, StreamHandle};

use kit::driver::{HOME as DEVICE, LEGACY, host, sized};
use kit::memory::{block_bytes, mark, wrong_marks};
use kit::pool::PINNED;
use kit::process::{again, role};
use kit::programs::says;
use kit::random::Random;
use kit::standin::{self, Libcuda, Standin};

const PAGE: u64 = 64 << 10;
const CAPACITY: u64 = 24 << 20;
const GRANULE: u64 = 512;
/// Work that waits to run is run in part beyond this, as a GPU would.
const MOST_QUEUED: usize = 200;

#[derive(Clone)]
struct Block {
    bytes: u64,
    pattern: u64,
    stream: StreamHandle,
    /// Streams it was recorded as used on.
    users: Vec<StreamHandle>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Default,
    Registered,
    Unregistered,
}

/// A captured graph's memory: everything that was handed out in its capture.
struct Graph {
    id: u128,
    owned: Vec<(u64, u64)>,
    live: Vec<u64>,
}

/// The device that a program runs on, and what the program does to it that no driver has a call for.
trait Device {
    fn driver(&self) -> Arc<dyn Driver>;
    /// Queues what stands for a kernel.
    fn call(&self, stream: StreamHandle, work: Box<dyn FnOnce() + Send>);
    fn step(&self, stream: StreamHandle) -> bool;
    fn run_all(&self);
    fn queued(&self, stream: StreamHandle) -> usize;
    fn begin_capture(&self, stream: StreamHandle);
    fn end_capture(&self, stream: StreamHandle);
    /// How often a dead stream was used, and memory that was not mapped.
    fn wrong_uses(&self) -> (u64, u64);
    /// Whether all that was given out came back.
    fn is_idle(&self) -> bool;
}

impl Device for Arc<HostDriver> {
    fn driver(&self) -> Arc<dyn Driver> {
        self.clone()
    }

    fn call(&self, stream: StreamHandle, work: Box<dyn FnOnce() + Send>) {
        self.host_call(DEVICE, stream, work).unwrap();
    }

    fn step(&self, stream: StreamHandle) -> bool {
        HostDriver::step(self, DEVICE, stream).unwrap()
    }

    fn run_all(&self) {
        HostDriver::run_all(self);
    }

    fn queued(&self, stream: StreamHandle) -> usize {
        HostDriver::queued(self, DEVICE, stream).unwrap()
    }

    fn begin_capture(&self, stream: StreamHandle) {
        HostDriver::begin_capture(self, DEVICE, stream).unwrap();
    }

    fn end_capture(&self, stream: StreamHandle) {
        HostDriver::end_capture(self, DEVICE, stream).unwrap();
    }

    fn wrong_uses(&self) -> (u64, u64) {
        (self.dead_stream_uses(), self.bad_accesses())
    }

    fn is_idle(&self) -> bool {
        self.usage() == Usage::default()
    }
}

impl Device for Standin {
    fn driver(&self) -> Arc<dyn Driver> {
        self.driver.clone()
    }

    fn call(&self, stream: StreamHandle, work: Box<dyn FnOnce() + Send>) {
        self.host_call(stream, work);
    }

    fn step(&self, stream: StreamHandle) -> bool {
        Standin::step(self, stream)
    }

    fn run_all(&self) {
        Standin::run_all(self);
    }

    fn queued(&self, stream: StreamHandle) -> usize {
        Standin::queued(self, stream)
    }

    fn begin_capture(&self, stream: StreamHandle) {
        Standin::begin_capture(self, stream);
    }

    fn end_capture(&self, stream: StreamHandle) {
        Standin::end_capture(self, stream);
    }

    fn wrong_uses(&self) -> (u64, u64) {
        Standin::wrong_uses(self)
    }

    fn is_idle(&self) -> bool {
        Standin::is_idle(self)
    }
}

struct Program {
    random: Random,
    device: Arc<dyn Device>,
    driver: Arc<dyn Driver>,
    pool: Arc<Pool>,
    streams: Vec<(StreamHandle, Kind)>,
    blocks: BTreeMap<u64, Block>,
    graphs: Vec<Graph>,
    patterns: u64,
    mismatches: Arc<AtomicU64>,
    captures: bool,
}

/// What varies between programs.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// The driver's stream-ordered pool serves the device: there are no captures.
    no_vmm: bool,
    no_identity: bool,
    no_device_events: bool,
    grow_first: bool,
    immediate: bool,
    /// Memory of the host instead of the device's.
    pinned: bool,
}

impl Shape {
    fn on_host(self) -> Arc<HostDriver> {
        host(HostOptions {
            granularity: PAGE,
            host_capacity: CAPACITY,
            vmm: !self.no_vmm,
            stream_identity: !self.no_identity,
            device_events: !self.no_device_events,
            clock: if self.immediate { Clock::Immediate } else { Clock::Manual },
            ..sized(CAPACITY)
        })
    }

    /// What the driver's version decides is the libcuda's that the process has.
    fn on_standin(self) -> Standin {
        Standin::new(&standin::Shape {
            capacity: CAPACITY,
            granularity: PAGE,
            has_vmm: !self.no_vmm,
            is_held_back: !self.immediate,
        })
        .unwrap()
    }
}

impl Program {
    fn new(seed: u64, shape: Shape, device: Arc<dyn Device>) -> Self {
        let location = if shape.pinned { PINNED } else { Location::Device };
        let options = Options { grow_first: shape.grow_first, location, ..Options::default() };
        let driver = device.driver();
        let pool = Pool::with_driver(driver.clone(), options).unwrap();
        let mut program = Self {
            random: Random(seed),
            device,
            driver,
            pool,
            streams: vec![(LEGACY, Kind::Default)],
            blocks: BTreeMap::new(),
            graphs: Vec::new(),
            patterns: 0,
            mismatches: Arc::default(),
            captures: !shape.no_vmm,
        };
        (0..4).for_each(|_| program.add_stream());
        program
    }

    fn add_stream(&mut self) {
        let stream = self.driver.stream_create(DEVICE).unwrap();
        let registered = self.random.below(2) == 0;
        if registered {
            self.pool.stream_register(0, stream).unwrap();
        }
        self.streams.push((stream, if registered { Kind::Registered } else { Kind::Unregistered }));
    }

    fn stream(&mut self) -> StreamHandle {
        let index = self.random.below(self.streams.len() as u64) as usize;
        self.streams[index].0
    }

    // ---- work on memory ------------------------------------------------------------------------------

    /// Queues work that writes `pattern` into every granule.
    fn write(&self, stream: StreamHandle, at: u64, bytes: u64, pattern: u64) {
        let work = move || mark(Address(at), bytes, GRANULE, pattern);
        self.device.call(stream, Box::new(work));
    }

    /// Queues work that checks it.
    fn check_pattern(&self, stream: StreamHandle, at: u64, bytes: u64, pattern: u64) {
        let mismatches = Arc::clone(&self.mismatches);
        let work =
            move || _ = mismatches.fetch_add(wrong_marks(Address(at), bytes, GRANULE, pattern), Ordering::Relaxed);
        self.device.call(stream, Box::new(work));
    }

    /// Orders `later` behind what `earlier` has now, as a program with two streams must.
    fn order(&self, earlier: StreamHandle, later: StreamHandle) {
        if earlier != later {
            let event: Event = self.driver.event_create(DEVICE).unwrap();
            self.driver.event_record(DEVICE, event, earlier).unwrap();
            self.driver.stream_wait(DEVICE, later, event).unwrap();
            self.driver.event_destroy(DEVICE, event).unwrap();
        }
    }

    // ---- steps ---------------------------------------------------------------------------------------

    fn size(&mut self) -> u64 {
        let longest = [2 << 10, 64 << 10, 400 << 10, 3 << 20][self.random.below(4) as usize];
        1 + self.random.below(longest)
    }

    fn allocate(&mut self) {
        let (stream, bytes) = (self.stream(), self.size());
        match self.pool.malloc(bytes, 0, stream, 0) {
            Ok(at) => {
                let bytes = block_bytes(bytes);
                self.assert_new(at.0, bytes, None);
                self.patterns += 1;
                let block = Block { bytes, pattern: self.patterns << 32, stream, users: Vec::new() };
                self.write(stream, at.0, bytes, block.pattern);
                self.blocks.insert(at.0, block);
            }
            Err(Error::OutOfMemory(text)) => assert!(text.contains("asked for"), "{text}"),
            Err(error) => panic!("{error}"),
        }
    }

    /// No block may be handed out over a live one, or over a graph's memory unless the graph asks.
    fn assert_new(&self, at: u64, bytes: u64, graph: Option<usize>) {
        assert_eq!(at % GRANULE, 0);
        let before = self.blocks.range(..at + bytes).next_back();
        assert!(before.is_none_or(|(&start, block)| start + block.bytes <= at), "{at:#x} overlaps a live block");
        for (index, owner) in self.graphs.iter().enumerate() {
            let hit = owner.owned.iter().any(|&(start, length)| start < at + bytes && at < start + length);
            assert!(!hit || graph == Some(index), "{at:#x} overlaps the memory of a captured graph");
        }
    }

    fn pick(&mut self) -> Option<(u64, Block)> {
        let index = self.random.below(self.blocks.len() as u64) as usize;
        self.blocks.iter().nth(index).map(|(&at, block)| (at, block.clone()))
    }

    fn use_here(&mut self) {
        let Some((at, mut block)) = self.pick() else { return };
        self.check_pattern(block.stream, at, block.bytes, block.pattern);
        if block.users.is_empty() {
            self.patterns += 1;
            block.pattern = self.patterns << 32;
            self.write(block.stream, at, block.bytes, block.pattern);
            self.blocks.insert(at, block);
        }
    }

    fn use_elsewhere(&mut self) {
        let Some((at, mut block)) = self.pick() else { return };
        let other = self.stream();
        self.order(block.stream, other);
        self.check_pattern(other, at, block.bytes, block.pattern);
        self.pool.record_use(Address(at), other).unwrap();
        if other != block.stream && !block.users.contains(&other) {
            block.users.push(other);
        }
        self.blocks.insert(at, block);
    }

    fn free(&mut self, at: u64, on: StreamHandle) {
        let block = self.blocks.remove(&at).unwrap();
        self.order(block.stream, on);
        self.check_pattern(on, at, block.bytes, block.pattern);
        self.pool.free(Address(at), on).unwrap();
        assert!(matches!(self.pool.free(Address(at), on), Err(Error::BadFree(_))), "a second free went through");
    }

    /// As CuPy frees: on whatever stream, without having ordered it behind the one the block was used on.
    fn free_unordered(&mut self, at: u64, on: StreamHandle) {
        let block = self.blocks.remove(&at).unwrap();
        self.check_pattern(block.stream, at, block.bytes, block.pattern);
        self.pool.free_behind_both(Address(at), on).unwrap();
    }

    fn free_some(&mut self) {
        if let Some((at, block)) = self.pick() {
            if self.random.below(10) == 0 {
                let on = self.stream();
                self.free_unordered(at, on);
                return;
            }
            let on = if self.random.below(4) == 0 { self.stream() } else { block.stream };
            self.free(at, on);
        }
    }

    fn destroy_stream(&mut self) {
        let index = 1 + self.random.below(self.streams.len() as u64 - 1) as usize;
        let (stream, kind) = self.streams.remove(index);
        let involved: Vec<(u64, StreamHandle)> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.stream == stream || block.users.contains(&stream))
            .map(|(&at, block)| (at, block.stream))
            .collect();
        for (at, on) in involved {
            self.free(at, on);
        }
        if kind == Kind::Registered {
            self.pool.stream_unregister(0, stream).unwrap();
        }
        self.driver.stream_destroy(DEVICE, stream).unwrap();
        self.add_stream();
    }

    /// Captures a graph that allocates, frees and allocates again; its memory stays its own until it is released.
    fn capture(&mut self) {
        let Some(&(stream, _)) = self.streams.get(1 + self.random.below(self.streams.len() as u64 - 1) as usize) else {
            return;
        };
        if self.graphs.len() == 3 || !self.captures {
            return;
        }
        self.patterns += 1;
        let id = u128::from(self.patterns);
        self.pool.private_begin(0, id, Box::new(move |asked| asked == stream)).unwrap();
        self.device.begin_capture(stream);
        self.graphs.push(Graph { id, owned: Vec::new(), live: Vec::new() });
        let index = self.graphs.len() - 1;
        for _ in 0..1 + self.random.below(8) {
            let bytes = self.size() / 4 + 1;
            match self.pool.malloc(bytes, 0, stream, 1) {
                Ok(at) => {
                    self.assert_new(at.0, block_bytes(bytes), Some(index));
                    let graph = &mut self.graphs[index];
                    graph.owned.push((at.0, block_bytes(bytes)));
                    graph.live.push(at.0);
                }
                Err(Error::OutOfMemory(_)) => {}
                Err(error) => panic!("{error}"),
            }
            if self.random.below(2) == 0
                && let Some(at) = self.graphs[index].live.pop()
            {
                self.pool.free(Address(at), stream).unwrap();
            }
        }
        self.device.end_capture(stream);
        self.pool.private_end(0, id).unwrap();
    }

    /// A replay writes all of the graph's memory and checks it, on the default stream.
    fn replay(&mut self) {
        let index = self.random.below(self.graphs.len() as u64) as usize;
        let Some(owned) = self.graphs.get(index).map(|graph| graph.owned.clone()) else { return };
        self.patterns += 1;
        let pattern = self.patterns << 32;
        // Freed and reused within the capture: later ranges may lie over earlier ones, so each is checked in turn.
        for (at, bytes) in owned {
            self.write(LEGACY, at, bytes, pattern);
            self.check_pattern(LEGACY, at, bytes, pattern);
        }
    }

    fn release_graph(&mut self) {
        if self.graphs.is_empty() {
            return;
        }
        let index = self.random.below(self.graphs.len() as u64) as usize;
        let graph = self.graphs.swap_remove(index);
        let early = self.random.below(2) == 0;
        if early {
            self.pool.private_release(0, graph.id).unwrap();
        }
        for at in graph.live {
            self.pool.free(Address(at), LEGACY).unwrap();
        }
        if !early {
            self.pool.private_release(0, graph.id).unwrap();
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..340 => self.allocate(),
            340..620 => self.free_some(),
            620..700 => self.use_here(),
            700..760 => self.use_elsewhere(),
            760..960 => {
                let stream = self.stream();
                for _ in 0..self.random.below(30) {
                    self.device.step(stream);
                }
            }
            960..970 => self.destroy_stream(),
            970..976 => self.capture(),
            976..984 => self.replay(),
            984..990 => self.release_graph(),
            990..994 => {
                let keep = self.random.below(CAPACITY);
                self.pool.trim(0, keep).unwrap();
                assert!(self.pool.stats(0).unwrap().physical <= keep.max(self.pool.stats(0).unwrap().physical));
            }
            994..998 => {
                let limit = if self.random.below(2) == 0 { 0 } else { CAPACITY / 2 + self.random.below(CAPACITY / 2) };
                self.pool.set_limit(0, limit).unwrap();
            }
            _ => {
                self.device.run_all();
            }
        }
        for index in 0..self.streams.len() {
            let stream = self.streams[index].0;
            while self.device.queued(stream) > MOST_QUEUED {
                // A stream that waits for another gets on only when that one does.
                if !self.device.step(stream) {
                    self.device.run_all();
                }
            }
        }
    }

    fn check(&self) {
        self.pool.check(0).unwrap();
        let stats = self.pool.stats(0).unwrap();
        let graphs: u64 = self
            .graphs
            .iter()
            .map(|graph| {
                let live = |at: &u64| {
                    graph.owned.iter().rev().find(|&&(start, _)| start == *at).map_or(0, |&(_, bytes)| bytes)
                };
                graph.live.iter().map(live).sum::<u64>()
            })
            .sum();
        let live: u64 = self.blocks.values().map(|block| block.bytes).sum();
        assert_eq!(stats.live, live + graphs, "live bytes");
        assert_eq!(self.mismatches.load(Ordering::Relaxed), 0, "memory was handed out before its last use was over");
        assert_eq!(self.device.wrong_uses(), (0, 0), "a dead stream handle was used, or memory that was not mapped");
    }

    fn finish(mut self) {
        while let Some((at, block)) = self.pick() {
            self.free(at, block.stream);
        }
        while !self.graphs.is_empty() {
            self.release_graph();
        }
        self.device.run_all();
        self.check();
        self.pool.set_limit(0, 0).unwrap();
        let stats = self.pool.stats(0).unwrap();
        let released = self.pool.trim(0, 0).unwrap();
        assert_eq!(
            (released, self.pool.stats(0).unwrap().physical),
            (stats.physical, 0),
            "{}",
            self.pool.report(0).unwrap()
        );
        // Everything is free: the largest request that fits the device must succeed.
        let whole = self.pool.malloc(CAPACITY, 0, LEGACY, 0).unwrap();
        self.pool.free(whole, LEGACY).unwrap();
        for (stream, kind) in std::mem::take(&mut self.streams) {
            if kind == Kind::Registered {
                self.pool.stream_unregister(0, stream).unwrap();
            }
            if kind != Kind::Default {
                self.driver.stream_destroy(DEVICE, stream).unwrap();
            }
        }
        let device = Arc::clone(&self.device);
        drop(self);
        assert!(device.is_idle(), "something is left");
    }
}

fn run(seed: u64, steps: u64, shape: Shape, device: Arc<dyn Device>) {
    let mut program = Program::new(seed, shape, device);
    for step in 0..steps {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            program.step();
            program.check();
        }));
        assert!(done.is_ok(), "seed {seed}, step {step}, {shape:?}");
    }
    program.finish();
}

fn steps() -> u64 {
    std::env::var("FOREBAY_STEPS").ok().map_or(1_000_000, |text| text.parse().unwrap())
}

/// A sixteenth of all steps each, in programs of 2000.
fn family(first_seed: u64, shares: u64, shape: Shape) {
    let programs = (steps() * shares / 16).div_ceil(2000);
    for seed in first_seed..first_seed + programs {
        run(seed, 2000, shape, Arc::new(shape.on_host()));
    }
}

#[test]
fn programs_on_a_held_back_clock() {
    family(1_000, 8, Shape::default());
}

#[test]
fn programs_that_grow_first() {
    family(20_000, 2, Shape { grow_first: true, ..Shape::default() });
}

#[test]
fn programs_without_virtual_memory() {
    family(30_000, 1, Shape { no_vmm: true, ..Shape::default() });
    family(70_000, 1, Shape { no_vmm: true, grow_first: true, immediate: true, ..Shape::default() });
}

#[test]
fn programs_without_virtual_memory_nor_device_events() {
    family(30_000, 1, Shape { no_vmm: true, no_device_events: true, ..Shape::default() });
}

#[test]
fn programs_without_stream_identity() {
    family(40_000, 2, Shape { no_identity: true, ..Shape::default() });
}

#[test]
fn programs_whose_work_runs_at_once() {
    family(50_000, 2, Shape { immediate: true, ..Shape::default() });
}

#[test]
fn programs_on_pinned_memory() {
    family(60_000, 1, Shape { pinned: true, ..Shape::default() });
}

/// Programs of every shape in a process that has this libcuda.
fn through_the_cuda_layer(libcuda: &Libcuda) {
    says(libcuda.serve(&mut role("child_through_the_cuda_layer")), "1 passed");
}

#[test]
fn programs_through_the_cuda_layer() {
    through_the_cuda_layer(&Libcuda::new("programs"));
}

#[test]
fn programs_through_the_cuda_layer_without_stream_identity() {
    through_the_cuda_layer(&Libcuda::new("no-identity").without(&["cuStreamGetId"]));
}

#[test]
fn programs_through_the_cuda_layer_without_device_events() {
    through_the_cuda_layer(&Libcuda::new("no-device-events").without(&["cuCtxRecordEvent"]));
}

#[test]
#[ignore = "its parents run it in a process of its own"]
fn child_through_the_cuda_layer() {
    let usual = Shape::default();
    let shapes = [
        usual,
        Shape { grow_first: true, ..usual },
        Shape { immediate: true, ..usual },
        Shape { pinned: true, ..usual },
        Shape { no_vmm: true, ..usual },
        Shape { no_vmm: true, grow_first: true, immediate: true, ..usual },
    ];
    let programs = (steps() / 192).div_ceil(2000);
    for (shape, first_seed) in shapes.into_iter().zip((100_000..).step_by(1000)) {
        for seed in first_seed..first_seed + programs {
            run(seed, 2000, shape, Arc::new(shape.on_standin()));
        }
    }
}

/// Set in the child process of the sabotage tests: which lie the driver tells.
const SABOTAGE: &str = "FOREBAY_TEST_SABOTAGE";

#[test]
fn sabotaged_child() {
    let Ok(lie) = std::env::var(SABOTAGE) else { return };
    for seed in 0..40 {
        let driver = Shape::default().on_host();
        let mut program = Program::new(seed, Shape::default(), Arc::new(driver.clone()));
        match lie.as_str() {
            "waits" => driver.lie_ignore_waits(true),
            _ => driver.lie_events_pass(true),
        }
        for _ in 0..2000 {
            // Uses on one stream only: what the program itself orders by waits would fail with the pool in order.
            match program.random.below(10) {
                0..4 => program.allocate(),
                4..7 => {
                    if let Some((at, block)) = program.pick() {
                        program.free(at, block.stream);
                    }
                }
                _ => {
                    let stream = program.stream();
                    program.device.step(stream);
                }
            }
            program.check();
        }
    }
}

/// The proof that the check works: with one wait taken out, the same kind of program finds corrupted bytes
/// (or touches memory that was unmapped under it).
fn sabotage(lie: &str) {
    let child = again("sabotaged_child").env(SABOTAGE, lie).output().unwrap();
    let text = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "a missing wait went unnoticed: {lie}");
    let crashed = std::os::unix::process::ExitStatusExt::signal(&child.status) == Some(libc::SIGSEGV);
    assert!(crashed || text.contains("before its last use was over"), "{lie}: failed for another reason: {text}");
}

#[test]
fn a_missing_wait_between_streams_shows_as_corrupted_bytes() {
    sabotage("waits");
}

#[test]
fn an_event_believed_too_early_shows_as_corrupted_bytes() {
    sabotage("events");
}
