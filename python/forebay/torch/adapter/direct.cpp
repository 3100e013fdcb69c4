#include "direct.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

void* Direct::take(size_t bytes) {
  void* ptr = nullptr;
  const cudaError_t error = cudaMalloc(&ptr, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. cudaMalloc gave nothing for ", std::to_string(bytes),
        " bytes; torch.cuda.caching_allocator_enable(False) is in force");
  }
  C10_CUDA_CHECK(error);
  used_.store(true, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.insert(ptr);
  return ptr;
}

bool Direct::give_own(void* ptr) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.erase(ptr) == 0) {
      return false;
    }
  }
  // Also while the process ends, when CUDA may be gone.
  C10_CUDA_CHECK_WARN(cudaFree(ptr));
  return true;
}

bool Direct::has(void* ptr) {
  if (!used_.load(std::memory_order_acquire)) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocks_.count(ptr) != 0;
}

} // namespace forebay_torch
