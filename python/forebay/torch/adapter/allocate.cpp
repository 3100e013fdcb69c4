#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>

#include <cstdio>

namespace forebay_torch {

namespace {

constexpr size_t EXABYTE = size_t{1} << 60;

void delete_block(void* ptr) {
  the_allocator->raw_delete(ptr);
}

// As PyTorch writes sizes: "20.00 MiB". Without a C++ stream: those need symbols of the libstdc++ that this was
// compiled for, and the one that is loaded may be older.
std::string size_text(uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount > 1024 && unit < 3; unit++) {
    amount /= 1024;
  }
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", amount, units[unit]);
  return text;
}

// In PyTorch's own words, which programs search for.
std::string out_of_memory_text(size_t size, DeviceIndex device, uint64_t free, uint64_t total) {
  return "CUDA out of memory. Tried to allocate " + (size >= EXABYTE ? std::string("more than 1EB memory") : size_text(size)) +
      ". GPU " + std::to_string(static_cast<int>(device)) + " has a total capacity of " + size_text(total) + " of which " +
      size_text(free) + " is free. ";
}

} // namespace

c10::DataPtr Allocator::allocate(size_t size) {
  const DeviceIndex index = current_device();
  void* ptr = nullptr;
  if (size != 0) {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index);
    register_stream(index, stream);
    ptr = allocate_on(size, index, cuda_stream(stream));
  }
  return {ptr, ptr, &delete_block, c10::Device(c10::DeviceType::CUDA, index)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return &delete_block;
}

void* Allocator::raw_alloc(size_t size) {
  if (size == 0) {
    return nullptr;
  }
  const DeviceIndex index = current_device();
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index);
  register_stream(index, stream);
  return allocate_on(size, index, cuda_stream(stream));
}

void* Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return size == 0 ? nullptr : allocate_on(size, current_device(), stream);
}

void* Allocator::allocate_on(size_t size, DeviceIndex index, cudaStream_t stream) {
  if (C10_UNLIKELY(uncached_.enabled())) {
    return uncached_.allocate(size);
  }
  Device& device = opened_device(index);
  if (C10_UNLIKELY(
          history_.active() || custom_pools_.any_route() || device.pool_routes.load(std::memory_order_acquire) > 0)) {
    return allocate_recorded(device, size, stream);
  }
  void* ptr = pool_malloc(index, size, stream);
  if (C10_UNLIKELY(ptr == nullptr)) {
    Block block = new_block(device, size, stream);
    ptr = retry_or_throw(device, block);
    if (block.pool != NO_POOL) {
      blocks_.insert(ptr, std::move(block));
    }
  }
  const size_t bytes = library_.forebay_pool_block_size_for(size);
  statistics_.count_malloc(index, bytes, size);
  report_allocation(ptr, index, bytes);
  return ptr;
}

Block Allocator::new_block(const Device& device, size_t size, cudaStream_t stream) const {
  Block block;
  block.requested = size;
  block.bytes = library_.forebay_pool_block_size_for(size);
  block.device = device.index;
  block.stream = stream;
  return block;
}

// For blocks that may belong into the block table or the history.
void* Allocator::allocate_recorded(Device& device, size_t size, cudaStream_t stream) {
  Block block = new_block(device, size, stream);
  block.context = history_.gather(RecordContext::STATE);
  const ScopedContext scope(block.context);
  if (C10_UNLIKELY(custom_pools_.any_route())) {
    std::tie(block.custom_pool, block.pool) = custom_pools_.route(device.index, stream);
  }
  void* ptr = block.custom_pool != nullptr ? allocate_from_custom_pool(device, block) : allocate_from_forebay(device, block);
  record_allocation(ptr, std::move(block));
  return ptr;
}

void Allocator::record_allocation(void* ptr, Block block) {
  const Event event{
      TraceEntry::ALLOC, block.device, reinterpret_cast<size_t>(ptr), block.requested, block.stream, block.pool};
  const size_t bytes = block.bytes;
  auto context = block.context;
  statistics_.count_malloc(block.device, bytes, block.requested);
  if (block.custom_pool != nullptr || block.pool != NO_POOL || block.context != nullptr) {
    blocks_.insert(ptr, std::move(block));
  }
  history_.record(event, std::move(context));
  report_allocation(ptr, event.device, bytes);
}

