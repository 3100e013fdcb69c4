//! What the slow path does next, where no free block is long enough.

use super::budget::Left;
use super::history::History;

/// Beyond so many times what is live, no memory is taken to save moves.
const MOST: u64 = 2;
/// One part in so many of the most that was live: so far the pool grows freely once there is no time for moves.
const FREELY: u64 = 5;
/// Streams that were made to wait for each other so often, while the pool did not grow, are at it all the time.
const WAITS: u32 = 16;
/// To so little more than was ever live, one part in so many, the pool grows rather than let streams stand idle.
const RATHER_THAN_WAIT: u64 = 32;
/// Below one part in so many of the device's memory a pool grows rather than make one stream wait for another.
const FREE_GROWTH: u64 = 128;
/// Other streams' memory is worth a wait where it is one part in so many of what the pool would hold: what is left with them when the
/// pool grows stays on top of what is live.
const WORTH_A_WAIT: u64 = 64;

/// Which streams' freed memory was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// What lies in the arena.
    Nowhere,
    /// Also what lies in the asking stream's cache.
    Own,
    /// Also what lies in every cache, and every fence.
    Everywhere,
}

/// How room could be made, as planned. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Whether chunks may move in this plan. Else all that is missing is new.
    pub moving: bool,
    /// New memory, without what was made for it already.
    pub new: u64,
    /// Whether any of it is new, made already or not.
    pub grows: bool,
}

/// What is known when a step is chosen. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// How long the block is to be.
    pub bytes: u64,
    /// All there is of such memory.
    pub total: u64,
    /// Most that may be held.
    pub limit: u64,
    pub held: u64,
    /// With the block.
    pub live: u64,
    pub history: History,
    pub left: Left,
    /// Whether new memory is taken rather than a stream made to wait.
    pub grow_first: bool,
    pub looked: Looked,
    /// Whether a look at every stream may give anything: there are few, or it gave something lately.
    pub look_pays: bool,
    /// `None`: not planned yet. A plan that found no addresses: `Some(None)`.
    pub planned: Option<Option<Planned>>,
    /// What other streams have that helps; `None`: nobody asked yet.
    pub others: Option<u64>,
    /// Whether the asking stream has nothing to do; `None`: nobody asked yet.
    pub idle: Option<bool>,
    /// The driver had no memory for the plan.
    pub refused: bool,
    /// How many of [`RECLAIM`] were tried.
    pub reclaimed: usize,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look further for a free block.
    Look(Looked),
    /// Plan to make room, with or without moving chunks.
    Plan { moving: bool },
    /// Find out what other streams have that helps.
    AskOthers,
    /// Find out whether the asking stream stands idle.
    AskIdle,
    /// Make the asking stream wait for another, and give it that one's memory.
    Transfer,
    /// Carry the plan out: move chunks, and create what is missing.
    CarryOut,
    /// Without the lock: get memory back in the first of these ways that gives any.
    Reclaim(&'static [Reclaim]),
    /// There is none.
    Fail(Reason),
}

/// How memory is got back.
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
    /// Ask those who were added for that.
    Callbacks,
}

/// In order, nearest first. The wait at the end is for what the callbacks freed.
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
    /// There is not so much in all.
    Total,
    /// No run of addresses is that long.
    Addresses,
    /// So many more bytes than the limit allows.
    Limit(u64),
    /// The driver had no more.
    Device,
}

/// The next step. pre: no free block that was looked at is long enough.
pub(crate) fn next(view: &View) -> Step {
    if view.bytes > view.total {
        return Step::Fail(Reason::Total);
    }
    match view.looked {
        Looked::Nowhere => return Step::Look(Looked::Own),
        Looked::Own if view.look_pays => return Step::Look(Looked::Everywhere),
        Looked::Own | Looked::Everywhere => {}
    }
    match make_room(view) {
        Step::Fail(_) if view.looked == Looked::Own => Step::Look(Looked::Everywhere),
        Step::Fail(reason) => match RECLAIM.get(view.reclaimed..) {
            None | Some([]) => Step::Fail(reason),
            Some(ways) => Step::Reclaim(ways),
        },
        step => step,
    }
}

fn make_room(view: &View) -> Step {
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
            None => Step::AskOthers,
            Some(1..) => Step::Transfer,
            Some(0) => Step::Fail(Reason::Device),
        };
    }
    let thrifty = plan.new > 0 && !view.grow_first && wanted > view.total / FREE_GROWTH;
    if (over > 0 || thrifty)
        && let Some(step) = wait_for_others(view, plan.new, wanted, over > 0)
    {
        return step;
    }
    if over > 0 && plan.grows { Step::Fail(Reason::Limit(over)) } else { Step::CarryOut }
}

/// Whether the pool may come to hold so much rather than move chunks: freely to a fifth more than was ever live at once, beyond that only
/// where there is no time even for needed moves, and never to more than twice what is live now.
fn may_grow(view: &View, wanted: u64) -> bool {
    let peak = view.history.peak;
    wanted <= view.live.saturating_mul(MOST)
        && (wanted <= peak.saturating_add(peak / FREELY) || view.left == Left::Nothing)
}

