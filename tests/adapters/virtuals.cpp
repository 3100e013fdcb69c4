// Calls every virtual function of PyTorch's CUDA allocator through the base class, in a process whose allocator is
// Forebay's adapter, on Forebay's host driver and a stand-in for the CUDA runtime. Compiled against the headers of the
// PyTorch that runs. tests/adapters/run.py loads it, and checks that no virtual function of the headers is left out.
#include <forebay.h>
#include <torch_version.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

using namespace forebay_torch;
using c10::CachingAllocator::StatType;

namespace {

constexpr MempoolId_t NO_POOL{0, 0};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr size_t MIB = size_t{1} << 20;
constexpr auto ALL = static_cast<size_t>(StatType::AGGREGATE);

void must(bool holds, const char* what) {
  if (!holds) {
    throw Failure(what);
  }
}

// ---- functions whose parameters depend on the version

caching::SnapshotInfo snapshot(CUDAAllocator& torch, MempoolId_t id, [[maybe_unused]] bool include_traces) {
#if FOREBAY_TORCH_SINCE(11)
  return torch.snapshot(id, include_traces);
#else
  return torch.snapshot(id);
#endif
}

void record_history(
    CUDAAllocator& torch,
    bool enabled,
    CreateContextFn recorder,
    size_t max_entries,
    RecordContext when,
    bool clear,
    [[maybe_unused]] const std::vector<std::string>& skip_actions) {
#if FOREBAY_TORCH_SINCE(11)
  torch.recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
#else
  torch.recordHistory(enabled, recorder, max_entries, when, clear);
#endif
}

void create_pool(CUDAAllocator& torch, MempoolId_t id, const std::shared_ptr<CUDAAllocator>& allocator) {
#if FOREBAY_TORCH_SINCE(11)
  torch.createOrIncrefPool(0, id, allocator);
#else
  torch.createOrIncrefPool(0, id, allocator.get());
#endif
}

void use_on_oom(CUDAAllocator& torch, MempoolId_t id) {
#if FOREBAY_TORCH_SINCE(11)
  torch.setUseOnOOM(0, id, true);
#else
  torch.setUseOnOOM(0, id);
#endif
}

bool has(const caching::SnapshotInfo& info, TraceEntry::Action action) {
  for (const auto& entry : info.device_traces.at(0)) {
    if (entry.action_ == action) {
      return true;
    }
  }
  return false;
}

// ---- the parts

void stats(CUDAAllocator& torch) {
  must(torch.getDeviceStats(0).reserved_bytes[ALL].current == 0, "nothing is reserved before the first use");
  void* small = torch.raw_alloc_with_stream(1000, nullptr);
  void* large = torch.raw_alloc_with_stream(8 * MIB, nullptr);
  auto stats = torch.getDeviceStats(0);
  must(stats.allocated_bytes[ALL].current == 1024 + 8 * int64_t{MIB}, "allocated bytes are rounded to 512");
  must(stats.requested_bytes[ALL].current == 1000 + 8 * int64_t{MIB}, "requested bytes are not rounded");
  must(stats.allocation[ALL].current == 2, "two allocations");
  must(stats.allocated_bytes[1].current == 1024, "the small one is counted as small");
  must(stats.reserved_bytes[ALL].current >= stats.allocated_bytes[ALL].current, "reserved covers allocated");
  must(stats.num_device_alloc > 0, "mappings are counted");
  torch.raw_delete(large);
  torch.raw_delete(small);
  stats = torch.getDeviceStats(0);
  must(stats.allocated_bytes[ALL].current == 0, "all is freed");
  must(stats.allocated_bytes[ALL].peak == 1024 + 8 * int64_t{MIB}, "the peak stays");
  torch.resetPeakStats(0);
  must(torch.getDeviceStats(0).allocated_bytes[ALL].peak == 0, "until it is reset");
  must(stats.allocated_bytes[ALL].freed == 1024 + 8 * int64_t{MIB}, "freed bytes are summed");
  torch.resetAccumulatedStats(0);
  must(torch.getDeviceStats(0).allocated_bytes[ALL].freed == 0, "until they are reset");
  torch.emptyCache(NO_POOL);
  must(torch.getDeviceStats(0).reserved_bytes[ALL].current == 0, "empty_cache gives all back");
  bool refused = false;
  try {
    torch.raw_delete(small);
  } catch (const c10::Error&) {
    refused = true;
  }
  must(refused, "a second free is refused");
}

void out_of_memory(CUDAAllocator& torch) {
  torch.setMemoryFraction(0.25, 0);
  must(torch.getMemoryFraction(0) > 0.24 && torch.getMemoryFraction(0) < 0.26, "the fraction is answered");
  static size_t asked = 0; // observers stay
  torch.attachOutOfMemoryObserver([](int64_t, size_t bytes, size_t, size_t) { asked = bytes; });
  std::string text;
  try {
    torch.raw_alloc_with_stream(size_t{1} << 40, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    text = error.what_without_backtrace();
  }
  must(text.find("CUDA out of memory") == 0, "it raises c10::OutOfMemoryError in PyTorch's words");
  must(text.find("Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of ") != std::string::npos, "and in its form");
  must(text.find("Forebay") != std::string::npos && text.find("limit") != std::string::npos, "with Forebay's report");
  must(asked == size_t{1} << 40, "the observer is told");
  must(torch.getDeviceStats(0).num_ooms == 1, "it is counted");
  try {
    torch.raw_alloc_with_stream(size_t{1} << 61, nullptr);
    must(false, "an exabyte is refused");
  } catch (const c10::OutOfMemoryError& error) {
    text = error.what_without_backtrace();
  }
  must(text.find("Tried to allocate more than 1EB memory") != std::string::npos, "as PyTorch does");
  torch.setMemoryFraction(1.0, 0);
}

void history(CUDAAllocator& torch) {
  std::vector<TraceEntry::Action> told;
  record_history(torch, true, nullptr, 1000, RecordContext::NEVER, true, {});
  must(torch.isHistoryEnabled(), "history is on");
  void* block = torch.raw_alloc_with_stream(4 * MIB, nullptr);
  const auto during = snapshot(torch, NO_POOL, true);
  torch.raw_delete(block);
  torch.emptyCache(NO_POOL);
  const auto after = snapshot(torch, NO_POOL, true);
  record_history(torch, false, nullptr, 1, RecordContext::NEVER, true, {});
  bool found = false;
  for (const auto& segment : during.segments) {
    size_t sum = 0, address = segment.address;
    for (const auto& part : segment.blocks) {
      found |= address == reinterpret_cast<size_t>(block) && part.allocated && part.size == 4 * MIB;
      sum += part.size;
      address += part.size;
    }
    must(sum == segment.total_size, "the blocks of a segment fill it");
  }
  must(found, "the live block is in the snapshot");
  must(after.segments.empty(), "after empty_cache nothing is mapped");
  must(has(after, TraceEntry::ALLOC) && has(after, TraceEntry::FREE_REQUESTED) && has(after, TraceEntry::FREE_COMPLETED), "blocks are traced");
  must(has(after, TraceEntry::SEGMENT_MAP) && has(after, TraceEntry::SEGMENT_UNMAP), "mappings are traced");
  must(after.device_traces[0].front().time_.t_ > 1600000000000000, "times are microseconds since 1970");
}

struct Stack final : GatheredContext {};

void stacks(CUDAAllocator& torch) {
  torch.emptyCache(NO_POOL);
  record_history(torch, true, [] { return std::shared_ptr<GatheredContext>(new Stack); }, 1000, RecordContext::ALL, true, {});
  void* block = torch.raw_alloc_with_stream(4 * MIB, nullptr);
  const auto during = snapshot(torch, NO_POOL, true);
  must(during.device_traces.at(0).back().action_ == TraceEntry::ALLOC, "a snapshot does not see itself");
  torch.raw_delete(block);
  torch.emptyCache(NO_POOL);
  const auto after = snapshot(torch, NO_POOL, true);
  record_history(torch, false, nullptr, 1, RecordContext::NEVER, true, {});
  for (const auto& entry : after.device_traces.at(0)) {
    const bool mapping = entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::SEGMENT_UNMAP;
    must(!mapping || entry.context_ != nullptr, "a mapping has the stack of what caused it");
  }
  must(after.device_traces[0].back().action_ == TraceEntry::SEGMENT_UNMAP, "the last thing that happened is the last entry");
}

// An allocator of somebody else's for a MemPool: the addresses are made up, and never touched.
class Other final : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
 public:
  Other() : CUDAPluggableAllocator(nullptr, nullptr) {}
  void* raw_alloc_with_stream(size_t size, cudaStream_t) override {
    if (size > 64 * MIB) {
      return nullptr;
    }
    next_ -= size;
    return reinterpret_cast<void*>(next_);
  }
  void raw_delete(void*) override {}

 private:
  size_t next_ = size_t{1} << 40;
};

void* take_from(CUDAAllocator& torch, MempoolId_t id, size_t bytes) {
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* block = nullptr;
  try {
    block = torch.raw_alloc_with_stream(bytes, nullptr);
  } catch (const c10::OutOfMemoryError&) {
  }
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  return block;
}

void custom_allocator(CUDAAllocator& torch) {
  const MempoolId_t id{0, 9};
  const auto before = torch.getDeviceStats(0).reserved_bytes[ALL].current;
  // Before 2.11 PyTorch, not the pool, keeps the allocator alive.
  static const auto other = std::make_shared<Other>();
  create_pool(torch, id, other);
  const auto three = [&] {
    std::vector<void*> blocks;
    for (size_t bytes : {2 * MIB, 2 * MIB, 3 * MIB}) {
      blocks.push_back(take_from(torch, id, bytes));
    }
    return blocks;
  };
  const auto first = three();
  const auto reserved = torch.getDeviceStats(0).reserved_bytes[ALL].current;
  must(reserved == before + 20 * int64_t{MIB}, "memory of another allocator is reserved memory");
  auto segments = snapshot(torch, id, false).segments;
  must(segments.size() == 1 && segments[0].total_size == 20 * MIB, "large blocks share a segment");
  must(segments[0].owner_private_pool_id == id && !segments[0].is_expandable && segments[0].is_large, "of the pool");
  must(segments[0].blocks.size() == 4 && segments[0].allocated_size == 7 * MIB, "three of its blocks are live");
  for (size_t at : {1, 0, 2}) {
    torch.raw_delete(first[at]);
  }
  segments = snapshot(torch, id, false).segments;
  must(segments.size() == 1 && segments[0].blocks.size() == 1 && segments[0].active_size == 0, "it is kept, and one again");
  const auto again = three();
  must(again == first, "and used again in the same places");
  for (void* ptr : again) {
    torch.raw_delete(ptr);
  }
  void* small = take_from(torch, id, 1000);
  void* big = take_from(torch, id, 31 * MIB);
  segments = snapshot(torch, id, false).segments;
  must(segments.size() == 3, "small blocks have segments of their own, and very large ones");
  torch.raw_delete(small);
  torch.raw_delete(big);
  must(take_from(torch, id, 128 * MIB) == nullptr, "an allocator that returns null is out of memory");

  // 2 + 20 + 32 MiB are held; the limit is of all memory.
  const auto limit_to = [&](int64_t bytes) {
    torch.setMemoryFraction(double(bytes) / double(int64_t{141} << 30), 0);
  };
  torch.emptyCache(NO_POOL);
  const auto held = torch.getDeviceStats(0).reserved_bytes[ALL].current;
  limit_to(held + 4 * int64_t{MIB} + 1);
  must(std::abs(torch.getMemoryFraction(0) * double(int64_t{141} << 30) - double(held + 4 * MIB)) < 4, "the limit is answered");
  bool refused = false;
  try {
    torch.raw_alloc_with_stream(16 * MIB, nullptr);
  } catch (const c10::OutOfMemoryError&) {
    refused = true;
  }
  must(refused, "Forebay's own memory is limited by what others hold");
  void* fits = torch.raw_alloc_with_stream(3 * MIB, nullptr);
  must(take_from(torch, id, 40 * MIB) == nullptr, "and so is theirs");
  use_on_oom(torch, id);
  void* saved = torch.raw_alloc_with_stream(30 * MIB, nullptr);
  must(saved == big, "a pool that was named for it serves what fails elsewhere");
  torch.raw_delete(saved);
  torch.raw_delete(fits);
  torch.setMemoryFraction(1, 0);

  const MempoolId_t whole{0, 10};
  static const auto whole_allocator = std::make_shared<Other>();
  create_pool(torch, whole, whole_allocator);
#if FOREBAY_TORCH_SINCE(10)
  torch.setNoSplit(0, whole);
#else
  return;
#endif
  void* one = take_from(torch, whole, MIB);
  void* two = take_from(torch, whole, MIB);
  segments = snapshot(torch, whole, false).segments;
  must(segments.size() == 2 && segments[0].blocks.size() == 1, "no_split: a segment for each block");
  torch.raw_delete(one);
  torch.raw_delete(two);
}

void pools(CUDAAllocator& torch) {
  const MempoolId_t id{0, 7};
  create_pool(torch, id, nullptr);
  must(torch.getPoolUseCount(0, id) == 1, "one hold");
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  must(torch.getPoolUseCount(0, id) == 2, "begin takes another");
  void* a = torch.raw_alloc_with_stream(2 * MIB, nullptr);
  void* b = torch.raw_alloc_with_stream(3 * MIB, nullptr);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  void* outside = torch.raw_alloc_with_stream(2 * MIB, nullptr);
  must(torch.checkPoolLiveAllocations(0, id, {a, b}), "the pool has these two");
  must(!torch.checkPoolLiveAllocations(0, id, {a}), "and not one of them alone");
  size_t bytes = 0;
  [[maybe_unused]] int32_t last = -1;
  for (const auto& segment : snapshot(torch, id, false).segments) {
    must(segment.owner_private_pool_id == id, "a snapshot of a pool has its segments only");
#if FOREBAY_TORCH_SINCE(11)
    must(segment.registration_counter > last, "and each is numbered, for NCCL");
    last = segment.registration_counter;
#endif
    bytes += segment.allocated_size;
  }
  must(bytes == 5 * MIB, "with its blocks");

  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  auto* const elsewhere = reinterpret_cast<cudaStream_t>(2); // the thread's default stream
  void* beside = torch.raw_alloc_with_stream(2 * MIB, elsewhere);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  for (const auto& segment : snapshot(torch, id, false).segments) {
    const bool its = reinterpret_cast<void*>(segment.address) == beside;
    must((segment.stream == elsewhere) == its, "a private pool's segment is one stream's");
  }
  torch.raw_delete(beside);

  // As CUDA-graph trees: back to {a}, then to {a, b}.
  auto both = torch.getCheckpointState(0, id);
  torch.raw_delete(b);
  auto one = torch.getCheckpointState(0, id);
  auto delta = torch.setCheckpointPoolState(0, both);
  must(delta.ptrs_freed.size() == 1 && delta.dataptrs_allocd.size() == 2, "a stays, b comes back");
  must(torch.checkPoolLiveAllocations(0, id, {a, b}), "b is live again at its address");
  for (auto& ptr : delta.dataptrs_allocd) {
    must(ptr.get_deleter() == torch.raw_deleter() && ptr.get_context() != nullptr, "with PyTorch's deleter");
    ptr.release_context();
  }
  auto back = torch.setCheckpointPoolState(0, one);
  must(back.ptrs_freed.size() == 2 && back.dataptrs_allocd.size() == 1, "both are reported, a stays");
  back.dataptrs_allocd[0].release_context();
  must(torch.checkPoolLiveAllocations(0, id, {a}), "b is gone");

  // Memory that was cut up since: the checkpoint's block cannot be had until it is whole again.
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* c = torch.raw_alloc_with_stream(1 * MIB, nullptr);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  auto whole = torch.setCheckpointPoolState(0, both);
  must(torch.checkPoolLiveAllocations(0, id, {a, b}), "what lay in b's place is freed before");
  must(c != nullptr, "c was given out");
  for (auto& ptr : whole.dataptrs_allocd) {
    ptr.release_context();
  }
  torch.raw_delete(a);
  torch.raw_delete(b);
  torch.raw_delete(outside);
  torch.releasePool(0, id);
  must(torch.getPoolUseCount(0, id) == 0, "the pool is gone");
  torch.emptyCache(NO_POOL);
  must(torch.getDeviceStats(0).reserved_bytes[ALL].current == 0, "and its memory went back");
}

void last_resort(CUDAAllocator& torch) {
  const MempoolId_t id{0, 8};
  create_pool(torch, id, nullptr);
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* big = torch.raw_alloc_with_stream(64 * MIB, nullptr);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  torch.raw_delete(big);
  torch.setMemoryFraction(0, 0);
  bool refused = false;
  try {
    torch.raw_alloc_with_stream(32 * MIB, nullptr);
  } catch (const c10::OutOfMemoryError&) {
    refused = true;
  }
  must(refused, "a private pool's memory is not for others");
  use_on_oom(torch, id);
  void* saved = torch.raw_alloc_with_stream(32 * MIB, nullptr);
  must(torch.checkPoolLiveAllocations(0, id, {saved}), "unless it was named for that");
  torch.setMemoryFraction(1, 0);
  torch.raw_delete(saved);
  torch.releasePool(0, id);
}

void base_and_sharing(CUDAAllocator& torch) {
  void* block = torch.raw_alloc_with_stream(6 * MIB, nullptr);
  size_t size = 0;
  must(torch.getBaseAllocation(static_cast<char*>(block) + 4096, &size) == block && size == 6 * MIB, "the base is found");
  const auto first = torch.shareIpcHandle(static_cast<char*>(block) + 4096);
  const auto again = torch.shareIpcHandle(block);
  must(first.offset == 4096 && again.offset == 0, "the offset is from the base");
  must(first.handle == again.handle && first.handle.size() == 257, "one handle for a block");
  torch.raw_delete(block);
  bool refused = false;
  try {
    torch.getIpcDevPtr("c" + std::string(64, 'x'));
  } catch (const c10::Error& error) {
    refused = std::string(error.what_without_backtrace()).find("does not allocate from Forebay") != std::string::npos;
  }
  must(refused, "a handle of another allocator is refused");
}

// What a program without memory pools, stacks or other processes uses.
void memory(CUDAAllocator& torch) {
  must(torch.initialized() && torch.name() == "forebay", "the adapter is PyTorch's allocator");
  must(torch.isEnabled(), "caching is on");
  {
    c10::DataPtr ptr = torch.allocate(1000);
    must(ptr.get() != nullptr && ptr.get_deleter() == torch.raw_deleter(), "allocate returns a block with the deleter");
    must(ptr.device() == c10::Device(c10::DeviceType::CUDA, 0), "on the current device");
    must(torch.is_simple_data_ptr(ptr), "whose context is the block");
    std::memset(ptr.get(), 7, 1000);
    const c10::DataPtr copy = torch.clone(ptr.get(), 1000);
    must(std::memcmp(ptr.get(), copy.get(), 1000) == 0, "clone copies it");
    const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
    torch.recordStream(ptr, side);
    torch.recordStream(ptr, side.unwrap());
    must(torch.getDeviceStats(0).allocation[ALL].current == 2, "both are counted");
  }
  must(torch.getDeviceStats(0).allocation[ALL].current == 0, "and freed");
  void* raw = torch.raw_alloc(2 * MIB);
  must(raw != nullptr && torch.raw_alloc(0) == nullptr && torch.allocate(0).get() == nullptr, "0 bytes are no block");
  torch.raw_delete(raw);
  size_t largest = 0;
  torch.cacheInfo(0, &largest);
  must(largest > 1000 * MIB, "cacheInfo answers what cudnn may use");
#if FOREBAY_TORCH_SINCE(10)
  must(torch.getExpandableSegmentSizes(0).empty(), "there are no expandable segments");
  const auto [free, total] = torch.getMemoryInfo(0);
  must(0 < free && free <= total, "free and total memory");
#endif
  torch.enable(false);
  must(!torch.isEnabled(), "caching is off");
  void* uncached = torch.raw_alloc(1000);
  must(torch.getDeviceStats(0).allocation[ALL].current == 0, "then blocks are not counted");
  torch.enable(true);
  torch.raw_delete(uncached);
#if FOREBAY_TORCH_SINCE(13)
  bool refused = false;
  try {
    torch.allocateWithAddress(1000, nullptr);
  } catch (const c10::Error&) {
    refused = true;
  }
  must(refused, "an address cannot be chosen");
#endif
#if FOREBAY_TORCH_SINCE(12)
  torch.attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) {});
