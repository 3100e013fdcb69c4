//! The next step of the slow path, if no free block is long enough.

use super::budget::Left;
use super::history::History;

/// The pool does not grow beyond this many times its live bytes to save moves.
const LIVE_FACTOR: u64 = 2;
/// Once the time for moves is spent, the pool grows up to one `PEAK_MARGIN`th above the live peak.
const PEAK_MARGIN: u64 = 5;
/// Once streams have waited for each other this often since the pool grew, they do so all the time.
const MAX_WAITS: u32 = 16;
/// Up to one `IDLE_MARGIN`th above the live peak, the pool grows rather than leave streams idle.
const IDLE_MARGIN: u64 = 32;
/// Below one `SMALL_POOL`th of the device's memory, the pool grows rather than make a stream wait for another.
const SMALL_POOL: u64 = 128;
/// Other streams' memory is worth a wait from one `MIN_TRANSFER`th of what the pool would hold: when the pool grows
/// instead, that memory stays on top of what is live.
const MIN_TRANSFER: u64 = 64;

/// Where the search for free memory was so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Searched {
    /// In the arena.
    Arena,
    /// Also in the requesting stream's cache.
    OwnCache,
    /// Also in every cache and behind every fence.
    AllStreams,
}

/// A plan for the request's memory. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Whether the plan may move chunks. Otherwise all missing memory is new.
    pub moving: bool,
    /// New memory, less what was already created for the plan.
    pub new: u64,
    /// Whether the plan needs new memory, created already or not.
    pub grows: bool,
}

/// The facts that a step is chosen by. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Length of the requested block.
    pub bytes: u64,
    /// All memory of this kind.
    pub total: u64,
    /// The most bytes that the pool may hold.
    pub limit: u64,
    pub held: u64,
    /// Live bytes, the requested block included.
    pub live: u64,
    pub history: History,
    pub left: Left,
    /// Whether to take new memory rather than make a stream wait.
    pub grow_first: bool,
    pub searched: Searched,
    /// Whether polling every stream is worth its cost: there are few, or it freed memory lately.
    pub polling_pays: bool,
    /// `None`: not planned yet. `Some(None)`: no free range of addresses is long enough.
    pub planned: Option<Option<Planned>>,
    /// Free bytes of other streams that fit the request; `None`: not counted yet.
    pub others: Option<u64>,
    /// Whether the requesting stream is idle; `None`: not checked yet.
    pub idle: Option<bool>,
    /// Whether the driver had no memory for the plan.
    pub refused: bool,
    /// The number of [`RECLAIM`] ways that were tried.
    pub reclaimed: usize,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Extend the search for a free block.
    Search(Searched),
    /// Plan the request's memory, with or without moving chunks.
    Plan { moving: bool },
    /// Count the free memory of other streams that fits the request.
    CountOthers,
    /// Check whether the requesting stream is idle.
    CheckIdle,
    /// Make the requesting stream wait for another, and transfer that stream's memory to it.
    Transfer,
    /// Carry the plan out: move chunks and create what is missing.
    CarryOut,
    /// Without the lock, try these ways in order until one gives memory back.
    Reclaim(&'static [Reclaim]),
    /// Fail the request.
    Fail(Reason),
}

/// A way to get memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaim {
    /// Wait for the work that uses freed memory.
    Pending,
    /// Wait for the whole device where nothing else proves memory unused.
    Quarantine,
    /// Trim the driver's own pools.
    DriverPools,
    /// Trim the other pools of the process.
    OtherPools,
    /// Call the pressure callbacks.
    Callbacks,
}

/// In order, cheapest first. The last wait covers what the callbacks freed.
pub(crate) static RECLAIM: [Reclaim; 6] = [
    Reclaim::Pending,
    Reclaim::Quarantine,
    Reclaim::DriverPools,
    Reclaim::OtherPools,
    Reclaim::Callbacks,
    Reclaim::Pending,
];

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The request is larger than the device's whole memory.
    Total,
    /// No free range of addresses is long enough.
    Addresses,
    /// The request exceeds the limit by this many bytes.
    Limit(u64),
    /// The driver has no more memory.
    Device,
}

