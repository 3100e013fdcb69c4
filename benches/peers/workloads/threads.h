// Several threads: each on a stream of its own, and all on one. Beside them, in turn, the same loop over work that shares
// nothing: how far the cores of this machine scale at all, for work that mostly waits for itself, and for work that fills a core, which
// two threads of one core have to share.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "../harness/clock.h"
#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/stream.h"
#include "../harness/team.h"

namespace peers {

inline constexpr int kBatch = 16;
inline constexpr std::size_t batch_bytes(int i) { return std::size_t{256} << (i % 9); }

// About the work of a hit on memory of the thread's own: a lock taken and given up, words read and written that do not wait
// for one another. Cores that share a pipeline, or slow down together, slow this down as they do a hit.
struct alignas(128) OwnWords {
  std::atomic<bool> locked{false};
  std::size_t words[16] = {};
};
inline thread_local OwnWords own_words;

struct Alone {
  static std::size_t work(std::size_t seed) {
    OwnWords &mine = own_words;
    bool free = false;
    while (!mine.locked.compare_exchange_weak(free, true, std::memory_order_acquire)) free = false;
    for (std::size_t i = 0; i < 16; i++) mine.words[i] += seed ^ i;
    __asm__ volatile("" : : "r"(&mine) : "memory");
    mine.locked.store(false, std::memory_order_release);
    return seed + 1;
  }
  static void *take(std::size_t bytes, cudaStream_t) { return reinterpret_cast<void *>(work(bytes)); }
  static void give(void *p, std::size_t, cudaStream_t) { work(reinterpret_cast<std::size_t>(p)); }
};

// As many instructions as a hit, which do not wait for one another.
struct Filled {
  static std::size_t work(std::size_t seed) {
    std::size_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3, e = seed + 4, f = seed + 5;
    for (std::size_t i = 0; i < 16; i++) {
      a += i, b ^= i, c -= i, d += i, e ^= i, f -= i;
      __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return a ^ b ^ c ^ d ^ e ^ f;
  }
  static void *take(std::size_t bytes, cudaStream_t) { return reinterpret_cast<void *>(work(bytes)); }
  static void give(void *p, std::size_t, cudaStream_t) { work(reinterpret_cast<std::size_t>(p)); }
};

// Million pairs per second of all threads: 16 blocks of 256 B to 64 KiB allocated, then freed.
template <class Who, class StreamOf>
double batches_rate(int threads, StreamOf stream_of) {
  return team_rate(threads, [&](int t) {
    return [stream = cudaStream_t(stream_of(t))] {
      void *blocks[kBatch];
      for (int i = 0; i < kBatch; i++) blocks[i] = Who::take(batch_bytes(i), stream);
      for (int i = 0; i < kBatch; i++) Who::give(blocks[i], batch_bytes(i), stream);
      return kBatch;
    };
  });
}

template <class Contender>
void threads(Report &report) {
  constexpr int kCounts[] = {1, 2, 4, 8, 16};
  constexpr int kEnds[] = {1, 8};  // what the rows of ratios are made of
  Contender::fresh(Room::kPreset);
  auto streams = make_streams<Contender>(16);
  auto own = [&](int t) -> cudaStream_t { return *streams[t]; };
  auto shared = [&](int) -> cudaStream_t { return *streams[0]; };
  std::map<int, std::vector<double>> each, together, alone, filled;
  std::string trouble;
  for (int repeat = 0; repeat < settings().team_repeats && trouble.empty(); repeat++) {
    try {
      for (int count : kCounts) {
        each[count].push_back(batches_rate<Contender>(count, own));
        alone[count].push_back(batches_rate<Alone>(count, own));
        together[count].push_back(batches_rate<Contender>(count, shared));
      }
      for (int count : kEnds) filled[count].push_back(batches_rate<Filled>(count, own));
    } catch (const std::exception &error) {
      trouble = error.what();
    }
  }
  auto row = [&](const std::string &name, std::map<int, std::vector<double>> &rates, int count) {
    std::string text = std::to_string(count) + (count == 1 ? " thread, " : " threads, ") + name;
    if (trouble.empty()) {
      report.figure(text, "M pairs/s", median(rates[count]));
    } else {
      report.cannot(text, trouble);
    }
  };
  for (int count : kCounts) row("own stream each", each, count);
  for (int count : kCounts) row("no allocator", alone, count);
  for (int count : kEnds) row("no allocator, cores filled", filled, count);
  for (int count : kCounts) row("one stream", together, count);
}

}  // namespace peers
