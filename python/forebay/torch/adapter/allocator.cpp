#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>

#include <pthread.h>

#include <atomic>
#include <climits>
#include <cstdio>

namespace forebay_torch {

namespace {

// One for the process, never destroyed: tensors die after everything else.
Allocator* the_allocator = nullptr;

// In a child of fork() memory is the parent's, and so are locks that its other threads held.
std::atomic<bool> forked{false};

void delete_block(void* ptr) {
  the_allocator->raw_delete(ptr);
}

constexpr size_t EXA = size_t{1} << 60;

// As PyTorch writes sizes: "20.00 MiB". Without a stream of C++: those take what they need from the libstdc++ that was loaded
// first, which need not be the one that this was compiled for.
std::string text_of(uint64_t bytes) {
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

// In the words that users' programs look for.
std::string shortage(size_t size, DeviceIndex device, uint64_t free, uint64_t total) {
  return "CUDA out of memory. Tried to allocate " + (size >= EXA ? std::string("more than 1EB memory") : text_of(size)) +
      ". GPU " + std::to_string(static_cast<int>(device)) + " has a total capacity of " + text_of(total) + " of which " +
      text_of(free) + " is free. ";
}

// Tensors die in the destructors of a thread too, when PyTorch does not know any more which stream is current there.
thread_local bool thread_ends = false;

struct ThreadEnd {
  ~ThreadEnd() {
    thread_ends = true;
  }
};

// PyTorch's default stream is CUDA's legacy one, without a look into its table of streams.
cudaStream_t handle(c10::cuda::CUDAStream stream) {
  return stream.id() == 0 ? nullptr : stream.stream();
}

} // namespace

// The base class's own ways to allocate are never taken: all of them are overridden.
Allocator::Allocator(const std::string& library_path)
    : CUDAPluggableAllocator(nullptr, nullptr), library_(library_path) {
  the_allocator = this;
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
}

void Allocator::init(int device_count) {
  library_.forebay_torch_init(device_count);
  const std::lock_guard<std::mutex> lock(mutex_);
  books_.resize(device_count);
  gpus_ = c10::cuda::device_count();
  while (devices_.size() < static_cast<size_t>(device_count)) {
    auto fresh = std::make_unique<Device>();
    fresh->allocator = this;
    fresh->index = static_cast<DeviceIndex>(devices_.size());
    devices_.push_back(std::move(fresh));
  }
  initialized_ = true;
}

std::string Allocator::name() {
  return "forebay";
}

Allocator::Device& Allocator::device(DeviceIndex index) {
  TORCH_CHECK(
      0 <= index && static_cast<size_t>(index) < devices_.size(),
      "device ", std::to_string(static_cast<int>(index)), " asked for; PyTorch was initialised with ",
      std::to_string(devices_.size()), " devices");
  return *devices_[index];
}

// The device that is current on this thread. Of one there is nothing to ask.
DeviceIndex Allocator::current() const {
  DeviceIndex device = 0;
  if (devices_.size() != 1) {
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  }
  return device;
}

Allocator::Device& Allocator::open(DeviceIndex index) {
  Device& home = device(index);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!home.open.load(std::memory_order_relaxed)) {
    library_.check(library_.forebay_pool_set_mapping_observer(library_.pool(), index, &Allocator::mapping, &home));
    // Other frameworks may have used the pool before: what they had mapped counts as one segment.
    if (const forebay_pool_stats before = figures(index); before.physical > 0) {
      books_.mapped(index, before.physical, true);
    }
    only_.store(only_.load() == NONE ? index : SEVERAL, std::memory_order_relaxed);
    home.open.store(true, std::memory_order_release);
  }
  return home;
}

// Under Forebay's locks, and called through C: nothing may be thrown. A record that cannot be made is left out.
void Allocator::mapping(void* user, int32_t device, uint32_t what, void* ptr, uint64_t bytes) noexcept try {
  Allocator& self = *static_cast<Device*>(user)->allocator;
  const bool now = what == FOREBAY_MAPPING_MAPPED;
  const auto index = static_cast<DeviceIndex>(device);
  self.books_.mapped(index, bytes, now);
  Event event;
  event.action = now ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP;
  event.device = index;
  event.addr = reinterpret_cast<size_t>(ptr);
  event.size = bytes;
  self.history_.record(event, Cause::current());
} catch (const std::exception& error) {
  TORCH_WARN_ONCE("Forebay could not note a mapping: ", error.what());
}

// ---- out

c10::DataPtr Allocator::allocate(size_t size) {
  const DeviceIndex index = current();
  void* ptr = nullptr;
  if (size != 0) {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index);
    promise(index, stream);
    ptr = take(size, index, handle(stream));
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
  const DeviceIndex index = current();
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index);
  promise(index, stream);
  return take(size, index, handle(stream));
}

void* Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return size == 0 ? nullptr : take(size, current(), stream);
}

void Allocator::promise(DeviceIndex device, c10::cuda::CUDAStream stream) {
  // PyTorch's own streams have an odd id and are never destroyed; others are pointers, and 0 needs no promise.
  if ((stream.id() & 1) == 0) {
    return;
  }
  thread_local std::pair<DeviceIndex, cudaStream_t> last{-1, nullptr};
  const std::pair<DeviceIndex, cudaStream_t> key{device, stream.stream()};
  if (key == last) {
    return;
  }
  if (opened(device).routes.load(std::memory_order_relaxed) > 0) {
    // It may be under capture, when nothing tells it from an earlier stream at its address.
    return;
  }
  bool fresh = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fresh = promised_.insert(key).second;
  }
  if (fresh && library_.forebay_stream_register(library_.pool(), device, key.second) != FOREBAY_STATUS_OK) {
    // It is tried again later, and until then each free costs an event.
    const std::lock_guard<std::mutex> lock(mutex_);
    promised_.erase(key);
    return;
  }
  last = key;
}

void* Allocator::take(size_t size, DeviceIndex index, cudaStream_t stream) {
  if (C10_UNLIKELY(direct_.on())) {
    return direct_.take(size);
  }
  Device& home = opened(index);
  if (C10_UNLIKELY(history_.watched() || foreign_.routing() || home.routes.load(std::memory_order_acquire) > 0)) {
    return take_noted(home, size, stream);
  }
  void* ptr = ask(index, size, stream);
  if (C10_UNLIKELY(ptr == nullptr)) {
    Block block = unnoted(home, size, stream);
    ptr = after_shortage(home, block);
    if (block.pool != NO_POOL) {
      books_.note(ptr, std::move(block));
    }
  }
  const size_t bytes = library_.forebay_pool_block_size_for(size);
  books_.count(index, bytes, size, true);
  tell_of(ptr, index, bytes);
  return ptr;
}

Block Allocator::unnoted(const Device& home, size_t size, cudaStream_t stream) const {
  Block block;
  block.requested = size;
  block.bytes = library_.forebay_pool_block_size_for(size);
  block.device = home.index;
  block.stream = stream;
  return block;
}

// While there is more to say about a block than Forebay knows.
void* Allocator::take_noted(Device& home, size_t size, cudaStream_t stream) {
  Block block = unnoted(home, size, stream);
  block.context = history_.gather(RecordContext::STATE);
  const Cause cause(block.context);
  if (C10_UNLIKELY(foreign_.routing())) {
    std::tie(block.foreign, block.pool) = foreign_.route(home.index, stream);
  }
  void* ptr = block.foreign != nullptr ? from_foreign(home, block) : reserve(home, block);
  enter(ptr, std::move(block));
  return ptr;
}

void Allocator::enter(void* ptr, Block block) {
  const Event event{
      TraceEntry::ALLOC, block.device, reinterpret_cast<size_t>(ptr), block.requested, block.stream, block.pool};
  const size_t bytes = block.bytes;
  auto context = block.context;
  books_.count(block.device, bytes, block.requested, true);
  if (block.foreign != nullptr || block.pool != NO_POOL || block.context != nullptr) {
    books_.note(ptr, std::move(block));
  }
  history_.record(event, std::move(context));
  tell_of(ptr, event.device, bytes);
}