// To PyTorch's profiler and its GPU trace.
void Allocator::report_allocation(void* ptr, DeviceIndex index, size_t bytes) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_to_profiler(ptr, index, static_cast<int64_t>(bytes));
  }
  if (C10_UNLIKELY(c10::impl::GPUTrace::haveState)) {
    if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace()) {
      (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    }
  }
}

// Null if the pool is out of memory. It uses the function that returns a status, not the hook that throws: no exception
// may unwind through the library.
void* Allocator::pool_malloc(DeviceIndex index, size_t size, cudaStream_t stream) {
  void* ptr = nullptr;
  const forebay_status status =
      library_.forebay_pool_malloc_for(library_.pool(), FOREBAY_FRAMEWORK_TORCH, size, index, stream, &ptr);
  if (C10_UNLIKELY(status != FOREBAY_STATUS_OK && status != FOREBAY_STATUS_OUT_OF_MEMORY)) {
    library_.check(status);
  }
  return ptr;
}

// Sets the block's private pool.
void* Allocator::allocate_from_forebay(Device& device, Block& block) {
  void* ptr = pool_malloc(device.index, block.requested, block.stream);
  if (ptr == nullptr) {
    return retry_or_throw(device, block);
  }
  if (device.pool_routes.load(std::memory_order_acquire) > 0) {
    uint64_t first = 0, second = 0;
    library_.check(library_.forebay_torch_pool_of(ptr, &first, &second));
    block.pool = {first, second};
  }
  return ptr;
}

// Free memory of the pool, else a new segment of its allocator.
void* Allocator::allocate_from_custom_pool(Device& device, const Block& block) {
  if (void* ptr = block.custom_pool->reuse(block.bytes, block.stream)) {
    return ptr;
  }
  if (!fits_limit(device, block.custom_pool->segment_bytes(block.bytes))) {
    throw_out_of_memory(
        device, block.requested, "The memory fraction includes memory of a MemPool with an allocator of its own.");
  }
  void* ptr = block.custom_pool->grow(block.bytes, block.stream);
  update_pool_limit(device);
  return ptr;
}

// pre: the last call of the library on this thread was the pool_malloc that failed.
void* Allocator::retry_or_throw(Device& device, Block& block) {
  const std::string reason = library_.forebay_last_error_message();
  void* ptr = retry_after_reclaim(device, block);
  if (ptr == nullptr) {
    throw_out_of_memory(device, block.requested, reason);
  }
  return ptr;
}

// Runs PyTorch's callbacks that free memory, then tries the pools of setUseOnOOM.
void* Allocator::retry_after_reclaim(Device& device, Block& block) {
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  if (freed) {
    if (void* ptr = pool_malloc(device.index, block.requested, block.stream)) {
      return ptr;
    }
  }
  std::vector<std::pair<DeviceIndex, MempoolId_t>> pools;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pools = oom_pools_;
  }
  for (const auto& [index, id] : pools) {
    if (index == device.index) {
      if (void* ptr = allocate_from_private_pool(device, block, id)) {
        return ptr;
      }
    }
  }
  return nullptr;
}

void Allocator::throw_out_of_memory(Device& device, size_t size, const std::string& reason) {
  statistics_.count_out_of_memory(device.index);
  uint64_t free = 0, total = 0;
  library_.check(library_.forebay_pool_memory_info(library_.pool(), device.index, &free, &total));
  const size_t allocated = statistics_.allocated_bytes(device.index);
  const Event event{TraceEntry::OOM, device.index, static_cast<size_t>(free), size, nullptr, NO_POOL};
  history_.record(event, history_.gather(RecordContext::ALLOC));
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(size), allocated, pool_stats(device.index).physical,
        c10::Device(c10::DeviceType::CUDA, device.index));
  }
  std::vector<caching::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    observers = out_of_memory_observers_;
  }
  for (const auto& observer : observers) {
    observer(device.index, size, total, free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory_text(size, device.index, free, total) + reason);
}

} // namespace forebay_torch
