/* Random work on many streams and threads, with every block's data written and checked by kernels.
 *
 *   nvcc -std=c++17 -O2 -Iinclude tests/gpu/stress.cu -o stress -L... -lforebay
 *   stress [seconds=180] [threads=8] [limit GiB=2] [--sabotage]
 *
 * A block is filled with words that follow from its own seed, on one stream; it is used on others behind events or
 * forebay_pool_record_use; a kernel compares every word before the block is freed. Spin kernels hold streams back, so that
 * memory handed out before its last use is over is overwritten while a check has yet to run. Mismatches are counted in
 * device memory. With --sabotage every tenth free breaks the rules on purpose, and the run must find mismatches: it
 * shows that the check can fail.
 */
#include <cuda_runtime.h>
#include <forebay.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

constexpr int kDevice = 0;
constexpr size_t kHeld = 48;          // blocks a thread holds at most
constexpr uint64_t kLargest = 64ull << 20;

struct Block {
  uint32_t *words = nullptr;
  uint32_t count = 0, seed = 0;
  cudaStream_t stream = nullptr;      // its uses so far are ordered on this stream
};

struct Counters {
  std::atomic<uint64_t> allocations{0}, refused{0}, cross_stream{0}, cross_thread{0}, recorded{0}, dead_streams{0};
};

forebay_pool *pool;
unsigned long long *mismatches;       // device memory: words that were not what they should be
Counters counters;
bool sabotage = false;

// The pool is asked to prove itself while no thread is in it. Who waits for that keeps others from coming in.
std::shared_mutex at_work;
std::mutex door;

std::shared_lock<std::shared_mutex> come_in() {
  std::lock_guard<std::mutex> through(door);
  return std::shared_lock(at_work);
}

std::mutex exchange_lock;
std::vector<std::pair<Block, cudaEvent_t>> exchange;

// Sabotage may also free memory that the pool then moves away under a running check: a fault is being noticed, too.
void fault_if_sabotaged() {
  if (!sabotage || cudaDeviceSynchronize() != cudaErrorIllegalAddress) return;
  std::printf("sabotage: the device noticed: %s\n", cudaGetErrorString(cudaErrorIllegalAddress));
  std::fflush(stdout);
  std::_Exit(0);
}

void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fault_if_sabotaged();
  std::fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  std::exit(2);
}

void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  fault_if_sabotaged();
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

__device__ __forceinline__ uint32_t word(uint32_t seed, uint32_t i) {
  uint32_t x = i * 2654435761u ^ seed;
  x ^= x >> 16;
  return x * 2246822519u;
}

__global__ void fill(uint32_t *words, uint32_t count, uint32_t seed) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    words[i] = word(seed, i);
  }
}

__global__ void compare(const uint32_t *words, uint32_t count, uint32_t seed, unsigned long long *wrong) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (words[i] != word(seed, i)) atomicAdd(wrong, 1ull);
  }
}

__global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

unsigned grid(uint32_t count) { return count / 256 < 256 ? count / 256 + 1 : 256; }

// ---- one thread's work --------------------------------------------------------------------------------------------

class Worker {
 public:
  explicit Worker(unsigned number) : random_(number * 7919 + 1), seed_(number << 24) {
    must(cudaSetDevice(kDevice), "cudaSetDevice");
    for (int i = 0; i < 2; i++) {
      void *stream = nullptr;
      must(forebay_stream_create(pool, kDevice, &stream), "forebay_stream_create");
      registered_.push_back(static_cast<cudaStream_t>(stream));
    }
    for (int i = 0; i < 2; i++) temporary_.push_back(new_stream());
  }