/// The next step. pre: no free block found so far is long enough.
pub(crate) fn next(view: &View) -> Step {
    if view.bytes > view.total {
        return Step::Fail(Reason::Total);
    }
    match view.searched {
        Searched::Arena => return Step::Search(Searched::OwnCache),
        Searched::OwnCache if view.polling_pays => return Step::Search(Searched::AllStreams),
        Searched::OwnCache | Searched::AllStreams => {}
    }
    match find_memory(view) {
        Step::Fail(_) if view.searched == Searched::OwnCache => Step::Search(Searched::AllStreams),
        Step::Fail(reason) => match RECLAIM.get(view.reclaimed..) {
            None | Some([]) => Step::Fail(reason),
            Some(ways) => Step::Reclaim(ways),
        },
        step => step,
    }
}

fn find_memory(view: &View) -> Step {
    let plan = match view.planned {
        None => return Step::Plan { moving: view.left == Left::Some },
        Some(None) => return Step::Fail(Reason::Addresses),
        Some(Some(plan)) => plan,
    };
    let wanted = view.held + plan.new;
    let over = wanted.saturating_sub(view.limit);
    if !plan.moving && (view.refused || over > 0 || !may_grow(view, wanted)) {
        return Step::Plan { moving: true };
    }
    if view.refused {
        return match view.others {
            None => Step::CountOthers,
            Some(1..) => Step::Transfer,
            Some(0) => Step::Fail(Reason::Device),
        };
    }
    let avoid_growth = plan.new > 0 && !view.grow_first && wanted > view.total / SMALL_POOL;
    if (over > 0 || avoid_growth)
        && let Some(step) = wait_for_others(view, plan.new, wanted, over > 0)
    {
        return step;
    }
    if over > 0 && plan.grows { Step::Fail(Reason::Limit(over)) } else { Step::CarryOut }
}

/// Whether the pool may grow to `wanted` bytes rather than move chunks: up to a fifth above its live peak; beyond that
/// only if there is no time even for needed moves; never above twice what is live.
fn may_grow(view: &View, wanted: u64) -> bool {
    let peak = view.history.peak;
    wanted <= view.live.saturating_mul(LIVE_FACTOR)
        && (wanted <= peak.saturating_add(peak / PEAK_MARGIN) || view.left == Left::Nothing)
}

