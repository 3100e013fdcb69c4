/* What an allocation and its free cost at the C level, beside the driver's own pool in the same run.
 *
 *   nvcc -std=c++17 -O2 -Iinclude benches/gpu/pairs.cu -o pairs -L... -lforebay
 *   pairs [--json]
 *
 * "pair": allocate and free, warm, one after the other. "mixed": 64 blocks of 64 sizes allocated, then freed; per pair.
 * Threads: each on its own stream, 16 blocks of 256 B to 64 KiB allocated, then freed; million pairs per second of all
 * threads together. Every figure is the median of several repeats. No kernel runs: this is the price of the calls.
 */
#include <cuda_runtime.h>
#include <forebay.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kDevice = 0, kRepeats = 9, kBatch = 16, kMixed = 64;
forebay_pool *pool;
bool json = false;

void fail(const char *what, const char *why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void must(forebay_status status, const char *what) {
  if (status != FOREBAY_STATUS_OK) fail(what, forebay_last_error_message());
}

void must(cudaError_t error, const char *what) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

// ---- the contenders: one allocate and one free each, called directly ------------------------------------------------

struct Forebay {
  static void *take(size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(forebay_malloc(pool, bytes, kDevice, stream, &p), "forebay_malloc");
    return p;
  }
  static void give(void *p, cudaStream_t stream) { must(forebay_free(pool, p, stream), "forebay_free"); }
};

struct DriverPool {
  static void *take(size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(cudaMallocAsync(&p, bytes, stream), "cudaMallocAsync");
    return p;
  }
  static void give(void *p, cudaStream_t stream) { must(cudaFreeAsync(p, stream), "cudaFreeAsync"); }
};

// Work of about the same length that shares nothing with other threads: how far this machine's cores scale at all.
struct Nothing {
  static void *spin(size_t seed) {
    for (int i = 0; i < 16; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      __asm__ volatile("" : "+r"(seed));
    }
    return reinterpret_cast<void *>(seed);
  }
  static void *take(size_t bytes, cudaStream_t) { return spin(bytes); }
  static void give(void *p, cudaStream_t) { spin(reinterpret_cast<size_t>(p)); }
};

// ---- measuring -----------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Pool>
double pair_ns(size_t bytes, cudaStream_t stream, int count) {
  std::vector<double> times;
  for (int repeat = 0; repeat <= kRepeats; repeat++) {
    auto start = Clock::now();
    for (int i = 0; i < count; i++) Pool::give(Pool::take(bytes, stream), stream);
    double ns = since(start) * 1e9 / count;
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (repeat > 0) times.push_back(ns);  // the first repeat warms the pool up
  }
  return median(times);
}

template <class Pool>
double mixed_ns(cudaStream_t stream, int rounds) {
  size_t sizes[kMixed];
  for (int i = 0; i < kMixed; i++) sizes[i] = (512u << (i % 12)) * (1 + i % 3) + 512u * i;
  std::vector<double> times;
  for (int repeat = 0; repeat <= kRepeats; repeat++) {
    void *blocks[kMixed];
    auto start = Clock::now();
    for (int round = 0; round < rounds; round++) {
      for (int i = 0; i < kMixed; i++) blocks[i] = Pool::take(sizes[i], stream);
      for (int i = 0; i < kMixed; i++) Pool::give(blocks[i], stream);
    }
    double ns = since(start) * 1e9 / (double(rounds) * kMixed);
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (repeat > 0) times.push_back(ns);
  }
  return median(times);
}

template <class Pool>
double million_pairs_per_second(const std::vector<cudaStream_t> &streams, int threads, int rounds) {
  std::vector<double> rates;
  for (int repeat = 0; repeat <= kRepeats; repeat++) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++) {
      running.emplace_back([&, t] {
        must(cudaSetDevice(kDevice), "cudaSetDevice");
        cudaStream_t stream = streams[t];
        void *blocks[kBatch];
        auto batch = [&](int count) {
          for (int round = 0; round < count; round++) {
            for (int i = 0; i < kBatch; i++) blocks[i] = Pool::take(256u << (i % 9), stream);
            for (int i = 0; i < kBatch; i++) Pool::give(blocks[i], stream);
          }
        };
        batch(rounds / 10 + 1);
        ready++;
        while (!go) {
        }
        batch(rounds);
      });
    }
    while (ready < threads) {
    }
    auto start = Clock::now();
    go = true;
    for (std::thread &thread : running) thread.join();
    if (repeat > 0) rates.push_back(double(threads) * rounds * kBatch / since(start) / 1e6);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  return median(rates);
}

