// PyTorch's versions: the only file that tells them apart. It gives every version from 2.9 on the names and the virtual
// functions of the newest, so that the rest of the adapter is written for one.
//
// A new minor version: compare its c10/cuda/CUDACachingAllocator.h, c10/core/CachingDeviceAllocator.h and
// torch/csrc/cuda/CUDAPluggableAllocator.h with those of the version before. A function whose signature changed gets
// the new one in the classes, and here a translation from the old one.
#pragma once

#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9, "Forebay's adapter is for PyTorch 2.9 and newer");

#define FOREBAY_TORCH_SINCE(minor) (TORCH_VERSION_MINOR >= (minor))

namespace forebay_torch {

namespace caching = c10::cuda::CUDACachingAllocator;

using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingDeviceAllocator::DeviceStats;
using caching::CUDAAllocator;

// 2.11 moved the records of the memory history to the base of all devices' allocators.
#if FOREBAY_TORCH_SINCE(11)
namespace records = c10::CachingDeviceAllocator;
#else
namespace records = caching;
#endif
using records::AllocatorTraceTracker;
using records::AnnotationEntry;
using records::BlockInfo;
using records::CreateContextFn;
using records::RecordContext;
using records::SegmentInfo;
using records::TraceEntry;

// Whether this binary is for the PyTorch that calls itself `version`, say "2.11.0+cu130".
inline bool is_for_torch(const char* version) {
  char* end = nullptr;
  const bool major = std::strtol(version, &end, 10) == TORCH_VERSION_MAJOR && *end == '.';
  return major && std::strtol(end + 1, &end, 10) == TORCH_VERSION_MINOR && *end == '.';
}

inline std::string supported_torch() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

inline TraceEntry trace_entry(
    TraceEntry::Action action,
    DeviceIndex device,
    size_t addr,
    size_t size,
    cudaStream_t stream,
    MempoolId_t pool,
    std::shared_ptr<GatheredContext> context,
    std::string compile_context,
    [[maybe_unused]] std::string user_metadata) {
  return {
      action,
      device,
      addr,
      size,
      stream,
      pool,
      c10::getApproximateTime(),
      std::move(context),
      std::move(compile_context),
#if FOREBAY_TORCH_SINCE(10)
      std::move(user_metadata),
#endif
  };
}

// The order in which NCCL registers segments. Before 2.11 it took that of the snapshot.
inline void set_registration_counter([[maybe_unused]] SegmentInfo& segment, [[maybe_unused]] int32_t number) {
#if FOREBAY_TORCH_SINCE(11)
  segment.registration_counter = number;
#endif
}

// The stock class, with what the newest version has besides.
class PluggableAllocator : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
 public:
  // Its own ways to allocate are never taken: all of them are overridden.
  PluggableAllocator() : CUDAPluggableAllocator(nullptr, nullptr) {}

  // PyTorch tells when a stream capture begins and ends; before, only beginAllocateToPool did, which may also have
  // other reasons.
  static constexpr bool TELLS_CAPTURES = FOREBAY_TORCH_SINCE(13);

  // The actions in `skip_actions` are not recorded.
  virtual void record_history(
      bool enabled,
      CreateContextFn recorder,
      size_t max_entries,
      RecordContext when,
      bool clear,
      std::unordered_set<int> skip_actions) = 0;
  // An entry about a live block in the history, with a text.
  virtual void record_block_annotation(const void* ptr, const std::string& text, TraceEntry::Action action) = 0;

#if FOREBAY_TORCH_SINCE(10)
  // PyTorch's segments that grow; a chunk of Forebay's is no unit of anything here.
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override {
    return {};
  }
#else
  virtual void setNoSplit(DeviceIndex device, MempoolId_t id) = 0;
  virtual void setUserMetadata(const std::string& text) = 0;
  virtual std::string getUserMetadata() = 0;
#endif

#if FOREBAY_TORCH_SINCE(11)
  void recordHistory(
      bool enabled,
      CreateContextFn recorder,
      size_t max_entries,
      RecordContext when,
      bool clear,
      const std::vector<std::string>& skip_actions) override {
    std::unordered_set<int> skip;
    for (const std::string& action : skip_actions) {
      skip.insert(records::parseTraceEntryAction(action));
    }
    record_history(enabled, recorder, max_entries, when, clear, std::move(skip));
  }
#else
  virtual caching::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) = 0;
  caching::SnapshotInfo snapshot(MempoolId_t id) override {
    return snapshot(id, true);
  }

  virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) = 0;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, CUDAAllocator* allocator) override {
    // Whoever made the MemPool keeps its allocator.
    createOrIncrefPool(device, id, std::shared_ptr<CUDAAllocator>(allocator, [](CUDAAllocator*) {}));
  }

  virtual void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) = 0;
  void setUseOnOOM(DeviceIndex device, MempoolId_t id) override {
    setUseOnOOM(device, id, true);
  }

  void recordHistory(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear) override {
    record_history(enabled, recorder, max_entries, when, clear, {});
  }
#endif

#if FOREBAY_TORCH_SINCE(12)
  // Called where the policy throw_on_cudamalloc_oom of PYTORCH_CUDA_ALLOC_CONF rejects a request. Forebay has no such
  // policy.
  void attachOomRejectionObserver(caching::OomRejectionObserver) override {}
#else
  virtual std::shared_ptr<GatheredContext> getContextForPointer(const void* ptr) = 0;
#endif

#if !FOREBAY_TORCH_SINCE(13)
  virtual void markCaptureBegin(DeviceIndex device) = 0;
  virtual void markCaptureEnd(DeviceIndex device) = 0;
#endif

#if FOREBAY_TORCH_SINCE(14)
  bool supportsUserMetadata() override {
    return true;
  }
  void annotateMemory(const void* ptr, const std::string& text) override {
    record_block_annotation(ptr, text, TraceEntry::ANNOTATE);
  }
#endif
};

} // namespace forebay_torch
