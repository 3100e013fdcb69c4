// The trace of torch.cuda.memory._record_memory_history, and those who want to be told of each entry.
#pragma once

#include "books.h"

#include <atomic>
#include <deque>
#include <string>
#include <unordered_set>

namespace forebay_torch {

using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;

// What the calling thread is doing while one of these lives: mappings that it causes are recorded with this stack.
class Cause {
 public:
  explicit Cause(const std::shared_ptr<GatheredContext>& stack);
  ~Cause();
  Cause(const Cause&) = delete;
  Cause& operator=(const Cause&) = delete;
  static std::shared_ptr<GatheredContext> current();

 private:
  const std::shared_ptr<GatheredContext>* before_;
};

struct Event {
  TraceEntry::Action action = TraceEntry::ALLOC;
  DeviceIndex device = 0;
  size_t addr = 0;
  size_t size = 0;
  cudaStream_t stream = nullptr;
  MempoolId_t pool = NO_POOL;
};

// Any thread, also under Forebay's own locks: nothing here calls the library.
class History {
 public:
  void configure(
      bool enabled,
      CreateContextFn recorder,
      size_t most,
      RecordContext when,
      bool clear,
      const std::vector<std::string>& skip);
  bool enabled() const {
    return enabled_.load(std::memory_order_relaxed);
  }
  // Whether anybody wants to know of what happens now.
  bool watched() const {
    return watched_.load(std::memory_order_relaxed);
  }

  // The Python stack, where one is wanted at this level. Takes the interpreter's locks.
  std::shared_ptr<GatheredContext> gather(RecordContext level) const;

  void record(const Event& event, std::shared_ptr<GatheredContext> context = nullptr) {
    if (watched()) {
      write(event, std::move(context));
    }
  }

  void attach(AllocatorTraceTracker tracker);
  void annotate(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& text);
  void set_metadata(const std::string& text);
  std::string metadata();
  void push_compile_context(std::string text);
  void pop_compile_context();

  // Entries by device, and annotations, with the time of day.
  std::vector<std::vector<TraceEntry>> traces(size_t devices);
  std::vector<AnnotationEntry> annotations();

 private:
  void write(const Event& event, std::shared_ptr<GatheredContext> context);
  void trim();

  std::atomic<bool> enabled_{false};
  // Enabled, or somebody is to be told.
  std::atomic<bool> watched_{false};
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> level_{RecordContext::NEVER};
  // Held while trackers run, as PyTorch's own allocator does.
  std::mutex mutex_;
  size_t most_ = 1;
  std::vector<std::deque<TraceEntry>> entries_;
  std::deque<AnnotationEntry> annotations_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::unordered_set<int> skipped_;
  std::string metadata_;
  // From the start: two points in time far apart tell the fast clock's rate.
  c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace forebay_torch