// PyTorch's profiler, and whoever traces what is done to the GPU.
void Allocator::tell_of(void* ptr, DeviceIndex index, size_t bytes) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    profile(ptr, index, static_cast<int64_t>(bytes));
  }
  if (C10_UNLIKELY(c10::impl::GPUTrace::haveState)) {
    if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace()) {
      (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    }
  }
}

void Allocator::profile(void* ptr, DeviceIndex index, int64_t change) {
  c10::reportMemoryUsageToProfiler(
      ptr, change, books_.allocated_bytes(index), figures(index).physical, c10::Device(c10::DeviceType::CUDA, index));
}

// Null for want of memory. By status and not by the hook that throws: nothing is unwound through another language.
void* Allocator::ask(DeviceIndex index, size_t size, cudaStream_t stream) {
  void* ptr = nullptr;
  const forebay_status status =
      library_.forebay_pool_malloc_for(library_.pool(), FOREBAY_FRAMEWORK_TORCH, size, index, stream, &ptr);
  if (C10_UNLIKELY(status != FOREBAY_STATUS_OK && status != FOREBAY_STATUS_OUT_OF_MEMORY)) {
    library_.check(status);
  }
  return ptr;
}

void* Allocator::reserve(Device& home, Block& block) {
  void* ptr = ask(home.index, block.requested, block.stream);
  if (ptr == nullptr) {
    return after_shortage(home, block);
  }
  if (home.routes.load(std::memory_order_acquire) > 0) {
    uint64_t first = 0, second = 0;
    library_.check(library_.forebay_torch_pool_of(ptr, &first, &second));
    block.pool = {first, second};
  }
  return ptr;
}

// pre: Forebay has just refused this block.
void* Allocator::after_shortage(Device& home, Block& block) {
  const std::string report = library_.forebay_last_error_message();
  void* ptr = last_resort(home, block);
  if (ptr == nullptr) {
    out_of_memory(home, block.requested, report);
  }
  return ptr;
}

// Those who registered with PyTorch to give something back, then the pools that were named for this.
void* Allocator::last_resort(Device& home, Block& block) {
  bool gave = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    gave |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  if (gave) {
    if (void* ptr = ask(home.index, block.requested, block.stream)) {
      return ptr;
    }
  }
  std::vector<std::pair<DeviceIndex, MempoolId_t>> pools;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pools = last_resorts_;
  }
  for (const auto& [index, id] : pools) {
    if (index == home.index) {
      if (void* ptr = from_pool(home, block, id)) {
        return ptr;
      }
    }
  }
  return nullptr;
}

// What is in the pool, then the allocator that it was given.
void* Allocator::from_foreign(Device& home, const Block& block) {
  if (void* ptr = block.foreign->reuse(block.bytes, block.stream)) {
    return ptr;
  }
  if (!admit(home, block.foreign->segment_bytes(block.bytes))) {
    out_of_memory(home, block.requested, "The limit that was set is of all memory, also of a MemPool with an allocator of its own.");
  }
  void* ptr = block.foreign->grow(block.bytes, block.stream);
  share_limit(home);
  return ptr;
}

void Allocator::out_of_memory(Device& home, size_t size, const std::string& report) {
  books_.failed(home.index);
  uint64_t free = 0, total = 0;
  library_.check(library_.forebay_pool_memory_info(library_.pool(), home.index, &free, &total));
  const size_t allocated = books_.allocated_bytes(home.index);
  const Event event{TraceEntry::OOM, home.index, static_cast<size_t>(free), size, nullptr, NO_POOL};
  history_.record(event, history_.gather(RecordContext::ALLOC));
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(size), allocated, figures(home.index).physical,
        c10::Device(c10::DeviceType::CUDA, home.index));
  }
  std::vector<caching::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    observers = observers_;
  }
  for (const auto& observer : observers) {
    observer(home.index, size, total, free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, shortage(size, home.index, free, total) + report);
}

