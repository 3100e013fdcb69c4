// Memory that one thread allocates and another frees, on the same stream: as a pipeline's stages do.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "../harness/ring.h"
#include "threads.h"

namespace peers {

struct Handed {
  void *p;
  std::size_t bytes;
};

// One side's loop and the other's, over one ring. Gives million pairs per second.
template <class Contender>
class Pipeline {
 public:
  void produce(cudaStream_t stream, const std::atomic<bool> &stop) {
    Leave leave{ended_};
    Handed batch[kBatches];
    while (!stop.load(std::memory_order_relaxed)) {
      for (int i = 0; i < kBatches; i++) batch[i] = {Contender::take(batch_bytes(i), stream), batch_bytes(i)};
      while (!ring_.put(batch, kBatches)) {
        if (gone_.load(std::memory_order_acquire)) {
          for (Handed &block : batch) Contender::give(block.p, block.bytes, stream);
          return;
        }
        std::this_thread::yield();
      }
    }
  }

  long consume(cudaStream_t stream) {
    Leave leave{gone_};
    Handed batch[kBatches];
    long pairs = 0;
    for (;;) {
      bool last = ended_.load(std::memory_order_acquire);
      std::size_t count = ring_.get(batch, kBatches);
      for (std::size_t i = 0; i < count; i++) Contender::give(batch[i].p, batch[i].bytes, stream);
      pairs += static_cast<long>(count);
      if (count == 0) {
        if (last) return pairs;
        std::this_thread::yield();
      }
    }
  }

 private:
  // Says so when a side ends, also by an exception: the other one must not wait for ever.
  struct Leave {
    std::atomic<bool> &flag;
    ~Leave() { flag.store(true, std::memory_order_release); }
  };

  static constexpr int kBatches = 64;
  Ring<Handed, 1024> ring_;
  std::atomic<bool> ended_{false}, gone_{false};
};

template <class Contender>
double pipelines_rate(int count, const Streams<Contender> &streams) {
  std::vector<std::unique_ptr<Pipeline<Contender>>> pipelines;
  for (int i = 0; i < count; i++) pipelines.push_back(std::make_unique<Pipeline<Contender>>());
  std::vector<double> rates(count, 0.0);
  std::atomic<bool> stop{false};
  Trouble trouble;
  std::vector<std::thread> running;
  auto guarded = [&](int core, auto body) {
    running.emplace_back([&, core, body] {
      try {
        pin(core);
        must(cudaSetDevice(0), "cudaSetDevice");
        body();
      } catch (...) {
        trouble.keep();
      }
    });
  };
  for (int i = 0; i < count; i++) {
    guarded(2 * i, [&, i] { pipelines[i]->produce(*streams[i], stop); });
    guarded(2 * i + 1, [&, i] {
      auto start = Clock::now();
      long pairs = pipelines[i]->consume(*streams[i]);
      rates[i] = static_cast<double>(pairs) / since(start) / 1e6;
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(2 * settings().team_ms));
  stop = true;
  for (std::thread &thread : running) thread.join();
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  trouble.rethrow();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

template <class Contender>
void other_thread(Report &report) {
  Contender::fresh(Room::kPreset);
  auto streams = make_streams<Contender>(4);
  for (int count : {1, 4}) {
    report.attempt(std::to_string(count) + (count == 1 ? " pair of threads" : " pairs of threads"), "M pairs/s", [&] {
      std::vector<double> rates;
      for (int repeat = 0; repeat < settings().team_repeats; repeat++) rates.push_back(pipelines_rate<Contender>(count, streams));
      return median(rates);
    });
  }
}

}  // namespace peers
