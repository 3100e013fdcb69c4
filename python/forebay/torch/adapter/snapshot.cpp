#include "allocator.h"

namespace forebay_torch {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

namespace {

// pre: the structs of blocks are of the layout that this was compiled for; `forebay_pool_snapshot` has its version in each.
void collect(void* context, const forebay_block* block) {
  static_cast<std::vector<forebay_block>*>(context)->push_back(*block);
}

MempoolId_t pool_of(const forebay_block& block) {
  return block.is_private != 0 ? MempoolId_t{block.private_first, block.private_second} : NO_POOL;
}

} // namespace

caching::SnapshotInfo Allocator::snapshot(MempoolId_t pool, bool include_traces) {
  caching::SnapshotInfo info{};
  info.config_metadata.expandable_segments = true;
  // Before the note of this snapshot: the last entry is what happened last.
  info.device_traces.resize(devices_.size());
  if (include_traces) {
    info.device_traces = history_.traces(devices_.size());
    info.external_annotations = history_.annotations();
  }
  for (const auto& home : devices_) {
    if (!home->open.load(std::memory_order_acquire)) {
      continue;
    }
    std::vector<forebay_block> blocks;
    library_.check(library_.forebay_pool_snapshot(library_.pool(), home->index, &collect, &blocks));
    size_t end = 0, active = 0;
    SegmentInfo* segment = nullptr;
    for (const forebay_block& block : blocks) {
      const MempoolId_t id = pool_of(block);
      if (pool != NO_POOL && id != pool) {
        continue;
      }
      // A segment is a run of mapped addresses that belongs to one pool, and to one stream where the pool is private:
      // each stream's part keeps its memory.
      auto* const stream = reinterpret_cast<void*>(block.stream);
      const bool other = segment == nullptr || segment->owner_private_pool_id != id || (id != NO_POOL && segment->stream != stream);
      if (other || end != block.address) {
        // NCCL registers segments in the order of these numbers: here that of their addresses.
        const auto number = static_cast<int32_t>(info.segments.size());
        segment = &info.segments.emplace_back();
        segment->device = home->index;
        segment->registration_counter = number;
        segment->address = block.address;
        segment->stream = stream;
        segment->is_large = true;
        segment->is_expandable = true;
        segment->owner_private_pool_id = id;
      }
      end = block.address + block.bytes;
      BlockInfo entry;
      entry.size = block.bytes;
      entry.allocated = block.state == FOREBAY_BLOCK_STATE_LIVE;
      entry.active = block.state != FOREBAY_BLOCK_STATE_FREE;
      entry.requested_size = block.requested;
      if (entry.allocated && block.framework == FOREBAY_FRAMEWORK_TORCH) {
        if (auto known = books_.find(reinterpret_cast<void*>(block.address))) {
          entry.context_when_allocated = std::move(known->context);
        }
      }
      segment->total_size += entry.size;
      segment->requested_size += entry.requested_size;
      segment->allocated_size += entry.allocated ? entry.size : 0;
      segment->active_size += entry.active ? entry.size : 0;
      active += entry.active ? entry.size : 0;
      segment->blocks.push_back(std::move(entry));
    }
    snapshot_foreign(home->index, pool, info.segments);
    history_.record({TraceEntry::SNAPSHOT, home->index, 0, active, nullptr, pool});
  }
  return info;
}

void Allocator::snapshot_foreign(DeviceIndex index, MempoolId_t wanted, std::vector<SegmentInfo>& segments) {
  for (const auto& [id, pool] : foreign_.all(index)) {
    if (wanted != NO_POOL && id != wanted) {
      continue;
    }
    for (const auto& [start, from] : pool->segments()) {
      SegmentInfo& segment = segments.emplace_back();
      segment.device = index;
      segment.registration_counter = from.number;
      segment.address = reinterpret_cast<size_t>(start);
      segment.stream = from.stream;
      segment.is_large = !from.small;
      segment.owner_private_pool_id = id;
      segment.total_size = from.bytes;
      for (const auto& [at, part] : from.parts) {
        BlockInfo& entry = segment.blocks.emplace_back();
        entry.size = part.bytes;
        entry.allocated = entry.active = part.live;
        if (part.live) {
          segment.allocated_size += part.bytes;
          segment.active_size += part.bytes;
          if (auto known = books_.find(at)) {
            entry.requested_size = known->requested;
            entry.context_when_allocated = std::move(known->context);
          }
        }
        segment.requested_size += entry.requested_size;
      }
    }
  }
}

void Allocator::recordHistory(
    bool enabled,
    CreateContextFn recorder,
    size_t most,
    RecordContext when,
    bool clear,
    const std::vector<std::string>& skip) {
  history_.configure(enabled, recorder, most, when, clear, skip);
}

bool Allocator::isHistoryEnabled() {
  return history_.enabled();
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  history_.annotate(device, text);
}

void Allocator::pushCompileContext(std::string& text) {
  history_.push_compile_context(text);
}

void Allocator::popCompileContext() {
  history_.pop_compile_context();
}

void Allocator::setUserMetadata(const std::string& text) {
  history_.set_metadata(text);
}

std::string Allocator::getUserMetadata() {
  return history_.metadata();
}

void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observers_.push_back(std::move(observer));
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  history_.attach(std::move(tracker));
}

} // namespace forebay_torch