#endif
  torch.enablePeerAccess(0, 0);
  char from[] = "abc", to[4];
  must(torch.memcpyAsync(to, 0, from, 0, 4, nullptr, true) == cudaSuccess && std::strcmp(to, "abc") == 0, "a copy");
  std::strcpy(from, "xyz");
  must(torch.memcpyAsync(to, 1, from, 0, 4, nullptr, false) == cudaSuccess && std::strcmp(to, "xyz") == 0, "to a peer");
}

// Whether an allocation on a stream that is new to the adapter registers the stream with Forebay.
bool registers_stream(CUDAAllocator& torch) {
  static void* const library = dlopen(std::getenv("FOREBAY_LIBRARY"), RTLD_NOW);
  const auto shared = reinterpret_cast<decltype(&forebay_pool_shared)>(dlsym(library, "forebay_pool_shared"));
  const auto unregister = reinterpret_cast<decltype(&forebay_stream_unregister)>(dlsym(library, "forebay_stream_unregister"));
  forebay_pool* pool = nullptr;
  must(shared(&pool) == FOREBAY_STATUS_OK, "the shared pool");
  const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(0), fresh = c10::cuda::getStreamFromPool(false, 0);
  // The stand-in's streams are registered when they are made.
  unregister(pool, 0, fresh.stream());
  c10::cuda::setCurrentCUDAStream(fresh);
  torch.raw_delete(torch.raw_alloc(1000));
  c10::cuda::setCurrentCUDAStream(before);
  return unregister(pool, 0, fresh.stream()) == FOREBAY_STATUS_OK;
}

