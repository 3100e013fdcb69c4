#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>

#include <climits>

namespace forebay_torch {

namespace {

// Tensors are freed in the destructors of a thread too, after PyTorch has destroyed its record of the current streams.
thread_local bool thread_ends = false;

struct ThreadEnd {
  ~ThreadEnd() {
    thread_ends = true;
  }
};

} // namespace

void Allocator::raw_delete(void* ptr) {
  if (ptr == nullptr || C10_UNLIKELY(forked_.load(std::memory_order_relaxed)) || uncached_.free(ptr)) {
    return;
  }
  if (C10_UNLIKELY(history_.active() || !blocks_.empty() || c10::impl::GPUTrace::haveState)) {
    free_recorded(ptr);
  } else {
    pool_free(ptr);
  }
}

// From the block table, or else from Forebay.
Block Allocator::block_at(const void* ptr) {
  if (!blocks_.empty()) {
    if (std::optional<Block> found = blocks_.find(ptr)) {
      return *std::move(found);
    }
  }
  forebay_torch_block found{};
  const forebay_status status = library_.forebay_torch_block_at(ptr, &found);
  TORCH_CHECK(status == FOREBAY_STATUS_OK, "invalid device pointer: ", library_.forebay_last_error_message());
  Block block;
  block.requested = found.requested;
  block.bytes = found.bytes;
  block.device = static_cast<DeviceIndex>(found.device);
  block.stream = static_cast<cudaStream_t>(found.stream);
  return block;
}

void Allocator::free_recorded(void* ptr) {
  const Block block = block_at(ptr);
  if (C10_UNLIKELY(c10::impl::GPUTrace::haveState)) {
    if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace()) {
      (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    }
  }
  Event event{
      TraceEntry::FREE_REQUESTED, block.device, reinterpret_cast<size_t>(ptr), block.requested, block.stream, block.pool};
  auto context = history_.gather(RecordContext::ALL);
  history_.record(event, context);
  event.action = TraceEntry::FREE_COMPLETED;
  history_.record(event, std::move(context));
  // Before the free: after it another thread may get the address.
  blocks_.erase(ptr);
  if (block.custom_pool == nullptr) {
    pool_free(ptr);
    return;
  }
  statistics_.count_free(block.device, block.bytes, block.requested);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_to_profiler(ptr, block.device, -static_cast<int64_t>(block.bytes));
  }
  if (block.custom_pool->free(ptr)) {
    update_pool_limit(device(block.device));
  }
}

// Frees in the order of the stream of the allocation, and behind the stream that is current now, which is likely to use
// the block. Programs that do not record that use are safe with PyTorch's own allocator, which keeps free memory for
// the stream of the allocation; in Forebay any stream may get it.
void Allocator::pool_free(void* ptr) {
  if (C10_UNLIKELY(any_exported_.load(std::memory_order_relaxed))) {
    const std::lock_guard<std::mutex> lock(mutex_);
    exported_.erase(ptr);
    any_exported_.store(!exported_.empty(), std::memory_order_relaxed);
  }
  cudaStream_t current = nullptr;
  const bool has_current = current_stream(ptr, current);
  forebay_torch_block freed;
  const forebay_status status = library_.forebay_torch_free_while(ptr, has_current, current, &freed);
  if (C10_UNLIKELY(status != FOREBAY_STATUS_OK)) {
    TORCH_CHECK(status != FOREBAY_STATUS_BAD_FREE, "invalid device pointer: ", library_.forebay_last_error_message());
    TORCH_WARN_ONCE("Forebay could not free a block: ", library_.forebay_last_error_message());
    return;
  }
  const auto index = static_cast<DeviceIndex>(freed.device);
  statistics_.count_free(index, freed.bytes, freed.requested);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_to_profiler(ptr, index, -static_cast<int64_t>(freed.bytes));
  }
}

// The calling thread's current stream on the block's device; false if there is none.
bool Allocator::current_stream(void* ptr, cudaStream_t& current) {
  if (C10_UNLIKELY(thread_ends)) {
    return false;
  }
  int index = single_device_.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(index < 0)) {
    forebay_torch_block block{};
    index = library_.forebay_torch_block_at(ptr, &block) == FOREBAY_STATUS_OK ? block.device : INT_MAX;
  }
  // Without a GPU there is no current stream.
  if (index >= gpu_count_) {
    return false;
  }
  current = cuda_stream(c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(index)));
  // Constructed after PyTorch's record of the current streams, so it is destroyed before that.
  thread_local const ThreadEnd end;
  (void)&end;
  return true;
}

void Allocator::recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) {
  // Forebay does not manage memory of other processes and libraries; and cudaFree waits for all streams.
  if (ptr.get() == nullptr || ptr.get_deleter() != raw_deleter() || uncached_.owns(ptr.get())) {
    return;
  }
  const Block block = block_at(ptr.get());
  // Blocks are freed in the order of the stream of their allocation anyway.
  if (block.stream == stream.stream()) {
    return;
  }
  TORCH_CHECK(
      block.custom_pool == nullptr, "record_stream is not possible for memory of a MemPool with an allocator of its own");
  register_stream(block.device, stream);
  library_.forebay_torch_record_stream(ptr.get(), stream.stream());
}

void* Allocator::getBaseAllocation(void* ptr, size_t* size) {
  void* base = nullptr;
  uint64_t bytes = 0;
  library_.check(library_.forebay_pool_base_address(library_.pool(), ptr, &base, &bytes));
  if (size != nullptr) {
    *size = bytes;
  }
  return base;
}

} // namespace forebay_torch
