#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include <cstring>

namespace forebay_torch {

namespace {

// First byte of a handle: PyTorch's own begin with other letters.
constexpr char KIND = 'f';
constexpr size_t HANDLE_BYTES = 1 + sizeof(forebay_ipc_descriptor);

} // namespace

caching::ShareableHandle Allocator::shareIpcHandle(void* ptr) {
  size_t size = 0;
  void* base = getBaseAllocation(ptr, &size);
  const ptrdiff_t offset = static_cast<char*>(ptr) - static_cast<char*>(base);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto known = shared_.find(base);
    if (known != shared_.end()) {
      return {offset, known->second};
    }
  }
  forebay_ipc_descriptor descriptor{};
  library_.check(library_.forebay_ipc_export(library_.pool(), base, &descriptor));
  std::string handle(1, KIND);
  handle.append(reinterpret_cast<const char*>(descriptor.bytes), sizeof(descriptor.bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  // Importers know memory by its handle: everybody gets the first.
  any_shared_.store(true, std::memory_order_relaxed);
  return {offset, shared_.emplace(base, std::move(handle)).first->second};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  TORCH_CHECK(
      handle.size() == HANDLE_BYTES && handle[0] == KIND,
      "this tensor comes from a process whose PyTorch does not allocate from Forebay: call forebay.torch.install() there too");
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& place = imported_[handle];
  if (auto known = place.lock()) {
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
      // Streams of this process may still read it, and unmapping waits for none of them.
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    } catch (const c10::Error&) {
      // The process is ending, and CUDA is gone: so are its streams.
    }
    library_.forebay_buffer_destroy(buffer);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = imported_.find(handle);
    if (found != imported_.end() && found->second.expired()) {
      imported_.erase(found);
    }
  };
  std::shared_ptr<void> memory(reinterpret_cast<void*>(info.handle), release);
  place = memory;
  return memory;
}

void Allocator::enablePeerAccess(DeviceIndex index, DeviceIndex peer) {
  {
    // For memory that is not Forebay's.
    const c10::cuda::CUDAGuard guard(index);
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
  }
  // `index` is to reach the memory of `peer`.
  forebay_resource* resource = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    forebay_resource*& known = resources_[peer];
    if (known == nullptr) {
      library_.check(library_.forebay_pool_resource_create(library_.pool(), peer, &known));
    }
    resource = known;
  }
  library_.check(library_.forebay_resource_set_peer_access(resource, index, FOREBAY_ACCESS_READ_WRITE));
}

cudaError_t Allocator::memcpyAsync(
    void* to,
    int to_device,
    const void* from,
    int from_device,
    size_t count,
    cudaStream_t stream,
    bool p2p_enabled) {
  if (p2p_enabled || to_device == from_device) {
    return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
  }
  // Without access the plain copy is refused for mapped memory.
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

} // namespace forebay_torch
