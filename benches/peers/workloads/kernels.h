// Memory that kernels use for a moment, on several streams: does the allocator keep the streams apart? The first part has
// the shape of RMM's MULTI_STREAM_ALLOCATIONS. In the second, one stream is busy for long after memory was freed on it, and
// another one asks for as much.
#pragma once

#include <string>
#include <vector>

#include "../harness/clock.h"
#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/stream.h"
#include "../kernels.h"
#include "pairs.h"

namespace peers {

inline constexpr std::size_t kKernelBytes = 4096;

template <class Contender>
void kernel_with_memory(std::size_t bytes, long long ns, cudaStream_t stream) {
  void *p = Contender::take(bytes, stream);
  must(spin(stream, ns, p), "spin");
  Contender::give(p, bytes, stream);
}

// Microseconds until four kernels of 0.5 ms each are done, dealt to the streams in turn.
template <class Contender>
double four_kernels_us(const Streams<Contender> &streams, bool warm) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 5; repeat++) {
    if (repeat == 0 || !warm) Contender::fresh(Room::kPreset);
    std::vector<void *> blocks;
    for (std::size_t i = 0; warm && i < streams.size(); i++) blocks.push_back(Contender::take(kKernelBytes, *streams[i]));
    for (std::size_t i = 0; i < blocks.size(); i++) Contender::give(blocks[i], kKernelBytes, *streams[i]);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    auto start = Clock::now();
    for (std::size_t i = 0; i < 4; i++) kernel_with_memory<Contender>(kKernelBytes, 500'000, *streams[i % streams.size()]);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    times.push_back(since(start) * 1e6);
  }
  return median(times);
}

// Microseconds until a short kernel on the second stream is done, while the first is busy for 20 ms before it frees a block
// of the same size, and for how much of that the calling thread was held up. `before` bytes were freed on the first stream
// already: a pool that it filled.
struct Behind {
  double done_us;
  double call_us;  // the free on the busy stream and the allocation on the other
};

template <class Contender>
Behind behind_long_kernel(std::size_t bytes, std::size_t before) {
  std::vector<double> done, call;
  for (int repeat = 0; repeat < 3; repeat++) {
    Contender::fresh(Room::kPreset);
    Stream<Contender> busy, other;
    void *target = nullptr;  // what the last kernel writes to, so that no allocation stands between the two calls
    must(cudaMalloc(&target, 8), "cudaMalloc");
    must(spin(other, 1000, target), "spin");  // loads the kernel
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    if (before) Contender::give(Contender::take(before, busy), before, busy);
    void *first = Contender::take(bytes, busy);
    auto start = Clock::now();
    must(spin(busy, 20'000'000, target), "spin");
    auto asked = Clock::now();
    Contender::give(first, bytes, busy);
    void *second = Contender::take(bytes, other);
    call.push_back(since(asked) * 1e6);
    must(spin(other, 1000, second), "spin");
    Contender::give(second, bytes, other);
    other.wait();
    done.push_back(since(start) * 1e6);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaFree(target), "cudaFree");
  }
  return {median(done), median(call)};
}

template <class Contender>
void kernels(Report &report) {
  for (bool warm : {true, false}) {
    for (int count : {1, 2, 4}) {
      report.attempt(std::to_string(count) + (count == 1 ? " stream, " : " streams, ") + (warm ? "warm" : "cold"), "us", [&] {
        return four_kernels_us<Contender>(make_streams<Contender>(count), warm);
      });
    }
  }
  struct Beside {
    const char *text;
    std::size_t bytes, before;
  };
  for (Beside beside : {Beside{"4 KiB", 4 << 10, 0}, Beside{"64 MiB", 64 << 20, 0},
                        Beside{"64 MiB of a pool of 4 GiB", 64 << 20, std::size_t{4} << 30}}) {
    std::string name = std::string("beside a kernel of 20 ms, ") + beside.text;
    try {
      Behind behind = behind_long_kernel<Contender>(beside.bytes, beside.before);
      const char *note = behind.call_us > 15'000 ? "the host waited" : behind.done_us > 15'000 ? "the stream waited" : "no wait";
      report.figure(name, "us", behind.done_us, note);
    } catch (const std::exception &error) {
      report.cannot(name, error.what());
    }
  }
}

}  // namespace peers