  void run(std::chrono::steady_clock::time_point end) {
    for (uint64_t step = 0; std::chrono::steady_clock::now() < end; step++) {
      auto here = come_in();
      unsigned dice = below(100);
      if (blocks_.empty() || (dice < 45 && blocks_.size() < kHeld)) allocate();
      else if (dice < 60) check_and_free(take());
      else if (dice < 72) use_elsewhere_and_free(take());
      else if (dice < 82) move_and_free(take());
      else if (dice < 90) hand_over(take());
      else if (dice < 96) adopt();
      else if (dice < 98) replace_stream();
      else hold_back(any_stream());
      if (step % 256 == 255) settle(step);
      here.unlock();
      if (step % 8192 == 8191) prove();
    }
    auto here = come_in();
    while (!blocks_.empty()) check_and_free(take());
    for (cudaStream_t stream : temporary_) must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    for (cudaStream_t stream : registered_) {
      must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      must(forebay_stream_destroy(pool, kDevice, stream), "forebay_stream_destroy");
    }
  }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
  }

  cudaStream_t any_stream() {
    switch (below(8)) {
      case 0: return nullptr;              // the legacy default stream
      case 1: return cudaStreamPerThread;  // another stream on every thread, under one handle
      case 2: case 3: case 4: return temporary_[below(2)];
      default: return registered_[below(2)];
    }
  }

  void hold_back(cudaStream_t stream) { spin<<<1, 1, 0, stream>>>(1000ll * (1 + below(1500))); }

  void order(cudaStream_t before, cudaStream_t after) {
    if (before == after) return;
    cudaEvent_t event = nullptr;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    must(cudaEventRecord(event, before), "cudaEventRecord");
    must(cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent");
    must(cudaEventDestroy(event), "cudaEventDestroy");
  }

  void check(const Block &b, cudaStream_t stream) {
    compare<<<grid(b.count), 256, 0, stream>>>(b.words, b.count, b.seed, mismatches);
  }

  void refill(Block &b) {
    b.seed = ++seed_;
    fill<<<grid(b.count), 256, 0, b.stream>>>(b.words, b.count, b.seed);
  }

  Block take() {
    size_t i = below(static_cast<uint32_t>(blocks_.size()));
    Block b = blocks_[i];
    blocks_[i] = blocks_.back();
    blocks_.pop_back();
    return b;
  }

  void allocate() {
    // Log-uniform sizes, as programs have them, and any multiple of four bytes.
    uint64_t bytes = (512ull << below(18)) * (100 + below(100)) / 100 & ~3ull;
    Block b;
    b.stream = any_stream();
    b.count = static_cast<uint32_t>((bytes < kLargest ? bytes : kLargest) / 4);
    void *address = nullptr;
    forebay_status status = forebay_pool_malloc(pool, b.count * 4ull, kDevice, b.stream, &address);
    if (status == FOREBAY_STATUS_OUT_OF_MEMORY) {  // the limit is there to be hit: make room and go on
      counters.refused++;
      for (size_t half = blocks_.size() / 2; half > 0; half--) check_and_free(take());
      return;
    }
    must(status, "forebay_pool_malloc");
    counters.allocations++;
    b.words = static_cast<uint32_t *>(address);
    refill(b);
    blocks_.push_back(b);
  }

  void release(const Block &b, cudaStream_t stream) { must(forebay_pool_free(pool, b.words, stream), "forebay_pool_free"); }

  void check_and_free(Block b) {
    if (sabotage && below(10) == 0) {  // wrong on purpose: freed on a stream that does not wait for the check
      hold_back(registered_[0]);
      order(b.stream, registered_[0]);
      check(b, registered_[0]);
      release(b, registered_[1]);
      return;
    }
    check(b, b.stream);
    release(b, b.stream);
  }

  void use_elsewhere_and_free(Block b) {  // what record_stream is for: the owner does not wait for the other stream
    cudaStream_t other = any_stream();
    order(b.stream, other);
    hold_back(other);
    check(b, other);
    must(forebay_pool_record_use(pool, b.words, other), "forebay_pool_record_use");
    release(b, b.stream);
    counters.recorded++;
  }

  void move_and_free(Block b) {  // allocated on one stream, last used and freed on another that waited
    cudaStream_t other = any_stream();
    order(b.stream, other);
    check(b, other);
    release(b, other);
    counters.cross_stream++;
  }

  void hand_over(Block b) {
    cudaEvent_t event = nullptr;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    must(cudaEventRecord(event, b.stream), "cudaEventRecord");
    std::lock_guard<std::mutex> guard(exchange_lock);
    exchange.emplace_back(b, event);
  }

  void adopt() {
    std::pair<Block, cudaEvent_t> given;
    {
      std::lock_guard<std::mutex> guard(exchange_lock);
      if (exchange.empty()) return;
      given = exchange.front();
      exchange.erase(exchange.begin());
    }
    Block b = given.first;
    b.stream = any_stream();  // from here on its uses are ordered here; the giver's stream may be gone
    must(cudaStreamWaitEvent(b.stream, given.second, 0), "cudaStreamWaitEvent");
    must(cudaEventDestroy(given.second), "cudaEventDestroy");
    check(b, b.stream);
    refill(b);
    blocks_.push_back(b);
    counters.cross_thread++;
  }

  void replace_stream() {  // destroyed with work pending and with blocks that were freed on it
    cudaStream_t &stream = temporary_[below(2)];
    for (Block &b : blocks_) {
      if (b.stream != stream) continue;
      order(stream, registered_[0]);
      b.stream = registered_[0];
    }
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    stream = new_stream();
    counters.dead_streams++;
  }

  static void prove() {
    std::lock_guard<std::mutex> nobody_comes(door);
    std::unique_lock<std::shared_mutex> alone(at_work);
    must(forebay_pool_check(pool, kDevice), "forebay_pool_check");
  }

  void settle(uint64_t step) {  // keeps the queues short
    must(cudaGetLastError(), "a kernel launch");
    for (cudaStream_t stream : registered_) must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (cudaStream_t stream : temporary_) must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    uint64_t released = 0;
    if (step % 4096 == 4095) must(forebay_pool_trim(pool, kDevice, below(2) << 30, &released), "forebay_pool_trim");
  }

  std::mt19937_64 random_;
  uint32_t seed_;
  std::vector<cudaStream_t> registered_, temporary_;
  std::vector<Block> blocks_;
};

}  // namespace