void captures(CUDAAllocator& torch) {
  must(registers_stream(torch), "PyTorch's streams are registered");
  const MempoolId_t id{0, 11};
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
  must(registers_stream(torch) == FOREBAY_TORCH_SINCE(13), "in a MemPool where captures are told apart from it");
#if FOREBAY_TORCH_SINCE(13)
  torch.markCaptureBegin(0);
  must(!registers_stream(torch), "not in a capture");
  torch.markCaptureEnd(0);
#endif
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  must(registers_stream(torch), "and again after it");
}

void annotations(CUDAAllocator& torch) {
  static int tracked = 0; // trackers stay
  torch.attachAllocatorTraceTracker([](const TraceEntry&) { tracked++; });
  record_history(torch, true, [] { return std::shared_ptr<GatheredContext>(new Stack); }, 1000, RecordContext::ALL, true, {});
  torch.recordAnnotation({{"step", "1"}});
  std::string frame = "compiled";
  torch.pushCompileContext(frame);
#if FOREBAY_TORCH_SINCE(10)
  torch.setUserMetadata("weights");
  must(torch.getUserMetadata() == "weights", "the metadata is answered");
#endif
  void* block = torch.raw_alloc(4 * MIB);
  torch.popCompileContext();
#if FOREBAY_TORCH_SINCE(12)
  must(torch.getContextForPointer(block) != nullptr, "the stack of a live block");
  must(torch.getContextForPointer(&frame) == nullptr, "and of no other");
#endif
#if FOREBAY_TORCH_SINCE(14)
  must(torch.supportsUserMetadata(), "metadata is recorded");
  torch.annotateMemory(block, "layer 3");
#endif
  torch.raw_delete(block);
  const auto info = snapshot(torch, NO_POOL, true);
  record_history(torch, false, nullptr, 1, RecordContext::NEVER, true, {});
  must(info.external_annotations.size() == 1 && info.external_annotations[0].metadata_.at("step") == "1", "the annotation");
  must(tracked >= 3, "trackers see each entry");
  bool compiled = false;
  for (const auto& entry : info.device_traces.at(0)) {
    if (entry.action_ == TraceEntry::ALLOC) {
      compiled = entry.compile_context_ == "compiled";
#if FOREBAY_TORCH_SINCE(10)
      must(entry.user_metadata_ == "weights", "with the metadata");
#endif
    }
#if FOREBAY_TORCH_SINCE(14)
    if (entry.action_ == TraceEntry::ANNOTATE) {
      must(entry.user_metadata_ == "layer 3" && entry.addr_ == reinterpret_cast<size_t>(block), "the block's annotation");
    }
#endif
  }
  must(compiled, "the compile context is recorded");
#if FOREBAY_TORCH_SINCE(14)
  must(has(info, TraceEntry::ANNOTATE), "annotateMemory makes an entry");
#endif
#if FOREBAY_TORCH_SINCE(10)
  torch.setUserMetadata("");
#endif
#if FOREBAY_TORCH_SINCE(11)
  record_history(torch, true, nullptr, 1000, RecordContext::NEVER, true, {"alloc"});
  torch.raw_delete(torch.raw_alloc(4 * MIB));
  const auto skipped = snapshot(torch, NO_POOL, true);
  record_history(torch, false, nullptr, 1, RecordContext::NEVER, true, {});
  must(!has(skipped, TraceEntry::ALLOC) && has(skipped, TraceEntry::FREE_COMPLETED), "skipped actions are not recorded");
#endif
}

} // namespace

// Prints "ok NAME" for each part; returns 0, or 1 with what failed in `error`.
extern "C" __attribute__((visibility("default"))) int call_virtuals(char* error, size_t capacity) {
  CUDAAllocator& torch = *caching::get();
  const std::pair<const char*, void (*)(CUDAAllocator&)> parts[] = {
      {"stats", stats},
      {"memory", memory},
      {"out_of_memory", out_of_memory},
      {"history", history},
      {"stacks", stacks},
      {"annotations", annotations},
      {"captures", captures},
      {"pools", pools},
      {"last_resort", last_resort},
      {"base_and_sharing", base_and_sharing},
      {"custom_allocator", custom_allocator},
  };
  torch.init(1);
  for (const auto& [name, part] : parts) {
    try {
      part(torch);
    } catch (const std::exception& failure) {
      std::snprintf(error, capacity, "%s: %s", name, failure.what());
      return 1;
    }
    std::printf("ok %s\n", name);
    std::fflush(stdout);
  }
  return 0;
}
