#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

namespace forebay_torch {

void Allocator::enablePeerAccess(DeviceIndex index, DeviceIndex peer) {
  {
    // For memory that Forebay does not manage.
    const c10::cuda::CUDAGuard guard(index);
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
  }
  // Maps Forebay's memory of `peer` for access by `index`.
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
  // Without access the driver refuses cudaMemcpyAsync for mapped memory.
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

} // namespace forebay_torch
