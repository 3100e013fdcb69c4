#include "allocator.h"

namespace forebay_torch {

namespace {

void collect_block(void* context, const forebay_block* block) {
  static_cast<std::vector<forebay_block>*>(context)->push_back(*block);
}

MempoolId_t pool_of(const forebay_block& block) {
  return block.is_private != 0 ? MempoolId_t{block.private_first, block.private_second} : NO_POOL;
}

} // namespace

caching::SnapshotInfo Allocator::snapshot(MempoolId_t pool, bool include_traces) {
  caching::SnapshotInfo info{};
  info.config_metadata.expandable_segments = true;
  // Before this snapshot is recorded itself: the last entry is the last event.
  info.device_traces.resize(devices_.size());
  if (include_traces) {
    info.device_traces = history_.traces(devices_.size());
    info.external_annotations = history_.annotations();
  }
  for (const auto& device : devices_) {
    if (!device->opened.load(std::memory_order_acquire)) {
      continue;
    }
    std::vector<forebay_block> blocks;
    library_.check(library_.forebay_pool_snapshot(library_.pool(), device->index, &collect_block, &blocks));
    size_t end = 0, active = 0;
    SegmentInfo* segment = nullptr;
    for (const forebay_block& block : blocks) {
      const MempoolId_t id = pool_of(block);
      if (pool != NO_POOL && id != pool) {
        continue;
      }
      // A segment is a run of mapped addresses of one pool, and of one stream in a private pool, whose streams share
      // nothing.
      auto* const stream = reinterpret_cast<cudaStream_t>(block.stream);
      const bool other = segment == nullptr || segment->owner_private_pool_id != id || (id != NO_POOL && segment->stream != stream);
      if (other || end != block.address) {
        // NCCL registers segments in the order of these numbers, here that of their addresses.
        const auto number = static_cast<int32_t>(info.segments.size());
        segment = &info.segments.emplace_back();
        set_registration_counter(*segment, number);
        segment->device = device->index;
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
        if (auto known = blocks_.find(reinterpret_cast<void*>(block.address))) {
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
    snapshot_custom_pools(device->index, pool, info.segments);
    history_.record({TraceEntry::SNAPSHOT, device->index, 0, active, nullptr, pool});
  }
  return info;
}

void Allocator::snapshot_custom_pools(DeviceIndex index, MempoolId_t wanted, std::vector<SegmentInfo>& segments) {
  for (const auto& [id, pool] : custom_pools_.all(index)) {
    if (wanted != NO_POOL && id != wanted) {
      continue;
    }
    for (const auto& [start, from] : pool->segments()) {
      SegmentInfo& segment = segments.emplace_back();
      segment.device = index;
      set_registration_counter(segment, from.number);
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
          if (auto known = blocks_.find(at)) {
            entry.requested_size = known->requested;
            entry.context_when_allocated = std::move(known->context);
          }
        }
        segment.requested_size += entry.requested_size;
      }
    }
  }
}

void Allocator::record_history(
    bool enabled,
    CreateContextFn recorder,
    size_t max_entries,
    RecordContext when,
    bool clear,
    std::unordered_set<int> skip_actions) {
  history_.configure(enabled, recorder, max_entries, when, clear, std::move(skip_actions));
}

bool Allocator::isHistoryEnabled() {
  return history_.enabled();
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  history_.annotate(device, text);
}

// Only blocks that were allocated while stacks were recorded have one.
std::shared_ptr<GatheredContext> Allocator::getContextForPointer(const void* ptr) {
  const std::optional<Block> block = blocks_.find(ptr);
  return block ? block->context : nullptr;
}

void Allocator::record_block_annotation(const void* ptr, const std::string& text, TraceEntry::Action action) {
  if (!history_.active()) {
    return;
  }
  const Block block = block_at(ptr);
  history_.record_with_metadata(
      {action, block.device, reinterpret_cast<size_t>(ptr), block.requested, block.stream, block.pool}, text);
}

void Allocator::pushCompileContext(std::string& text) {
  history_.push_compile_context(text);
}

void Allocator::popCompileContext() {
  history_.pop_compile_context();
}

void Allocator::setUserMetadata(const std::string& text) {
  history_.set_user_metadata(text);
}

std::string Allocator::getUserMetadata() {
  return history_.user_metadata();
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  history_.attach(std::move(tracker));
}

} // namespace forebay_torch
