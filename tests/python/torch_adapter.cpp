// Drives the adapter for PyTorch without a GPU, on Forebay's host driver: what it does once device and stream are known.
// argv[1] is libforebay.so. Prints "ok NAME" for each part; ends at the first check that fails.
#include <allocator.h>

#include <cstdio>
#include <cstdlib>

using namespace forebay_torch;
using c10::CachingAllocator::StatType;

namespace {

constexpr size_t MIB = size_t{1} << 20;
constexpr auto ALL = static_cast<size_t>(StatType::AGGREGATE);

void must(bool holds, const char* what) {
  if (!holds) {
    std::printf("FAILED %s\n", what);
    std::exit(1);
  }
}

void stats(Allocator& torch) {
  must(torch.getDeviceStats(0).reserved_bytes[ALL].current == 0, "nothing is reserved before the first use");
  void* small = torch.take(1000, 0, nullptr);
  void* large = torch.take(8 * MIB, 0, nullptr);
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

void out_of_memory(Allocator& torch) {
  torch.setMemoryFraction(0.25, 0);
  must(torch.getMemoryFraction(0) > 0.24 && torch.getMemoryFraction(0) < 0.26, "the fraction is answered");
  static size_t asked = 0; // observers stay
  torch.attachOutOfMemoryObserver([](int64_t, size_t bytes, size_t, size_t) { asked = bytes; });
  std::string text;
  try {
    torch.take(size_t{1} << 40, 0, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    text = error.what_without_backtrace();
  }
  must(text.find("CUDA out of memory") == 0, "it raises c10::OutOfMemoryError in PyTorch's words");
  must(text.find("Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of ") != std::string::npos, "and in its form");
  must(text.find("Forebay") != std::string::npos && text.find("limit") != std::string::npos, "with Forebay's report");
  must(asked == size_t{1} << 40, "the observer is told");
  must(torch.getDeviceStats(0).num_ooms == 1, "it is counted");
  try {
    torch.take(size_t{1} << 61, 0, nullptr);
    must(false, "an exabyte is refused");
  } catch (const c10::OutOfMemoryError& error) {
    text = error.what_without_backtrace();
  }
  must(text.find("Tried to allocate more than 1EB memory") != std::string::npos, "as PyTorch does");
  torch.setMemoryFraction(1.0, 0);
}

void history(Allocator& torch) {
  std::vector<TraceEntry::Action> told;
  torch.recordHistory(true, nullptr, 1000, RecordContext::NEVER, true, {});
  must(torch.isHistoryEnabled(), "history is on");
  void* block = torch.take(4 * MIB, 0, nullptr);
  const auto during = torch.snapshot(NO_POOL, true);
  torch.raw_delete(block);
  torch.emptyCache(NO_POOL);
  const auto after = torch.snapshot(NO_POOL, true);
  torch.recordHistory(false, nullptr, 1, RecordContext::NEVER, true, {});
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
  auto has = [&](TraceEntry::Action action) {
    for (const auto& entry : after.device_traces.at(0)) {
      if (entry.action_ == action) {
        return true;
      }
    }
    return false;
  };
  must(has(TraceEntry::ALLOC) && has(TraceEntry::FREE_REQUESTED) && has(TraceEntry::FREE_COMPLETED), "blocks are traced");
  must(has(TraceEntry::SEGMENT_MAP) && has(TraceEntry::SEGMENT_UNMAP), "mappings are traced");
  must(after.device_traces[0].front().time_.t_ > 1600000000000000, "times are microseconds since 1970");
}

struct Stack final : GatheredContext {};

void stacks(Allocator& torch) {
  torch.emptyCache(NO_POOL);
  torch.recordHistory(true, [] { return std::shared_ptr<GatheredContext>(new Stack); }, 1000, RecordContext::ALL, true, {});
  void* block = torch.take(4 * MIB, 0, nullptr);
  const auto during = torch.snapshot(NO_POOL, true);
  must(during.device_traces.at(0).back().action_ == TraceEntry::ALLOC, "a snapshot does not see itself");
  torch.raw_delete(block);
  torch.emptyCache(NO_POOL);
  const auto after = torch.snapshot(NO_POOL, true);
  torch.recordHistory(false, nullptr, 1, RecordContext::NEVER, true, {});
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

void* take_from(Allocator& torch, MempoolId_t id, size_t bytes) {
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* block = nullptr;
  try {
    block = torch.take(bytes, 0, nullptr);
  } catch (const c10::OutOfMemoryError&) {
  }
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  return block;
}

void foreign(Allocator& torch) {
  const MempoolId_t id{0, 9};
  const auto before = torch.getDeviceStats(0).reserved_bytes[ALL].current;
  torch.createOrIncrefPool(0, id, std::make_shared<Other>());
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
  auto segments = torch.snapshot(id, false).segments;
  must(segments.size() == 1 && segments[0].total_size == 20 * MIB, "large blocks share a segment");
  must(segments[0].owner_private_pool_id == id && !segments[0].is_expandable && segments[0].is_large, "of the pool");
  must(segments[0].blocks.size() == 4 && segments[0].allocated_size == 7 * MIB, "three of its blocks are live");
  for (size_t at : {1, 0, 2}) {
    torch.raw_delete(first[at]);
  }
  segments = torch.snapshot(id, false).segments;
  must(segments.size() == 1 && segments[0].blocks.size() == 1 && segments[0].active_size == 0, "it is kept, and one again");
  const auto again = three();
  must(again == first, "and used again in the same places");
  for (void* ptr : again) {
    torch.raw_delete(ptr);
  }
  void* small = take_from(torch, id, 1000);
  void* big = take_from(torch, id, 31 * MIB);
  segments = torch.snapshot(id, false).segments;
  must(segments.size() == 3, "small blocks have segments of their own, and very large ones");
  torch.raw_delete(small);
  torch.raw_delete(big);
  must(take_from(torch, id, 128 * MIB) == nullptr, "an allocator that gives nothing is a shortage");

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
    torch.take(16 * MIB, 0, nullptr);
  } catch (const c10::OutOfMemoryError&) {
    refused = true;
  }
  must(refused, "Forebay's own memory is limited by what others hold");
  void* fits = torch.take(3 * MIB, 0, nullptr);
  must(take_from(torch, id, 40 * MIB) == nullptr, "and so is theirs");
  torch.setUseOnOOM(0, id, true);
  void* saved = torch.take(30 * MIB, 0, nullptr);
  must(saved == big, "a pool that was named for it serves what fails elsewhere");
  torch.raw_delete(saved);
  torch.raw_delete(fits);
  torch.setMemoryFraction(1, 0);

  const MempoolId_t whole{0, 10};
  torch.createOrIncrefPool(0, whole, std::make_shared<Other>());
  torch.setNoSplit(0, whole);
  void* one = take_from(torch, whole, MIB);
  void* two = take_from(torch, whole, MIB);
  segments = torch.snapshot(whole, false).segments;
  must(segments.size() == 2 && segments[0].blocks.size() == 1, "no_split: a segment for each block");
  torch.raw_delete(one);
  torch.raw_delete(two);
}

void pools(Allocator& torch) {
  const MempoolId_t id{0, 7};
  torch.createOrIncrefPool(0, id, nullptr);
  must(torch.getPoolUseCount(0, id) == 1, "one hold");
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  must(torch.getPoolUseCount(0, id) == 2, "begin takes another");
  void* a = torch.take(2 * MIB, 0, nullptr);
  void* b = torch.take(3 * MIB, 0, nullptr);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  void* outside = torch.take(2 * MIB, 0, nullptr);
  must(torch.checkPoolLiveAllocations(0, id, {a, b}), "the pool has these two");
  must(!torch.checkPoolLiveAllocations(0, id, {a}), "and not one of them alone");
  size_t bytes = 0;
  int32_t last = -1;
  for (const auto& segment : torch.snapshot(id, false).segments) {
    must(segment.owner_private_pool_id == id, "a snapshot of a pool has its segments only");
    must(segment.registration_counter > last, "and each is numbered, for NCCL");
    last = segment.registration_counter;
    bytes += segment.allocated_size;
  }
  must(bytes == 5 * MIB, "with its blocks");

  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  auto* const elsewhere = reinterpret_cast<cudaStream_t>(2); // the thread's default stream
  void* beside = torch.take(2 * MIB, 0, elsewhere);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  for (const auto& segment : torch.snapshot(id, false).segments) {
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
  void* c = torch.take(1 * MIB, 0, nullptr);
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

void last_resort(Allocator& torch) {
  const MempoolId_t id{0, 8};
  torch.createOrIncrefPool(0, id, nullptr);
  torch.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* big = torch.take(64 * MIB, 0, nullptr);
  torch.endAllocateToPool(0, id);
  torch.releasePool(0, id);
  torch.raw_delete(big);
  torch.setMemoryFraction(0, 0);
  bool refused = false;
  try {
    torch.take(32 * MIB, 0, nullptr);
  } catch (const c10::OutOfMemoryError&) {
    refused = true;
  }
  must(refused, "a private pool's memory is not for others");
  torch.setUseOnOOM(0, id, true);
  void* saved = torch.take(32 * MIB, 0, nullptr);
  must(torch.checkPoolLiveAllocations(0, id, {saved}), "unless it was named for that");
  torch.setMemoryFraction(1, 0);
  torch.raw_delete(saved);
  torch.releasePool(0, id);
}

void base_and_sharing(Allocator& torch) {
  void* block = torch.take(6 * MIB, 0, nullptr);
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

} // namespace

int main(int, char** arguments) {
  auto* torch = new Allocator(arguments[1]);
  torch->init(1);
  const std::pair<const char*, void (*)(Allocator&)> parts[] = {
      {"stats", stats},
      {"out_of_memory", out_of_memory},
      {"history", history},
      {"stacks", stacks},
      {"pools", pools},
      {"last_resort", last_resort},
      {"base_and_sharing", base_and_sharing},
      {"foreign", foreign},
  };
  for (const auto& [name, part] : parts) {
    try {
      part(*torch);
    } catch (const std::exception& error) {
      std::printf("FAILED %s: %s\n", name, error.what());
      return 1;
    }
    std::printf("ok %s\n", name);
  }
  return 0;
}
