#include "history.h"

namespace forebay_torch {

namespace {
thread_local std::vector<std::string> compile_contexts;
thread_local const std::shared_ptr<GatheredContext>* cause = nullptr;
} // namespace

Cause::Cause(const std::shared_ptr<GatheredContext>& stack) : before_(cause) {
  cause = &stack;
}

Cause::~Cause() {
  cause = before_;
}

std::shared_ptr<GatheredContext> Cause::current() {
  return cause == nullptr ? nullptr : *cause;
}

void History::configure(
    bool enabled,
    CreateContextFn recorder,
    size_t most,
    RecordContext when,
    bool clear,
    const std::vector<std::string>& skip) {
  TORCH_CHECK(
      when == RecordContext::NEVER || recorder != nullptr,
      "memory history with stacks was asked for, and no function that records stacks was given");
  std::unordered_set<int> skipped;
  for (const std::string& action : skip) {
    skipped.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
  }
  // Destroyed outside of the lock: contexts hold Python objects.
  std::vector<std::deque<TraceEntry>> old;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorder_.store(enabled ? recorder : nullptr);
    level_.store(enabled ? when : RecordContext::NEVER);
    most_ = std::max<size_t>(most, 1);
    skipped_ = std::move(skipped);
    if (!enabled || clear) {
      old.swap(entries_);
      annotations_.clear();
    }
    trim();
    enabled_.store(enabled);
    watched_.store(enabled || !trackers_.empty());
  }
}

std::shared_ptr<GatheredContext> History::gather(RecordContext level) const {
  if (level_.load(std::memory_order_relaxed) < level) {
    return nullptr;
  }
  CreateContextFn recorder = recorder_.load();
  return recorder == nullptr ? nullptr : recorder();
}

void History::write(const Event& event, std::shared_ptr<GatheredContext> context) {
  if (level_.load(std::memory_order_relaxed) < RecordContext::ALLOC) {
    context = nullptr;
  }
  std::optional<TraceEntry> old;
  const std::lock_guard<std::mutex> lock(mutex_);
  TraceEntry entry(
      event.action,
      event.device,
      event.addr,
      event.size,
      event.stream,
      event.pool,
      c10::getApproximateTime(),
      std::move(context),
      compile_contexts.empty() ? "N/A" : compile_contexts.back(),
      metadata_);
  for (const AllocatorTraceTracker& tracker : trackers_) {
    tracker(entry);
  }
  if (!enabled_.load(std::memory_order_relaxed) || skipped_.count(event.action) != 0) {
    return;
  }
  const auto device = static_cast<size_t>(event.device);
  if (entries_.size() <= device) {
    entries_.resize(device + 1);
  }
  if (entries_[device].size() >= most_) {
    old = std::move(entries_[device].front());
    entries_[device].pop_front();
  }
  entries_[device].push_back(std::move(entry));
}

void History::trim() {
  for (auto& entries : entries_) {
    while (entries.size() > most_) {
      entries.pop_front();
    }
  }
}

void History::attach(AllocatorTraceTracker tracker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trackers_.push_back(std::move(tracker));
  watched_.store(true);
}

void History::annotate(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& text) {
  if (!enabled()) {
    return;
  }
  AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [name, value] : text) {
    entry.recordUserMetadata(name, value);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  annotations_.push_back(std::move(entry));
  if (annotations_.size() > most_) {
    annotations_.pop_front();
  }
}

void History::set_metadata(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  metadata_ = text;
}

std::string History::metadata() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return metadata_;
}

void History::push_compile_context(std::string text) {
  compile_contexts.push_back(std::move(text));
}

void History::pop_compile_context() {
  if (!compile_contexts.empty()) {
    compile_contexts.pop_back();
  }
}

namespace {

// Nanoseconds of the fast clock to microseconds since 1970, as the file's readers want them.
template <typename Entries>
void tell_time(c10::ApproximateClockToUnixTimeConverter& clock, Entries& entries) {
  auto convert = clock.makeConverter();
  for (auto& entry : entries) {
    entry.time_.t_ = convert(entry.time_.approx_t_) / 1000;
  }
}

} // namespace

std::vector<std::vector<TraceEntry>> History::traces(size_t devices) {
  std::vector<std::vector<TraceEntry>> traces(devices);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t device = 0; device < std::min(devices, entries_.size()); ++device) {
      traces[device].assign(entries_[device].begin(), entries_[device].end());
    }
  }
  for (auto& entries : traces) {
    tell_time(clock_, entries);
  }
  return traces;
}

std::vector<AnnotationEntry> History::annotations() {
  std::vector<AnnotationEntry> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    all.assign(annotations_.begin(), annotations_.end());
  }
  tell_time(clock_, all);
  return all;
}

} // namespace forebay_torch