/// The step by which the requesting stream comes to wait for another; `None` if it need not wait.
fn wait_for_others(view: &View, new: u64, wanted: u64, must: bool) -> Option<Step> {
    let others = match view.others {
        None => return Some(Step::CountOthers),
        Some(others) => others,
    };
    if others == 0 || others < new.min(wanted / MIN_TRANSFER) {
        return None;
    }
    // Up to this size two or three blocks that are used in turn let streams overlap that would otherwise wait for each
    // other. An occasional wait of a stream with queued work is cheaper than memory.
    let peak = view.history.peak;
    if must || wanted > peak.saturating_add(peak / IDLE_MARGIN) {
        return Some(Step::Transfer);
    }
    if view.history.waits >= MAX_WAITS {
        return None;
    }
    match view.idle {
        None => Some(Step::CheckIdle),
        Some(true) => None,
        Some(false) => Some(Step::Transfer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A pool of a device with 256 GiB. It holds 1000 MiB, which is its live peak, and was searched everywhere for 10
    /// MiB.
    fn view() -> View {
        View {
            bytes: 10 * MIB,
            total: 256 * GIB,
            limit: u64::MAX,
            held: 1000 * MIB,
            live: 900 * MIB,
            history: History { peak: 1000 * MIB, waits: 0 },
            left: Left::Some,
            grow_first: false,
            searched: Searched::AllStreams,
            polling_pays: true,
            planned: None,
            others: None,
            idle: None,
            refused: false,
            reclaimed: 0,
        }
    }

    fn planned(moving: bool, new: u64) -> View {
        View { planned: Some(Some(Planned { moving, new, grows: new > 0 })), ..view() }
    }

    /// As [`planned`], but the pool is too large to grow before other streams were asked.
    fn large_pool(others: Option<u64>) -> View {
        View { held: 2 * GIB, history: History { peak: 2 * GIB, waits: 0 }, others, ..planned(true, 10 * MIB) }
    }

    #[test]
    fn each_case_has_its_step() {
        let full = |view: View| View { limit: view.held, ..view };
        let with_left = |left, view: View| View { left, ..view };
        let waited = |waits, view: View| View { history: History { waits, ..view.history }, ..view };
        for (what, view, step) in [
            ("more than there is", View { bytes: 257 * GIB, ..view() }, Step::Fail(Reason::Total)),
            (
                "only the arena was searched",
                View { searched: Searched::Arena, ..view() },
                Step::Search(Searched::OwnCache),
            ),
            (
                "the cache was searched",
                View { searched: Searched::OwnCache, ..view() },
                Step::Search(Searched::AllStreams),
            ),
            (
                "polling freed nothing lately",
                View { searched: Searched::OwnCache, polling_pays: false, ..view() },
                Step::Plan { moving: true },
            ),
            ("there is time", view(), Step::Plan { moving: true }),
            ("there is no time", with_left(Left::NeededOnly, view()), Step::Plan { moving: false }),
            ("moves alone do", planned(true, 0), Step::CarryOut),
            ("the pool is small", planned(true, 10 * MIB), Step::CarryOut),
            ("a fifth above the peak", with_left(Left::NeededOnly, planned(false, 200 * MIB)), Step::CarryOut),
            ("beyond the fifth", with_left(Left::NeededOnly, planned(false, 201 * MIB)), Step::Plan { moving: true }),
            ("beyond it without any time", with_left(Left::Nothing, planned(false, 201 * MIB)), Step::CarryOut),
            ("twice what is live", with_left(Left::Nothing, planned(false, 801 * MIB)), Step::Plan { moving: true }),
            ("beyond the limit, nothing moved", full(planned(false, 10 * MIB)), Step::Plan { moving: true }),
            ("beyond the limit", full(planned(true, 10 * MIB)), Step::CountOthers),
            ("beyond the limit, others have some", View { others: Some(1), ..full(planned(true, 0)) }, Step::CarryOut),
            (
                "beyond the limit, others have enough",
                View { others: Some(10 * MIB), ..full(planned(true, 10 * MIB)) },
                Step::Transfer,
            ),
            (
                "beyond the limit, others have nothing",
                View { others: Some(0), ..full(planned(true, 10 * MIB)) },
                Step::Reclaim(&RECLAIM),
            ),
            (
                "reclaim gave nothing",
                View { others: Some(0), reclaimed: RECLAIM.len(), ..full(planned(true, 10 * MIB)) },
                Step::Fail(Reason::Limit(10 * MIB)),
            ),
            ("others may have enough", large_pool(None), Step::CountOthers),
            ("others have too little", large_pool(Some(9 * MIB)), Step::CarryOut),
            ("others have enough", large_pool(Some(10 * MIB)), Step::CheckIdle),
            ("and the stream is busy", View { idle: Some(false), ..large_pool(Some(10 * MIB)) }, Step::Transfer),
            ("and the stream is idle", View { idle: Some(true), ..large_pool(Some(10 * MIB)) }, Step::CarryOut),
            ("and they wait all the time", waited(MAX_WAITS, large_pool(Some(10 * MIB))), Step::CarryOut),
            (
                "and the pool is a 32nd above the peak",
                View { held: 2 * GIB + 64 * MIB, ..large_pool(Some(34 * MIB)) },
                Step::Transfer,
            ),
            ("growth is wanted", View { grow_first: true, ..large_pool(Some(10 * MIB)) }, Step::CarryOut),
            ("no addresses", View { planned: Some(None), ..view() }, Step::Reclaim(&RECLAIM)),
            ("refused, nothing moved", View { refused: true, ..planned(false, 1) }, Step::Plan { moving: true }),
            ("refused", View { refused: true, ..planned(true, 1) }, Step::CountOthers),
            ("refused, others have some", View { refused: true, others: Some(1), ..planned(true, 1) }, Step::Transfer),
            (
                "refused, others have nothing",
                View { refused: true, others: Some(0), reclaimed: RECLAIM.len(), ..planned(true, 1) },
                Step::Fail(Reason::Device),
            ),
            (
                "refused before all streams were polled",
                View {
                    refused: true,
                    others: Some(0),
                    searched: Searched::OwnCache,
                    polling_pays: false,
                    ..planned(true, 1)
                },
                Step::Search(Searched::AllStreams),
            ),
        ] {
            assert_eq!(next(&view), step, "{what}");
        }
    }

    #[test]
    fn each_way_to_reclaim_is_tried_once() {
        let failing = |reclaimed| View { planned: Some(None), reclaimed, ..view() };
        for tried in 0..RECLAIM.len() {
            assert_eq!(next(&failing(tried)), Step::Reclaim(&RECLAIM[tried..]));
        }
        assert_eq!(next(&failing(RECLAIM.len())), Step::Fail(Reason::Addresses));
    }
}
