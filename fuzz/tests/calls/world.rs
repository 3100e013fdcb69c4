//! What is there: streams, and everything that has an address.

use std::collections::BTreeMap;
use std::ffi::c_void;

use dlpark::ffi::DLManagedTensorVersioned;
use forebay::abi::pool::stats::forebay_pool_check;
use forebay::abi::pool::streams::*;

use crate::kit::resources::*;
use crate::{Index, Shape};

/// So many bytes at both ends of a range are written and checked.
const MARKED: u64 = 4096;

pub struct StreamOf {
    pub handle: Stream,
    pub device: i32,
    pub registered: bool,
}

/// One live range: a block of the pool, a resource's pointer, or a buffer's memory.
pub struct Range {
    pub bytes: u64,
    pub device: i32,
    pub stream: Stream,
    /// Other streams that were recorded as users.
    pub users: Vec<Stream>,
    /// What it holds; None where its device may not write it.
    pub mark: Option<u8>,
    /// The size of its block in the program's pool; 0 for memory of another.
    pub in_pool: u64,
    pub owner: Owner,
}

pub enum Owner {
    Pool,
    /// The resource that gave the pointer.
    Pointer(usize),
    /// Of a resource, by its index; the object is gone once it was destroyed.
    Buffer(Option<Buffer>, usize, Vec<*mut DLManagedTensorVersioned>),
}

/// A resource that was made.
pub struct Made {
    pub resource: Resource,
    /// Of the program's own pool.
    pub of_pool: bool,
    /// Whose streams its memory is used on.
    pub device: i32,
    pub is_closed: bool,
    /// Its device may read and write the memory.
    pub writable: bool,
}

pub struct World {
    pub pool: Pool,
    pub streams: Vec<StreamOf>,
    pub ranges: BTreeMap<Block, Range>,
    pub resources: Vec<Made>,
    /// Private pools: the id and the stream of each begin that has no end yet.
    pub begun: Vec<(i32, u64, Stream)>,
    pub holds: Vec<(i32, u64)>,
    pub callbacks: Vec<u64>,
    marks: u8,
}

impl World {
    /// None where these options make no pool.
    pub fn new(shape: &Shape) -> Option<Self> {
        shared();
        let made = Pool::with(|options| {
            options.location = if shape.pinned { ForebayLocation::HostNuma } else { ForebayLocation::Device } as u32;
            options.numa_id = -1;
            options.grow_first = shape.grow_first.into();
            options.limit = if shape.is_limited { u64::from(shape.limit) } else { 0 };
            options.max_chunk = if shape.max_chunk < 128 { 0 } else { 1 << (shape.max_chunk % 64) };
        });
        let pool = match made {
            Ok(pool) => pool,
            Err(failure) => {
                allowed(failure, &[Status::InvalidArgument]);
                return None;
            }
        };
        Some(Self {
            pool,
            streams: Vec::new(),
            ranges: BTreeMap::new(),
            resources: Vec::new(),
            begun: Vec::new(),
            holds: Vec::new(),
            callbacks: Vec::new(),
            marks: 0,
        })
    }

    /// A default stream, or one of `device` that was made.
    pub fn stream(&self, device: i32, index: Index) -> Stream {
        let own = self.streams.iter().filter(|stream| stream.device == device).map(|stream| stream.handle);
        let all: Vec<_> = [LEGACY, LEGACY_BY_NAME, PER_THREAD].into_iter().chain(own).collect();
        all[usize::from(index) % all.len()]
    }

    /// Whether something says that the stream must live on.
    pub fn needs(&self, handle: Stream) -> bool {
        self.begun.iter().any(|&(_, _, stream)| stream == handle)
            || self.ranges.values().any(|range| range.stream == handle || range.users.contains(&handle))
    }

    /// The live range of that index among those of a kind.
    pub fn pick(&self, index: Index, which: impl Fn(&Owner) -> bool) -> Option<Block> {
        let of_kind: Vec<_> = self.ranges.iter().filter(|(_, range)| which(&range.owner)).map(|(&at, _)| at).collect();
        (!of_kind.is_empty()).then(|| of_kind[usize::from(index) % of_kind.len()])
    }

