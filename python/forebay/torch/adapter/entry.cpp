// What the Python package calls, through ctypes.
#include "allocator.h"

#include <cstdio>

// Makes PyTorch allocate from the Forebay library at `path`. Returns 0, or 1 with the reason in `error`; PyTorch is then as
// it was.
extern "C" __attribute__((visibility("default"))) int forebay_torch_adapter_install(
    const char* path,
    char* error,
    size_t capacity) noexcept {
  try {
    // Never destroyed: PyTorch keeps a bare pointer to it, and tensors outlive everything.
    auto* allocator = new forebay_torch::Allocator(path);
    const std::shared_ptr<forebay_torch::caching::CUDAAllocator> shared(allocator, [](auto*) {});
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(shared);
    // Where torch.accelerator looks, and everybody who knows a device by its type alone.
    c10::SetAllocator(c10::DeviceType::CUDA, allocator);
    return 0;
  } catch (const c10::Error& failure) {
    std::snprintf(error, capacity, "%s", failure.what_without_backtrace());
  } catch (const std::exception& failure) {
    std::snprintf(error, capacity, "%s", failure.what());
  } catch (...) {
    std::snprintf(error, capacity, "an unknown C++ exception");
  }
  return 1;
}