/// Whether the asking stream is made to wait for another, and what has to be asked before that is known.
fn wait_for_others(view: &View, new: u64, wanted: u64, must: bool) -> Option<Step> {
    let others = match view.others {
        None => return Some(Step::AskOthers),
        Some(others) => others,
    };
    if others == 0 || others < new.min(wanted / WORTH_A_WAIT) {
        return None;
    }
    // Two or three blocks that are in use in turns let streams overlap that would else take turns themselves. A wait of a stream that is
    // behind itself, now and then, is cheaper than memory.
    let peak = view.history.peak;
    if must || wanted > peak.saturating_add(peak / RATHER_THAN_WAIT) {
        return Some(Step::Transfer);
    }
    if view.history.waits >= WAITS {
        return None;
    }
    match view.idle {
        None => Some(Step::AskIdle),
        Some(true) => None,
        Some(false) => Some(Step::Transfer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A pool of a device with 256 GiB that holds 1000 MiB, of which all were live once, and searched everywhere for 10 MiB.
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
            looked: Looked::Everywhere,
            look_pays: true,
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

    /// As [`planned`], with more than the pool may hold without a wait.
    fn thrifty(others: Option<u64>) -> View {
        View { held: 2 * GIB, history: History { peak: 2 * GIB, waits: 0 }, others, ..planned(true, 10 * MIB) }
    }

    #[test]
    fn each_case_has_its_step() {
        let full = |view: View| View { limit: view.held, ..view };
        let broke = |left, view: View| View { left, ..view };
        let waited = |waits, view: View| View { history: History { waits, ..view.history }, ..view };
        for (what, view, step) in [
            ("more than there is", View { bytes: 257 * GIB, ..view() }, Step::Fail(Reason::Total)),
            ("nothing was looked at", View { looked: Looked::Nowhere, ..view() }, Step::Look(Looked::Own)),
            ("own memory was looked at", View { looked: Looked::Own, ..view() }, Step::Look(Looked::Everywhere)),
            (
                "a look gave nothing lately",
                View { looked: Looked::Own, look_pays: false, ..view() },
                Step::Plan { moving: true },
            ),
            ("there is time", view(), Step::Plan { moving: true }),
            ("there is no time", broke(Left::ForNeed, view()), Step::Plan { moving: false }),
            ("moves alone do", planned(true, 0), Step::CarryOut),
            ("the pool is small", planned(true, 10 * MIB), Step::CarryOut),
            ("a fifth above the peak", broke(Left::ForNeed, planned(false, 200 * MIB)), Step::CarryOut),
            ("beyond the fifth", broke(Left::ForNeed, planned(false, 201 * MIB)), Step::Plan { moving: true }),
            ("beyond it without any time", broke(Left::Nothing, planned(false, 201 * MIB)), Step::CarryOut),
            ("twice what is live", broke(Left::Nothing, planned(false, 801 * MIB)), Step::Plan { moving: true }),
            ("beyond the limit, nothing moved", full(planned(false, 10 * MIB)), Step::Plan { moving: true }),
            ("beyond the limit", full(planned(true, 10 * MIB)), Step::AskOthers),
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
                "nothing helped",
                View { others: Some(0), reclaimed: RECLAIM.len(), ..full(planned(true, 10 * MIB)) },
                Step::Fail(Reason::Limit(10 * MIB)),
            ),
            ("others are worth asking", thrifty(None), Step::AskOthers),
            ("others have too little", thrifty(Some(9 * MIB)), Step::CarryOut),
            ("others have enough", thrifty(Some(10 * MIB)), Step::AskIdle),
            ("and the stream is busy", View { idle: Some(false), ..thrifty(Some(10 * MIB)) }, Step::Transfer),
            ("and the stream is idle", View { idle: Some(true), ..thrifty(Some(10 * MIB)) }, Step::CarryOut),
            ("and they wait all the time", waited(WAITS, thrifty(Some(10 * MIB))), Step::CarryOut),
            (
                "and the pool is a 32nd above the peak",
                View { held: 2 * GIB + 64 * MIB, ..thrifty(Some(34 * MIB)) },
                Step::Transfer,
            ),
            ("growth is wanted", View { grow_first: true, ..thrifty(Some(10 * MIB)) }, Step::CarryOut),
            ("no addresses", View { planned: Some(None), ..view() }, Step::Reclaim(&RECLAIM)),
            ("refused, nothing moved", View { refused: true, ..planned(false, 1) }, Step::Plan { moving: true }),
            ("refused", View { refused: true, ..planned(true, 1) }, Step::AskOthers),
            ("refused, others have some", View { refused: true, others: Some(1), ..planned(true, 1) }, Step::Transfer),
            (
                "refused, others have nothing",
                View { refused: true, others: Some(0), reclaimed: RECLAIM.len(), ..planned(true, 1) },
                Step::Fail(Reason::Device),
            ),
            (
                "refused before all was looked at",
                View { refused: true, others: Some(0), looked: Looked::Own, look_pays: false, ..planned(true, 1) },
                Step::Look(Looked::Everywhere),
            ),
        ] {
            assert_eq!(next(&view), step, "{what}");
        }
    }

    #[test]
    fn every_way_to_get_memory_back_is_tried_once() {
        let failing = |reclaimed| View { planned: Some(None), reclaimed, ..view() };
        for tried in 0..RECLAIM.len() {
            assert_eq!(next(&failing(tried)), Step::Reclaim(&RECLAIM[tried..]));
        }
        assert_eq!(next(&failing(RECLAIM.len())), Step::Fail(Reason::Addresses));
    }
}
