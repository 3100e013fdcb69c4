//! Time per call of the C functions, warm. `cargo bench -p forebay-benches --bench calls`

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use forebay_benches::{Pool, Random, Stream, mixed, pairs};

const COUNT: u32 = 1000;

fn pair(criterion: &mut Criterion) {
    let pool = Pool::new();
    let stream = pool.stream();
    let mut group = criterion.benchmark_group("pair");
    group.throughput(Throughput::Elements(COUNT.into()));
    for (name, bytes) in [("512B", 512), ("64KiB", 64 << 10), ("2MiB", 2 << 20), ("64MiB", 64 << 20)] {
        group.bench_function(name, |b| b.iter(|| pairs(&pool, black_box(bytes), Stream::DEFAULT, COUNT)));
    }
    group.bench_function("512B, stream not registered", |b| b.iter(|| pairs(&pool, black_box(512), stream, COUNT)));
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 mixed", |b| b.iter(|| mixed(&pool, Stream::DEFAULT, 1)));
    group.finish();
    pool.end_stream(stream);
}

fn random(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("random");
    group.throughput(Throughput::Elements(COUNT.into()));
    for (name, largest) in [("1MiB", 1 << 20), ("64MiB", 64 << 20), ("1GiB", 1 << 30)] {
        let pool = Pool::new();
        let mut random = Random::new(largest, 16_000 << 20);
        random.steps(&pool, Stream::DEFAULT, 200_000);
        group.bench_function(name, |b| {
            b.iter_batched(|| (), |()| random.steps(&pool, Stream::DEFAULT, COUNT), BatchSize::PerIteration);
        });
        random.end(&pool, Stream::DEFAULT);
    }
    group.finish();
}

criterion_group!(benches, pair, random);
criterion_main!(benches);
