#include "memory_history.h"

namespace forebay_torch {

namespace {
thread_local std::vector<std::string> compile_contexts;
thread_local const std::shared_ptr<GatheredContext>* current_context = nullptr;
} // namespace

ScopedContext::ScopedContext(const std::shared_ptr<GatheredContext>& context) : outer_(current_context) {
  current_context = &context;
}

ScopedContext::~ScopedContext() {
  current_context = outer_;
}

std::shared_ptr<GatheredContext> ScopedContext::current() {
  return current_context == nullptr ? nullptr : *current_context;
}

void MemoryHistory::configure(
    bool enabled,
    CreateContextFn recorder,
    size_t max_entries,
    RecordContext when,
    bool clear,
    std::unordered_set<int> skip_actions) {
  TORCH_CHECK(
      when == RecordContext::NEVER || recorder != nullptr,
      "recording stacks needs a function that gathers them, and none was given");
  // Destroyed outside of the lock: contexts hold Python objects.
  std::vector<std::deque<TraceEntry>> old;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorder_.store(enabled ? recorder : nullptr);
    level_.store(enabled ? when : RecordContext::NEVER);
    max_entries_ = std::max<size_t>(max_entries, 1);
    skip_actions_ = std::move(skip_actions);
    if (!enabled || clear) {
      old.swap(entries_);
      annotations_.clear();
    }
    trim();
    enabled_.store(enabled);
    active_.store(enabled || !trackers_.empty());
  }
}

std::shared_ptr<GatheredContext> MemoryHistory::gather(RecordContext level) const {
  if (level_.load(std::memory_order_relaxed) < level) {
    return nullptr;
  }
  CreateContextFn recorder = recorder_.load();
  return recorder == nullptr ? nullptr : recorder();
}

void MemoryHistory::append(
    const Event& event,
    std::shared_ptr<GatheredContext> context,
    const std::string* user_metadata) {
  if (level_.load(std::memory_order_relaxed) < RecordContext::ALLOC) {
    context = nullptr;
  }
  std::optional<TraceEntry> old;
  const std::lock_guard<std::mutex> lock(mutex_);
  TraceEntry entry = trace_entry(
      event.action,
      event.device,
      event.addr,
      event.size,
      event.stream,
      event.pool,
      std::move(context),
      compile_contexts.empty() ? "N/A" : compile_contexts.back(),
      user_metadata != nullptr ? *user_metadata : user_metadata_);
  for (const AllocatorTraceTracker& tracker : trackers_) {
    tracker(entry);
  }
  if (!enabled_.load(std::memory_order_relaxed) || skip_actions_.count(event.action) != 0) {
    return;
  }
  const auto device = static_cast<size_t>(event.device);
  if (entries_.size() <= device) {
    entries_.resize(device + 1);
  }
  if (entries_[device].size() >= max_entries_) {
    old = std::move(entries_[device].front());
    entries_[device].pop_front();
  }
  entries_[device].push_back(std::move(entry));
}

void MemoryHistory::trim() {
  for (auto& entries : entries_) {
    while (entries.size() > max_entries_) {
      entries.pop_front();
    }
  }
}

void MemoryHistory::record_with_metadata(const Event& event, const std::string& user_metadata) {
  if (active()) {
    append(event, nullptr, &user_metadata);
  }
}

void MemoryHistory::attach(AllocatorTraceTracker tracker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trackers_.push_back(std::move(tracker));
  active_.store(true);
}

void MemoryHistory::annotate(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& text) {
  if (!enabled()) {
    return;
  }
  AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [name, value] : text) {
    entry.recordUserMetadata(name, value);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  annotations_.push_back(std::move(entry));
  if (annotations_.size() > max_entries_) {
    annotations_.pop_front();
  }
}

void MemoryHistory::set_user_metadata(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  user_metadata_ = text;
}

std::string MemoryHistory::user_metadata() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return user_metadata_;
}

void MemoryHistory::push_compile_context(std::string text) {
  compile_contexts.push_back(std::move(text));
}

void MemoryHistory::pop_compile_context() {
  if (!compile_contexts.empty()) {
    compile_contexts.pop_back();
  }
}

namespace {

// From ticks of the fast clock to microseconds since 1970, which readers of snapshots expect.
template <typename Entries>
void convert_times(c10::ApproximateClockToUnixTimeConverter& clock, Entries& entries) {
  auto convert = clock.makeConverter();
  for (auto& entry : entries) {
    entry.time_.t_ = convert(entry.time_.approx_t_) / 1000;
  }
}

} // namespace

std::vector<std::vector<TraceEntry>> MemoryHistory::traces(size_t devices) {
  std::vector<std::vector<TraceEntry>> traces(devices);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t device = 0; device < std::min(devices, entries_.size()); ++device) {
      traces[device].assign(entries_[device].begin(), entries_[device].end());
    }
  }
  for (auto& entries : traces) {
    convert_times(clock_, entries);
  }
  return traces;
}

std::vector<AnnotationEntry> MemoryHistory::annotations() {
  std::vector<AnnotationEntry> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    all.assign(annotations_.begin(), annotations_.end());
  }
  convert_times(clock_, all);
  return all;
}

} // namespace forebay_torch