    /// A new live range, which nothing else has a part of; marked in the order of its stream.
    pub fn add(&mut self, at: Block, bytes: u64, device: i32, stream: Stream, owner: Owner) {
        let writable = match owner {
            Owner::Pool => true,
            Owner::Pointer(index) | Owner::Buffer(_, index, _) => self.resources[index].writable,
        };

        assert_ne!(at, 0);
        assert!(bytes > 0);
        let end = at + bytes as usize;
        if let Some((other, range)) = self.ranges.range(..end).next_back() {
            assert!(other + range.bytes as usize <= at, "{at:#x}+{bytes} lies in {other:#x}+{}", range.bytes);
        }
        self.ranges.insert(
            at,
            Range { bytes, device, stream, users: Vec::new(), mark: writable.then_some(0), in_pool: 0, owner },
        );
        self.mark(at);
    }

    /// Writes new contents.
    pub fn mark(&mut self, at: Block) {
        self.marks = self.marks.wrapping_add(1);
        let (mark, range) = (self.marks, self.ranges.get_mut(&at).unwrap());
        if range.mark.is_none() {
            return;
        }
        range.mark = Some(mark);
        let (device, stream) = (range.device, range.stream as *mut c_void);
        for (at, bytes) in ends(at, range.bytes) {
            done(unsafe { forebay_pool_fill(shared().0, device, at as *mut c_void, mark, bytes, stream) }).unwrap();
        }
    }

    /// The contents are as they were written.
    pub fn holds_mark(&self, at: Block) {
        let range = &self.ranges[&at];
        let Some(mark) = range.mark else { return };
        for (from, bytes) in ends(at, range.bytes) {
            let mut data = vec![0u8; bytes as usize];
            let (to, from, stream) = (data.as_mut_ptr().cast(), from as *const c_void, range.stream as *mut c_void);
            done(unsafe { forebay_pool_copy(shared().0, range.device, to, from, bytes, stream) }).unwrap();
            self.synchronize(range.device, range.stream);
            let wrong = data.iter().position(|&byte| byte != mark);
            assert_eq!(wrong, None, "{at:#x}+{} was written by somebody else", range.bytes);
        }
    }

    pub fn synchronize(&self, device: i32, stream: Stream) {
        done(unsafe { forebay_stream_synchronize(shared().0, device, stream as *mut c_void) }).unwrap();
    }

    pub fn check(&self) {
        (0..2).for_each(|device| done(unsafe { forebay_pool_check(self.pool.0, device) }).unwrap());
    }

    /// Everything holds what it should; then everything ends in the order that the header asks for.
    pub fn end(mut self) {
        self.ranges.keys().for_each(|&at| self.holds_mark(at));
        self.check();
        while let Some((&at, _)) = self.ranges.iter().next() {
            self.let_go(at);
        }
        while let Some((device, id, _)) = self.begun.pop() {
            self.pool_private_end(device, id).unwrap();
        }
        while let Some((device, id)) = self.holds.pop() {
            self.pool_private_release(device, id).unwrap();
        }
        self.resources.clear();
        self.callbacks.iter().for_each(|&id| self.pool.remove_callback(id).unwrap());
        self.check();
        for device in 0..2 {
            let stats = self.pool.try_stats(device, size_of::<ForebayPoolStats>() as u32, FOREBAY_STATS_VERSION);
            assert_eq!(stats.unwrap().live, 0);
        }
        for stream in self.streams {
            let (device, handle) = (stream.device, stream.handle as *mut c_void);
            done(unsafe { forebay_stream_destroy(self.pool.0, device, handle) }).unwrap();
        }
    }
}

/// The parts of a range that are written: both ends.
fn ends(at: Block, bytes: u64) -> Vec<(Block, u64)> {
    if bytes <= 2 * MARKED {
        return vec![(at, bytes)];
    }
    vec![(at, MARKED), (at + (bytes - MARKED) as usize, MARKED)]
}

/// What a call answered: anything but a panic.
pub fn done(status: Status) -> Outcome {
    let outcome = outcome(status);
    if let Err(failure) = &outcome {
        assert_ne!(failure.status, Status::Panic, "{}", failure.text);
    }
    outcome
}

/// A failure that is one of these.
pub fn allowed(failure: Failure, allowed: &[Status]) {
    assert!(allowed.contains(&failure.status), "{failure:?}");
}
