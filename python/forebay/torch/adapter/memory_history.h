// The history of torch.cuda.memory._record_memory_history, and the trackers that PyTorch attaches to it.
#pragma once

#include "block_table.h"

#include <atomic>
#include <deque>
#include <string>
#include <unordered_set>

namespace forebay_torch {

// While it lives, mappings that the calling thread causes are recorded with this stack.
class ScopedContext {
 public:
  explicit ScopedContext(const std::shared_ptr<GatheredContext>& context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  static std::shared_ptr<GatheredContext> current();

 private:
  const std::shared_ptr<GatheredContext>* outer_;
};

struct Event {
  TraceEntry::Action action = TraceEntry::ALLOC;
  DeviceIndex device = 0;
  size_t addr = 0;
  size_t size = 0;
  cudaStream_t stream = nullptr;
  MempoolId_t pool = NO_POOL;
};

// Thread-safe. It is called under Forebay's locks too, so it must not call the library.
class MemoryHistory {
 public:
  void configure(
      bool enabled,
      CreateContextFn recorder,
      size_t max_entries,
      RecordContext when,
      bool clear,
      std::unordered_set<int> skip_actions);
  bool enabled() const {
    return enabled_.load(std::memory_order_relaxed);
  }
  // Enabled, or with a tracker.
  bool active() const {
    return active_.load(std::memory_order_relaxed);
  }

  // The Python stack if stacks are recorded at this level, else null. Takes the interpreter's lock.
  std::shared_ptr<GatheredContext> gather(RecordContext level) const;

  void record(const Event& event, std::shared_ptr<GatheredContext> context = nullptr) {
    if (active()) {
      append(event, std::move(context), nullptr);
    }
  }

  // With `user_metadata` instead of the one that is set.
  void record_with_metadata(const Event& event, const std::string& user_metadata);
  void attach(AllocatorTraceTracker tracker);
  void annotate(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& text);
  void set_user_metadata(const std::string& text);
  std::string user_metadata();
  void push_compile_context(std::string text);
  void pop_compile_context();

  // With times in microseconds since 1970.
  std::vector<std::vector<TraceEntry>> traces(size_t devices);
  std::vector<AnnotationEntry> annotations();

 private:
  void append(const Event& event, std::shared_ptr<GatheredContext> context, const std::string* user_metadata);
  void trim();

  std::atomic<bool> enabled_{false};
  std::atomic<bool> active_{false};
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> level_{RecordContext::NEVER};
  // Held while trackers run, as in PyTorch's own allocator.
  std::mutex mutex_;
  size_t max_entries_ = 1;
  std::vector<std::deque<TraceEntry>> entries_;
  std::deque<AnnotationEntry> annotations_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::unordered_set<int> skip_actions_;
  std::string user_metadata_;
  // Made at the start: two points in time far apart give the fast clock's rate.
  c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace forebay_torch
