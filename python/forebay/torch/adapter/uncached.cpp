#include "uncached.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

void* UncachedBlocks::allocate(size_t bytes) {
  void* ptr = nullptr;
  const cudaError_t error = cudaMalloc(&ptr, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. cudaMalloc has no memory for ", std::to_string(bytes),
        " bytes; torch.cuda.caching_allocator_enable(False) was called");
  }
  C10_CUDA_CHECK(error);
  used_.store(true, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.insert(ptr);
  return ptr;
}

bool UncachedBlocks::free_own(void* ptr) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.erase(ptr) == 0) {
      return false;
    }
  }
  // A warning only: at exit CUDA may be shut down already.
  C10_CUDA_CHECK_WARN(cudaFree(ptr));
  return true;
}

bool UncachedBlocks::owns(void* ptr) {
  if (!used_.load(std::memory_order_acquire)) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocks_.count(ptr) != 0;
}

} // namespace forebay_torch
