// PyTorch's pluggable allocator, whole: what the stock class refuses is answered from Forebay.
#pragma once

#include "books.h"
#include "direct.h"
#include "foreign.h"
#include "history.h"
#include "library.h"

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <set>

namespace forebay_torch {

namespace caching = c10::cuda::CUDACachingAllocator;

class Allocator final : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
 public:
  explicit Allocator(const std::string& library_path);

  // ---- memory (allocator.cpp)
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* ptr) override;
  void recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) override;
  void* getBaseAllocation(void* ptr, size_t* size) override;
  void init(int device_count) override;
  std::string name() override;

  // ---- figures and limits (figures.cpp)
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void emptyCache(MempoolId_t pool) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;

  // ---- what lies where, and what happened (snapshot.cpp)
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;
  void recordHistory(
      bool enabled,
      CreateContextFn recorder,
      size_t most,
      RecordContext when,
      bool clear,
      const std::vector<std::string>& skip) override;
  bool isHistoryEnabled() override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  // ---- pools (pools.cpp)
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
  void releasePool(DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override;
  void setNoSplit(DeviceIndex device, MempoolId_t id) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& expected) override;
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
  caching::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<caching::AllocatorState> state)
      override;

  // ---- other processes, other GPUs (sharing.cpp)
  caching::ShareableHandle shareIpcHandle(void* ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
  cudaError_t memcpyAsync(
      void* to,
      int to_device,
      const void* from,
      int from_device,
      size_t count,
      cudaStream_t stream,
      bool p2p_enabled) override;

  // ---- for programs without a GPU: what the functions above do once they know device and stream
  void* take(size_t size, DeviceIndex device, cudaStream_t stream);

 private:
  // One device's state that is not a figure.
  struct Device {
    Allocator* allocator = nullptr;
    DeviceIndex index = 0;
    // Its pool was used.
    std::atomic<bool> open{false};
    // Calls of beginAllocateToPool under way: only then can a block be a private pool's.
    std::atomic<int> routes{0};
    // What PyTorch may hold, other allocators' memory included; 0 before it was said. The second is what Forebay's pool was
    // told, which does not know of that memory.
    std::mutex limits;
    uint64_t allowed = 0;
    uint64_t told = 0;
  };

  Device& device(DeviceIndex index);
  DeviceIndex current() const;
  // The same, told of mappings from the first use on.
  Device& opened(DeviceIndex index) {
    const auto at = static_cast<size_t>(index);
    const bool ready = at < devices_.size() && devices_[at]->open.load(std::memory_order_acquire);
    return C10_LIKELY(ready) ? *devices_[at] : open(index);
  }
  Device& open(DeviceIndex index);
  static void mapping(void* user, int32_t device, uint32_t what, void* ptr, uint64_t bytes) noexcept;

  void* take_noted(Device& home, size_t size, cudaStream_t stream);
  Block unnoted(const Device& home, size_t size, cudaStream_t stream) const;
  // Memory for the block, which learns what pool it came from.
  void* reserve(Device& home, Block& block);
  void* after_shortage(Device& home, Block& block);
  void* last_resort(Device& home, Block& block);
  void* from_pool(Device& home, Block& block, MempoolId_t id);
  void* from_foreign(Device& home, const Block& block);
  // Tells Forebay's pool what is left of the limit.
  void share_limit(Device& home);
  // Makes room within the limit for so many bytes that are not Forebay's, as far as that is possible.
  bool admit(Device& home, size_t bytes);
  void* ask(DeviceIndex index, size_t size, cudaStream_t stream);
  [[noreturn]] void out_of_memory(Device& home, size_t size, const std::string& report);
  void enter(void* ptr, Block block);
  void tell_of(void* ptr, DeviceIndex index, size_t bytes);
  void profile(void* ptr, DeviceIndex index, int64_t change);
  Block known(void* ptr);
  void delete_noted(void* ptr);
  void give(void* ptr);
  bool current_stream(void* ptr, cudaStream_t& current);
  // Promises Forebay that a stream of PyTorch's own lives as long as the process.
  void promise(DeviceIndex device, c10::cuda::CUDAStream stream);
  forebay_pool_stats figures(DeviceIndex device);
  void snapshot_foreign(DeviceIndex device, MempoolId_t pool, std::vector<caching::SegmentInfo>& segments);

  Library library_;
  Books books_;
  History history_;
  ForeignPools foreign_;
  Direct direct_;
  std::vector<std::unique_ptr<Device>> devices_;
  // What CUDA has: no more than that in programs without a GPU.
  int gpus_ = 0;
  // The one device whose pool was used, or one of these.
  static constexpr int NONE = -1, SEVERAL = -2;
  std::atomic<int> only_{NONE};

  std::mutex mutex_;
  std::set<std::pair<DeviceIndex, cudaStream_t>> promised_;
  std::vector<caching::OutOfMemoryObserver> observers_;
  std::vector<std::pair<DeviceIndex, MempoolId_t>> last_resorts_;
  // Descriptors of live blocks that other processes were given.
  std::map<void*, std::string> shared_;
  std::atomic<bool> any_shared_{false};
  // Memory of other processes that is mapped here.
  std::map<std::string, std::weak_ptr<void>> imported_;
  std::map<DeviceIndex, forebay_resource*> resources_;
};

} // namespace forebay_torch
