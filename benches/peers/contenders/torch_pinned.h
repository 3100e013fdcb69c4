// PyTorch's pool of pinned host memory. It rounds sizes up to powers of two.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <cuda_runtime_api.h>

#include <unordered_map>

#include "../harness/check.h"
#include "../harness/contender.h"

namespace peers {

// A block's free needs the context that came with it, which PyTorch keeps in the tensor: one map for the one thread of
// the pinned workloads stands for that when blocks are many; a pair keeps it in `last`.
struct Contender {
  static constexpr bool kDevice = false;
  static constexpr const char *kNoPhysical = "";
  static inline at::HostAllocator *allocator = nullptr;
  static inline std::unordered_map<void *, c10::DataPtr> live;
  static inline c10::DataPtr last;

  static void open() {
    at::globalContext().lazyInitDevice(at::kCUDA);
    allocator = at::getHostAllocator(at::kCUDA);
  }

  static void fresh(Room) {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    allocator->empty_cache();
    allocator->reset_peak_stats();
  }

  static void meet(cudaStream_t) {}
  static void part(cudaStream_t) {}

  static void *take(std::size_t bytes, cudaStream_t) {
    c10::DataPtr block = allocator->allocate(bytes);
    void *p = block.get();
    if (last) live.emplace(last.get(), std::move(last));
    last = std::move(block);
    return p;
  }

  static void give(void *p, std::size_t, cudaStream_t) {
    if (last.get() == p) {
      last.clear();
    } else {
      live.erase(p);
    }
  }

  static void give_elsewhere(void *p, std::size_t bytes, cudaStream_t, cudaStream_t on) { give(p, bytes, on); }

  static Physical physical_peak() { return allocator->get_stats().allocated_bytes.peak; }
};

}  // namespace peers
