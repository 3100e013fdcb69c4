// No allocator: what the loops themselves cost, and the events and waits in them.
#pragma once

#include "../harness/contender.h"

#include <cuda_runtime_api.h>

namespace peers {

struct Contender {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "there is no memory";
  static void open() {}
  static void fresh(Room) {}
  static void meet(cudaStream_t) {}
  static void part(cudaStream_t) {}
  static void *take(std::size_t bytes, cudaStream_t) {
    __asm__ volatile("" : "+r"(bytes));  // the compiler must not see that nothing happens
    return reinterpret_cast<void *>(bytes | 1);
  }
  static void give(void *p, std::size_t, cudaStream_t) { __asm__ volatile("" : "+r"(p)); }
  static void give_elsewhere(void *p, std::size_t, cudaStream_t, cudaStream_t) { __asm__ volatile("" : "+r"(p)); }
  static Physical physical_peak() { return std::nullopt; }
};

}  // namespace peers
