//! One replay: timed first, checked after.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay::abi::pool::memory::forebay_pool_block_size_for;

use crate::arguments::Arguments;
use crate::pool::{Pointer, Pool};
use crate::trace::{Operation, Trace};

/// What a replay showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub trace: String,
    pub driver: &'static str,
    pub events: u64,
    pub streams: u64,
    pub peak_live: u64,
    pub peak_physical: u64,
    /// What the driver calls would have cost, where the driver prices them.
    pub driver_ms: Option<f64>,
    pub ns_per_op: f64,
    pub steals: u64,
    pub growths: u64,
    pub waits: u64,
}

/// The clock stops between two of these, for the progress bar: its own cost is spread over so many operations.
const TIMED_AT_ONCE: usize = 8192;

/// Of a program between two operations, where the user does not say: trainings on a GPU were seen to make 3,000 to 40,000 a second.
const PAUSE: Duration = Duration::from_micros(50);

/// The pool counts in these.
const GRANULE: u64 = 512;

/// Replays a trace in a fresh pool. `progress` is told of operations done.
pub fn replay(trace: &Trace, arguments: &Arguments, progress: impl Fn(u64)) -> Result<Outcome, String> {
    let named = |text: String| format!("{}: {text}", trace.name);
    let mut pool = Pool::new(arguments.limit).map_err(named)?;
    let streams: Result<Vec<Pointer>, String> = trace.streams.iter().map(|&number| pool.stream(number)).collect();
    let streams = streams.map_err(named)?;
    // Opens the device, so that the first operation does not pay for it.
    let before = pool.stats().map_err(named)?;
    // By block, never forgotten: the checks need where each was.
    let mut addresses = Vec::with_capacity(trace.blocks);
    let pause = arguments.seconds.map_or(PAUSE, |time| time.div_f64(trace.operations.len() as f64));
    let mut spent = Duration::ZERO;
    let mut at = 0;
    for part in trace.operations.chunks(TIMED_AT_ONCE) {
        let start = Instant::now();
        for operation in part {
            let done = match *operation {
                Operation::Allocate { bytes, stream } => pool.malloc(bytes, streams[stream]).and_then(|address| {
                    addresses.push(address);
                    if arguments.work { pool.touch(address, streams[stream]) } else { Ok(()) }
                }),
                Operation::Free { block, stream } => {
                    let touched = if arguments.work { pool.touch(addresses[block], streams[stream]) } else { Ok(()) };
                    touched.and_then(|()| pool.free(addresses[block], streams[stream]))
                }
            };
            done.map_err(|why| refused(trace, at, &why))?;
            pool.pass(pause);
            at += 1;
        }
        spent += start.elapsed();
        progress(part.len() as u64);
    }
    let stats = pool.stats().map_err(named)?;
    let Checked { left, peak_live, peak_blocks } = check_blocks(trace, &addresses)?;
    pool.check().map_err(named)?;
    // With several streams the pool's own figure may be low by 1 MiB for each; with one it is exact.
    let slack = if streams.len() > 1 { streams.len() as u64 * (1 << 20) } else { 0 };
    if stats.live_peak > peak_blocks || stats.live_peak + slack < peak_blocks {
        return Err(named(format!(
            "the pool says that {} bytes were live at the peak; the blocks for the trace are {peak_blocks}",
            stats.live_peak
        )));
    }
    for (block, stream) in left {
        pool.free(addresses[block], streams[stream]).map_err(named)?;
    }
    let after = pool.stats().map_err(named)?;
    if after.live != 0 {
        return Err(named(format!("{} bytes are live after everything was freed", after.live)));
    }
    Ok(Outcome {
        trace: trace.name.clone(),
        driver: pool.driver(),
        events: trace.operations.len() as u64,
        streams: streams.len() as u64,
        peak_live,
        peak_physical: stats.physical_peak,
        driver_ms: (stats.driver_calls > 0).then(|| (stats.driver_ns - before.driver_ns) as f64 / 1e6),
        ns_per_op: spent.as_nanos() as f64 / trace.operations.len() as f64,
        steals: stats.steals,
        growths: stats.growths,
        waits: stats.waits,
    })
}

fn refused(trace: &Trace, at: usize, why: &str) -> String {
    let what = match trace.operations[at] {
        Operation::Allocate { bytes, .. } => format!("{bytes} bytes were refused"),
        Operation::Free { .. } => "a free was refused".to_owned(),
    };
    format!("{}, line {}: {what}: {why}", trace.name, trace.lines[at])
}

/// What the addresses that a pool gave say.
struct Checked {
    /// Live at the end, block and stream.
    left: Vec<(usize, usize)>,
    /// The most that was live at once: of what the trace asks for, and of the blocks for it, some of which are longer.
    peak_live: u64,
    peak_blocks: u64,
}

/// Walks the trace again with the addresses that the pool gave: no two live blocks may share a byte, and every
/// address is a multiple of 512.
fn check_blocks(trace: &Trace, addresses: &[Pointer]) -> Result<Checked, String> {
    // Start to end and block.
    let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut of_block = Vec::with_capacity(addresses.len());
    let (mut live_now, mut blocks_now) = (0, 0);
    let (mut peak_live, mut peak_blocks) = (0, 0);
    for (at, operation) in trace.operations.iter().enumerate() {
        let wrong = |what: String| Err(format!("{}, line {}: {what}", trace.name, trace.lines[at]));
        match *operation {
            Operation::Allocate { bytes, stream } => {
                let block = of_block.len();
                let (start, length) = (addresses[block] as u64, forebay_pool_block_size_for(bytes));
                let asked = bytes.next_multiple_of(GRANULE);
                of_block.push((start, stream, asked));
                if bytes == 0 {
                    continue;
                }
                if start == 0 || start % GRANULE != 0 {
                    return wrong(format!("the address {start:#x} is not a multiple of {GRANULE}"));
                }
                // Live blocks do not overlap, so of those that start before our end the last one also ends last.
                if let Some((&other, &(end, _))) = live.range(..start + length).next_back()
                    && end > start
                {
                    return wrong(format!("{start:#x}+{length} overlaps the live block {other:#x}+{}", end - other));
                }
                live.insert(start, (start + length, block));
                live_now += asked;
                blocks_now += length;
                peak_live = peak_live.max(live_now);
                peak_blocks = peak_blocks.max(blocks_now);
            }
            Operation::Free { block, .. } => {
                let (start, _, asked) = of_block[block];
                if let Some((end, _)) = live.remove(&start) {
                    live_now -= asked;
                    blocks_now -= end - start;
                }
            }
        }
    }
    let left = live.values().map(|&(_, block)| (block, of_block[block].1)).collect();
    Ok(Checked { left, peak_live, peak_blocks })
}
