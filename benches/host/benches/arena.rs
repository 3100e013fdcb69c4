//! Time per step of the arena alone: no lock, no driver, no front cache. `cargo bench -p forebay-benches --bench arena`

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::arena::{Arena, ArenaOptions, Source};
use forebay::block::Table;

const COUNT: u32 = 1000;
const PAGE: u64 = 4096;

fn arena(pages: u64) -> Arena {
    let options = ArenaOptions { page_granules: PAGE, pages, small_pages: pages / 4, small_granules: 512 };
    Arena::new(options, Arc::new(Table::new(&options.table_shape())))
}

fn main_bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("arena");
    group.throughput(Throughput::Elements(COUNT.into()));
    for (name, most) in [("1000 live", 1000_usize), ("30000 live", 30_000)] {
        let mut arena = arena(1 << 20);
        let owner = arena.owner_add(false);
        let mut live = Vec::new();
        let mut state = 1_u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut step = move || {
            if live.len() < most && (live.is_empty() || next() % 4 < 3) {
                let granules = 1 + next() % 2048;
                let start = arena.take(owner, granules).unwrap_or_else(|| {
                    let plan = arena.plan(owner, granules, 16).expect("room");
                    let handles: Vec<u64> =
                        plan.fills.iter().filter(|f| f.source == Source::Create).map(|_| 1).collect();
                    for retired in arena.commit(&plan, owner, 0, &handles) {
                        arena.unmapped(retired);
                    }
                    plan.start
                });
                live.push(start);
            } else {
                let index = next() as usize % live.len();
                arena.give(live.swap_remove(index), owner, 0);
            }
        };
        (0..100_000).for_each(|_| step());
        group.bench_function(name, |b| b.iter(|| (0..COUNT).for_each(|_| step())));
    }
    group.finish();
}

criterion_group!(benches, main_bench);
criterion_main!(benches);
