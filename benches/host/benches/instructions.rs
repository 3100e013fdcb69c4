//! Instructions of 1000 warm calls, counted by callgrind: the same number for the same program, whatever the machine does
//! meanwhile. `cargo bench -p forebay-benches --bench instructions`; needs valgrind and gungraun-runner.

#![expect(missing_docs, reason = "the macros make public items")]

use forebay_benches::{Pool, Random, Stream, mixed, pairs};
use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};

const COUNT: u32 = 1000;
const DEFAULT: Stream = Stream::DEFAULT;

/// A pool that has served this loop before, so that its thread holds the stream's front.
fn warm(bytes: u64) -> (Pool, u64) {
    let pool = Pool::new();
    pairs(&pool, bytes, DEFAULT, COUNT);
    (pool, bytes)
}

fn warm_mixed() -> Pool {
    let pool = Pool::new();
    mixed(&pool, DEFAULT, COUNT / 64);
    pool
}

fn warm_random(largest: u64) -> (Pool, Random) {
    let pool = Pool::new();
    let mut random = Random::new(largest, 1500 << 20);
    random.steps(&pool, DEFAULT, 20_000);
    (pool, random)
}

// What is dropped inside would be counted: it is handed back.

#[library_benchmark]
#[bench::b512(warm(512))]
#[bench::b64k(warm(64 << 10))]
#[bench::b1m(warm(1 << 20))]
#[bench::b64m(warm(64 << 20))]
fn pair((pool, bytes): (Pool, u64)) -> Pool {
    pairs(&pool, bytes, DEFAULT, COUNT);
    pool
}

#[library_benchmark]
#[bench::pairs_of_64(warm_mixed())]
fn mixed_sizes(pool: Pool) -> Pool {
    mixed(&pool, DEFAULT, COUNT / 64);
    pool
}

#[library_benchmark]
#[bench::up_to_1m(warm_random(1 << 20))]
#[bench::up_to_64m(warm_random(64 << 20))]
fn random((pool, mut steps): (Pool, Random)) -> (Pool, Random) {
    steps.steps(&pool, DEFAULT, COUNT);
    (pool, steps)
}

library_benchmark_group!(name = calls, benchmarks = [pair, mixed_sizes, random]);
// Valgrind's own address space is short: a small device, since a pool reserves sixteen times its memory.
main!(config = LibraryBenchmarkConfig::default().env("FOREBAY_HOST_CAPACITY", "2G"), library_benchmark_groups = calls);
