#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include <cstring>

namespace forebay_torch {

namespace {

// The first byte of a handle. PyTorch's own handles begin with other letters.
constexpr char HANDLE_KIND = 'f';
constexpr size_t HANDLE_BYTES = 1 + sizeof(forebay_ipc_descriptor);

} // namespace

caching::ShareableHandle Allocator::shareIpcHandle(void* ptr) {
  size_t size = 0;
  void* base = getBaseAllocation(ptr, &size);
  const ptrdiff_t offset = static_cast<char*>(ptr) - static_cast<char*>(base);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto known = exported_.find(base);
    if (known != exported_.end()) {
      return {offset, known->second};
    }
  }
  forebay_ipc_descriptor descriptor{};
  library_.check(library_.forebay_ipc_export(library_.pool(), base, &descriptor));
  std::string handle(1, HANDLE_KIND);
  handle.append(reinterpret_cast<const char*>(descriptor.bytes), sizeof(descriptor.bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  // Importers tell memory by its handle: if another thread was first, its handle counts.
  any_exported_.store(true, std::memory_order_relaxed);
  return {offset, exported_.emplace(base, std::move(handle)).first->second};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  TORCH_CHECK(
      handle.size() == HANDLE_BYTES && handle[0] == HANDLE_KIND,
      "this tensor comes from a process whose PyTorch does not allocate from Forebay: call forebay.torch.install() there too");
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& entry = imported_[handle];
  if (auto known = entry.lock()) {
    return known;
  }
  forebay_ipc_descriptor descriptor{};
  std::memcpy(descriptor.bytes, handle.data() + 1, sizeof(descriptor.bytes));
  forebay_buffer* buffer = nullptr;
  library_.check(library_.forebay_buffer_from_ipc_descriptor(
      nullptr, &descriptor, sizeof(descriptor.bytes), nullptr, &buffer));
  forebay_buffer_info info{};
  info.size = sizeof(info);
  info.version = FOREBAY_INFO_VERSION;
  const forebay_status status = library_.forebay_buffer_get_info(buffer, &info);
  if (status != FOREBAY_STATUS_OK) {
    library_.forebay_buffer_destroy(buffer);
    library_.check(status);
  }
  const auto device = static_cast<DeviceIndex>(info.device_id);
  auto release = [this, buffer, device, handle](void*) {
    try {
      // Streams of this process may still use it, and unmapping does not wait for them.
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    } catch (const c10::Error&) {
      // CUDA is shut down at exit, and its streams with it.
    }
    library_.forebay_buffer_destroy(buffer);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = imported_.find(handle);
    if (found != imported_.end() && found->second.expired()) {
      imported_.erase(found);
    }
  };
  std::shared_ptr<void> memory(reinterpret_cast<void*>(info.handle), release);
  entry = memory;
  return memory;
}

} // namespace forebay_torch