// ---- the report ----------------------------------------------------------------------------------------------------

void row(const char *what, const char *stream, const char *unit, double ours, double theirs, bool more_is_better) {
  double better = more_is_better ? ours / theirs : theirs / ours;
  std::printf("%-12s %-13s %12.2f %16.2f  %-10s %7.1f x\n", what, stream, ours, theirs, unit, better);
  if (json) {
    std::printf("{\"bench\": \"%s\", \"stream\": \"%s\", \"unit\": \"%s\", \"forebay\": %.3f, "
                "\"cudaMallocAsync\": %.3f}\n", what, stream, unit, ours, theirs);
  }
  std::fflush(stdout);
}

void one_thread(cudaStream_t stream, const char *name) {
  struct { const char *text; size_t bytes; } sizes[] = {{"512 B", 512},        {"4 KiB", 4 << 10}, {"64 KiB", 64 << 10},
                                                        {"1 MiB", 1 << 20},    {"2 MiB", 2 << 20}, {"64 MiB", 64 << 20}};
  for (auto &size : sizes) {
    row(size.text, name, "ns/pair", pair_ns<Forebay>(size.bytes, stream, 100000),
        pair_ns<DriverPool>(size.bytes, stream, 10000), false);
  }
  row("64 mixed", name, "ns/pair", mixed_ns<Forebay>(stream, 1000), mixed_ns<DriverPool>(stream, 100), false);
}

}  // namespace

int main(int count, char **arguments) {
  json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  must(cudaSetDevice(kDevice), "cudaSetDevice");
  must(cudaFree(nullptr), "cudaFree");
  must(forebay_pool_create(nullptr, &pool), "forebay_pool_create");

  // The driver's pool gives memory back at every synchronise unless told to keep it: compare it at its best.
  cudaMemPool_t driver_pool;
  uint64_t keep = UINT64_MAX;
  must(cudaDeviceGetDefaultMemPool(&driver_pool, kDevice), "cudaDeviceGetDefaultMemPool");
  must(cudaMemPoolSetAttribute(driver_pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");

  void *registered = nullptr;
  cudaStream_t unregistered = nullptr;
  must(forebay_stream_create(pool, kDevice, &registered), "forebay_stream_create");
  must(cudaStreamCreateWithFlags(&unregistered, cudaStreamNonBlocking), "cudaStreamCreate");

  std::printf("%-12s %-13s %12s %16s  %-10s %9s\n", "bench", "stream", "forebay", "cudaMallocAsync", "unit", "better by");
  one_thread(nullptr, "default");
  one_thread(static_cast<cudaStream_t>(registered), "registered");
  one_thread(unregistered, "unregistered");

  double first = 0, last = 0;
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < 16; i++) {
    void *stream = nullptr;
    must(forebay_stream_create(pool, kDevice, &stream), "forebay_stream_create");
    streams.push_back(static_cast<cudaStream_t>(stream));
  }
  for (int threads : {1, 2, 4, 8, 16}) {
    char name[16];
    std::snprintf(name, sizeof name, "%d threads", threads);
    double ours = million_pairs_per_second<Forebay>(streams, threads, 20000);
    row(name, "own each", "M pairs/s", ours, million_pairs_per_second<DriverPool>(streams, threads, 500), true);
    if (threads == 1) first = ours;
    if (threads == 8) last = ours;
  }
  double alone = million_pairs_per_second<Nothing>(streams, 1, 40000);
  double together = million_pairs_per_second<Nothing>(streams, 8, 40000);
  std::printf("8 threads do %.2f times the work of one; the same loop without an allocator, %.2f times (%.1f M of %.1f M pairs/s)\n",
              last / first, together / alone, together, alone);
  if (json) {
    std::printf("{\"bench\": \"8 threads over 1\", \"forebay\": %.3f, \"no allocator\": %.3f}\n", last / first, together / alone);
  }
  for (cudaStream_t stream : streams) must(forebay_stream_destroy(pool, kDevice, stream), "forebay_stream_destroy");
  must(cudaStreamDestroy(unregistered), "cudaStreamDestroy");
  must(forebay_stream_destroy(pool, kDevice, registered), "forebay_stream_destroy");
  forebay_pool_destroy(pool);
  return 0;
}
