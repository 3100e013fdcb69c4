/*
 * forebay.hpp below RMM: buffers and vectors of RMM's, the current resource, adaptors, failures; beside RMM's own pool.
 * Compiled with RMM's headers (26.10) and the CCCL that they bring; run by tests/gpu/run.sh where RMM is installed.
 */
#include <forebay.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static void must(bool condition, const char *what) {
  if (!condition) {
    std::printf("FAILED: %s\n", what);
    std::exit(1);
  }
  std::printf("  %s\n", what);
}

static void done(cudaError_t code) {
  if (code != cudaSuccess) must(false, cudaGetErrorString(code));
}

static forebay_pool_stats stats(const forebay::memory_resource &resource) {
  forebay_pool_stats now = {};
  now.size = sizeof now;
  now.version = FOREBAY_STATS_VERSION;
  forebay::check(forebay_pool_get_stats(resource.pool(), 0, &now));
  return now;
}

/* Whether every byte that a stream sees is that value. */
static bool holds(const rmm::device_buffer &buffer, unsigned char value) {
  std::vector<unsigned char> bytes(buffer.size());
  done(cudaMemcpyAsync(bytes.data(), buffer.data(), bytes.size(), cudaMemcpyDeviceToHost, buffer.stream().get()));
  done(cudaStreamSynchronize(buffer.stream().get()));
  for (unsigned char byte : bytes) {
    if (byte != value) return false;
  }
  return true;
}

/* ns for a buffer and its end, the best of five. */
template <class Resource>
static double pair(Resource resource, cuda::stream_ref stream) {
  double best = 1e9;
  for (int turn = 0; turn < 5; turn++) {
    const auto begun = std::chrono::steady_clock::now();
    for (int step = 0; step < 100000; step++) rmm::device_buffer buffer(4096, stream, resource);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
    best = best < took.count() / 100000 ? best : took.count() / 100000;
  }
  return best;
}

int main() {
  done(cudaFree(nullptr));
  const forebay::memory_resource resource;
  rmm::cuda_stream first, second;
  const auto before = rmm::mr::set_current_device_resource(resource);
  {
    rmm::device_uvector<int> vector(1000, first);
    must(stats(resource).live == 4096, "a vector of RMM's is memory of the shared pool");
    vector.resize(100000, first);
    rmm::device_buffer buffer(1 << 20, second), copy(buffer.data(), 512, second);
    done(cudaMemsetAsync(buffer.data(), 7, buffer.size(), second.value()));
    must(holds(buffer, 7), "and it holds what was written");
  }
  must(stats(resource).live == 0, "what ends is free");

  rmm::mr::statistics_resource_adaptor counted(resource);
  {
    rmm::device_buffer buffer(5000, first, counted);
    must(counted.get_bytes_counter().value == 5000 && stats(resource).live == 5120, "below an adaptor of RMM's");
  }
  try {
    rmm::device_buffer buffer(std::size_t{1} << 50, first);
    must(false, "1 PiB");
  } catch (const std::bad_alloc &error) {
    must(std::string(error.what()).find("asked for") != std::string::npos, "no memory is a std::bad_alloc with the pool's report");
  }

  std::vector<std::thread> threads;
  bool right[8] = {};
  for (int number = 0; number < 8; number++) {
    threads.emplace_back([&, number] {
      rmm::cuda_stream stream(rmm::cuda_stream::flags::non_blocking);
      right[number] = true;
      for (int step = 0; step < 200; step++) {
        rmm::device_buffer one(4096 << (step % 8), stream), other(64 << 10, stream);
        done(cudaMemsetAsync(one.data(), number + 1, one.size(), stream.value()));
        done(cudaMemsetAsync(other.data(), 0xff, other.size(), stream.value()));
        right[number] &= step % 20 != 0 || holds(one, static_cast<unsigned char>(number + 1));
      }
      stream.synchronize();
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (bool each : right) must(each, "a thread's buffers were its own");
  must(stats(resource).live == 0, "all of them came back");
  forebay::check(forebay_pool_check(resource.pool(), 0));

  rmm::mr::cuda_memory_resource plain;
  rmm::mr::pool_memory_resource own(plain, 1u << 30);
  const double theirs = pair(own, first), ours = pair(resource, first);
  forebay::check(forebay_stream_register(resource.pool(), 0, first.value()));
  const double registered = pair(resource, first);
  forebay::check(forebay_stream_unregister(resource.pool(), 0, first.value()));
  std::printf("{\"bench\": \"rmm_resource\", \"rmm_pool_ns\": %.0f, \"forebay_ns\": %.0f, \"forebay_registered_ns\": %.0f}\n", theirs, ours, registered);
  rmm::mr::set_current_device_resource(before);
  std::printf("ok rmm_resource\n");
}
