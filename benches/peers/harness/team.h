// Several threads that do rounds of the same work for a while.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"
#include "clock.h"
#include "cores.h"

namespace peers {

// The first exception of any thread, kept for the thread that waits for all.
class Trouble {
 public:
  void keep() {
    std::lock_guard<std::mutex> guard(lock_);
    if (!first_) first_ = std::current_exception();
  }
  void rethrow() {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex lock_;
  std::exception_ptr first_;
};

// Runs `make(t)`'s result on thread `t` of `threads`, again and again; each such round says how many pairs it did. Gives
// million pairs per second of all together. Threads are told to stop instead of counting to a number: with a number, the
// fast ones would leave the slow ones alone at the end.
template <class Make>
double team_rate(int threads, Make make) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  std::vector<double> rates(threads, 0.0);
  Trouble trouble;
  std::vector<std::thread> running;
  for (int t = 0; t < threads; t++) {
    running.emplace_back([&, t] {
      bool counted = false;
      try {
        pin(t);
        must(cudaSetDevice(0), "cudaSetDevice");
        auto round = make(t);
        auto warm = Clock::now();
        for (int i = 0; i < 32 && since(warm) < 2e-3; i++) round();
        ready++;
        counted = true;
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        auto start = Clock::now();
        long pairs = 0;
        while (!stop.load(std::memory_order_relaxed)) pairs += round();
        rates[t] = static_cast<double>(pairs) / since(start) / 1e6;
      } catch (...) {
        trouble.keep();
        if (!counted) ready++;
      }
    });
  }
  while (ready < threads) std::this_thread::yield();
  go.store(true, std::memory_order_release);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings().team_ms));
  stop = true;
  for (std::thread &thread : running) thread.join();
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  trouble.rethrow();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace peers