// ---- in

void Allocator::raw_delete(void* ptr) {
  if (ptr == nullptr || C10_UNLIKELY(forked.load(std::memory_order_relaxed)) || direct_.give(ptr)) {
    return;
  }
  if (C10_UNLIKELY(history_.watched() || books_.has_notes() || c10::impl::GPUTrace::haveState)) {
    delete_noted(ptr);
  } else {
    give(ptr);
  }
}

// The block at an address, noted or not.
Block Allocator::known(void* ptr) {
  if (books_.has_notes()) {
    if (std::optional<Block> noted = books_.find(ptr)) {
      return *std::move(noted);
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

void Allocator::delete_noted(void* ptr) {
  const Block block = known(ptr);
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
  // After what follows the address may be anybody's.
  books_.forget(ptr);
  if (block.foreign == nullptr) {
    give(ptr);
    return;
  }
  books_.count(block.device, block.bytes, block.requested, false);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    profile(ptr, block.device, -static_cast<int64_t>(block.bytes));
  }
  if (block.foreign->give(ptr)) {
    share_limit(device(block.device));
  }
}

// To Forebay, in the order of the stream of the allocation and behind the stream that is current now: that one is likely to
// use the block, and programs that do not say so are safe with PyTorch's own allocator, which keeps free memory for the stream
// that it was allocated on. Forebay's may serve anybody once that stream is done with it, and its addresses may go.
void Allocator::give(void* ptr) {
  if (C10_UNLIKELY(any_shared_.load(std::memory_order_relaxed))) {
    const std::lock_guard<std::mutex> lock(mutex_);
    shared_.erase(ptr);
    any_shared_.store(!shared_.empty(), std::memory_order_relaxed);
  }
  cudaStream_t current = nullptr;
  const bool has_current = current_stream(ptr, current);
  forebay_torch_block freed;
  const forebay_status status = library_.forebay_torch_free_while(ptr, has_current, current, &freed);
  if (C10_UNLIKELY(status != FOREBAY_STATUS_OK)) {
    TORCH_CHECK(status != FOREBAY_STATUS_BAD_FREE, "invalid device pointer: ", library_.forebay_last_error_message());
    TORCH_WARN_ONCE("Forebay could not take a block back: ", library_.forebay_last_error_message());
    return;
  }
  const auto index = static_cast<DeviceIndex>(freed.device);
  books_.count(index, freed.bytes, freed.requested, false);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    profile(ptr, index, -static_cast<int64_t>(freed.bytes));
  }
}

// Which stream is current on the block's device, if PyTorch can tell.
bool Allocator::current_stream(void* ptr, cudaStream_t& current) {
  if (C10_UNLIKELY(thread_ends)) {
    return false;
  }
  int index = only_.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(index < 0)) {
    forebay_torch_block block{};
    index = library_.forebay_torch_block_at(ptr, &block) == FOREBAY_STATUS_OK ? block.device : INT_MAX;
  }
  // Without a GPU no stream is current.
  if (index >= gpus_) {
    return false;
  }
  current = handle(c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(index)));
  // Made after PyTorch's own record of current streams, so it goes before that one does.
  thread_local const ThreadEnd end;
  (void)&end;
  return true;
}

void Allocator::recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) {
  // Memory of another process, or of another library, is none of Forebay's; and cudaFree waits for every stream.
  if (ptr.get() == nullptr || ptr.get_deleter() != &delete_block || direct_.has(ptr.get())) {
    return;
  }
  const Block block = known(ptr.get());
  // Blocks go back in the order of the stream of their allocation.
  if (block.stream == stream.stream()) {
    return;
  }
  TORCH_CHECK(
      block.foreign == nullptr, "record_stream is not possible for memory of a MemPool with an allocator of its own");
  promise(block.device, stream);
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
