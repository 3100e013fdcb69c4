// What the Python package calls, through ctypes.
#include "allocator.h"

#include <cstdio>

// Makes PyTorch allocate from the Forebay library at `library_path`. `torch_version` is the running PyTorch's
// torch.__version__. Returns 0; or 1 with the reason in `error`, and PyTorch is unchanged.
extern "C" __attribute__((visibility("default"))) int forebay_torch_adapter_install(
    const char* library_path,
    const char* torch_version,
    char* error,
    size_t capacity) noexcept {
  if (!forebay_torch::is_for_torch(torch_version)) {
    std::snprintf(
        error, capacity, "this adapter is for PyTorch %s and not for %s", forebay_torch::supported_torch().c_str(), torch_version);
    return 1;
  }
  try {
    // Never destroyed: PyTorch keeps a bare pointer to it, and tensors outlive everything.
    auto* allocator = new forebay_torch::Allocator(library_path);
    const std::shared_ptr<forebay_torch::CUDAAllocator> shared(allocator, [](auto*) {});
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(shared);
    // For torch.accelerator and other code that finds an allocator by the type of the device.
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
