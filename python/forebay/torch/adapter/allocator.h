// PyTorch's allocator over Forebay's shared pool. What the stock pluggable class refuses is answered here.
#pragma once

#include "block_table.h"
#include "custom_pools.h"
#include "library.h"
#include "memory_history.h"
#include "statistics.h"
#include "torch_version.h"
#include "uncached.h"

#include <c10/util/Exception.h>

#include <map>
#include <set>

namespace forebay_torch {

class Allocator final : public PluggableAllocator {
 public:
  explicit Allocator(const std::string& library_path);

  // ---- the allocator as a whole (allocator.cpp)
  void init(int device_count) override;
  std::string name() override;
  void emptyCache(MempoolId_t pool) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;

  // ---- allocations (allocate.cpp)
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;

  // ---- frees (free.cpp)
  void raw_delete(void* ptr) override;
  void recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) override;
  void* getBaseAllocation(void* ptr, size_t* size) override;

  // ---- statistics (memory_stats.cpp)
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;

  // ---- limits (memory_fraction.cpp)
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;

  // ---- snapshots and history (snapshot.cpp)
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;
  void record_history(
      bool enabled,
      CreateContextFn recorder,
      size_t max_entries,
      RecordContext when,
      bool clear,
      std::unordered_set<int> skip_actions) override;
  bool isHistoryEnabled() override;
  std::shared_ptr<GatheredContext> getContextForPointer(const void* ptr) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) override;
  void record_block_annotation(const void* ptr, const std::string& text, TraceEntry::Action action) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  // ---- private pools (private_pools.cpp)
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
  void markCaptureBegin(DeviceIndex device) override;
  void markCaptureEnd(DeviceIndex device) override;
  void releasePool(DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override;
  void setNoSplit(DeviceIndex device, MempoolId_t id) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& expected) override;

  // ---- checkpoints of CUDA-graph trees (checkpoints.cpp)
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
  caching::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<caching::AllocatorState> state)
      override;

  // ---- other processes (ipc.cpp)
  caching::ShareableHandle shareIpcHandle(void* ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // ---- other GPUs (peer_access.cpp)
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
  cudaError_t memcpyAsync(
      void* to,
      int to_device,
      const void* from,
      int from_device,
      size_t count,
      cudaStream_t stream,
      bool p2p_enabled) override;

 private:
  struct Device {
    Allocator* allocator = nullptr;
    DeviceIndex index = 0;
    // Its pool was used.
    std::atomic<bool> opened{false};
    // Calls of beginAllocateToPool without their end: only then can a block be a private pool's.
    std::atomic<int> pool_routes{0};
    // Stream captures that PyTorch told of.
    std::atomic<int> captures{0};
    std::mutex limit_mutex;
    // The most that PyTorch may hold, memory of custom allocators included; 0 before setMemoryFraction.
    uint64_t fraction_bytes = 0;
    // The limit that was set on Forebay's pool, which does not know of custom allocators.
    uint64_t pool_limit = 0;
  };

  // ---- devices (allocator.cpp)
  Device& device(DeviceIndex index);
  DeviceIndex current_device() const;
  // The same as device(), observing the pool's mappings from the first call on.
  Device& opened_device(DeviceIndex index) {
    const auto at = static_cast<size_t>(index);
    const bool opened = at < devices_.size() && devices_[at]->opened.load(std::memory_order_acquire);
    return C10_LIKELY(opened) ? *devices_[at] : open_device(index);
  }
  Device& open_device(DeviceIndex index);
  static void on_mapping(void* user, int32_t device, uint32_t what, void* ptr, uint64_t bytes) noexcept;
  void register_stream(DeviceIndex device, c10::cuda::CUDAStream stream);
  void report_to_profiler(void* ptr, DeviceIndex index, int64_t change);
  forebay_pool_stats pool_stats(DeviceIndex device);

  // ---- allocations (allocate.cpp)
  void* allocate_on(size_t size, DeviceIndex index, cudaStream_t stream);
  void* allocate_recorded(Device& device, size_t size, cudaStream_t stream);
  Block new_block(const Device& device, size_t size, cudaStream_t stream) const;
  void* pool_malloc(DeviceIndex index, size_t size, cudaStream_t stream);
  void* allocate_from_forebay(Device& device, Block& block);
  void* allocate_from_custom_pool(Device& device, const Block& block);
  void* retry_or_throw(Device& device, Block& block);
  void* retry_after_reclaim(Device& device, Block& block);
  void* allocate_from_private_pool(Device& device, Block& block, MempoolId_t id);
  [[noreturn]] void throw_out_of_memory(Device& device, size_t size, const std::string& reason);
  void record_allocation(void* ptr, Block block);
  void report_allocation(void* ptr, DeviceIndex index, size_t bytes);

  // ---- frees (free.cpp)
  Block block_at(const void* ptr);
  void free_recorded(void* ptr);
  void pool_free(void* ptr);
  bool current_stream(void* ptr, cudaStream_t& current);

  // ---- limits (memory_fraction.cpp)
  void update_pool_limit(Device& device);
  bool fits_limit(Device& device, size_t bytes);

  void snapshot_custom_pools(DeviceIndex device, MempoolId_t pool, std::vector<SegmentInfo>& segments);

  Library library_;
  Statistics statistics_;
  BlockTable blocks_;
  MemoryHistory history_;
  CustomPools custom_pools_;
  UncachedBlocks uncached_;
  std::vector<std::unique_ptr<Device>> devices_;
  // As CUDA counts them: on Forebay's host driver there may be fewer than devices_.
  int gpu_count_ = 0;
  // In a child of fork() the memory belongs to the parent, and locks may be held by threads that do not exist here.
  std::atomic<bool> forked_{false};
  // The only device whose pool was used, or one of these.
  static constexpr int NONE = -1, SEVERAL = -2;
  std::atomic<int> single_device_{NONE};

  std::mutex mutex_;
  std::set<std::pair<DeviceIndex, cudaStream_t>> registered_streams_;
  std::vector<caching::OutOfMemoryObserver> out_of_memory_observers_;
  // setUseOnOOM
  std::vector<std::pair<DeviceIndex, MempoolId_t>> oom_pools_;
  // Handles of live blocks that other processes were given.
  std::map<void*, std::string> exported_;
  std::atomic<bool> any_exported_{false};
  // Memory of other processes that is mapped here, by its handle.
  std::map<std::string, std::weak_ptr<void>> imported_;
  std::map<DeviceIndex, forebay_resource*> resources_;
};

// One for the process, never destroyed: tensors outlive everything.
inline Allocator* the_allocator = nullptr;

// PyTorch's default stream is CUDA's legacy stream: no need to look into its table of streams.
inline cudaStream_t cuda_stream(c10::cuda::CUDAStream stream) {
  return stream.id() == 0 ? nullptr : stream.stream();
}

} // namespace forebay_torch