int main(int count, char **arguments) {
  if (count > 1 && std::strcmp(arguments[count - 1], "--sabotage") == 0) {
    sabotage = true;
    count--;
  }
  int seconds = count > 1 ? std::atoi(arguments[1]) : 180;
  int threads = count > 2 ? std::atoi(arguments[2]) : 8;
  uint64_t limit = (count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 2) << 30;

  must(cudaSetDevice(kDevice), "cudaSetDevice");
  must(cudaMalloc(&mismatches, sizeof *mismatches), "cudaMalloc");
  must(cudaMemset(mismatches, 0, sizeof *mismatches), "cudaMemset");
  must(forebay_pool_create(nullptr, &pool), "forebay_pool_create");
  must(forebay_pool_set_limit(pool, kDevice, limit), "forebay_pool_set_limit");

  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; i++) running.emplace_back([=] { Worker(i + 1).run(end); });
  for (std::thread &thread : running) thread.join();

  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (auto &left : exchange) {
    compare<<<grid(left.first.count), 256>>>(left.first.words, left.first.count, left.first.seed, mismatches);
    must(forebay_pool_free(pool, left.first.words, nullptr), "forebay_pool_free");
    must(cudaEventDestroy(left.second), "cudaEventDestroy");
  }
  unsigned long long wrong = 0;
  must(cudaMemcpy(&wrong, mismatches, sizeof wrong, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(forebay_pool_check(pool, kDevice), "forebay_pool_check");

  forebay_pool_stats stats{};
  stats.size = sizeof stats;
  stats.version = FOREBAY_STATS_VERSION;
  must(forebay_pool_get_stats(pool, kDevice, &stats), "forebay_pool_get_stats");
  std::printf("%d s, %d threads: %llu allocations, %llu refused at the limit, %llu freed elsewhere, %llu handed to another "
              "thread, %llu recorded uses, %llu streams destroyed\n",
              seconds, threads, (unsigned long long)counters.allocations, (unsigned long long)counters.refused,
              (unsigned long long)counters.cross_stream, (unsigned long long)counters.cross_thread,
              (unsigned long long)counters.recorded, (unsigned long long)counters.dead_streams);
  std::printf("live %llu, live peak %llu, physical peak %llu, hits %llu, steals %llu, growths %llu, waits %llu\n",
              (unsigned long long)stats.live, (unsigned long long)stats.live_peak,
              (unsigned long long)stats.physical_peak, (unsigned long long)stats.hits, (unsigned long long)stats.steals,
              (unsigned long long)stats.growths, (unsigned long long)stats.waits);
  std::printf("%llu words wrong\n", wrong);
  forebay_pool_destroy(pool);
  bool good = stats.live == 0 && stats.physical_peak <= limit && (sabotage ? wrong > 0 : wrong == 0);
  if (sabotage) std::printf("sabotage: the check %s\n", wrong > 0 ? "noticed" : "noticed NOTHING");
  return good ? 0 : 1;
}
