#include "custom_pool.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

namespace {

// As PyTorch's own cache: blocks up to MAX_SMALL share segments of 2 MiB, others below 10 MiB segments of 20 MiB.
constexpr size_t PAGE = size_t{2} << 20;
constexpr size_t LARGE_SEGMENT = size_t{20} << 20;
constexpr size_t LARGE = size_t{10} << 20;
constexpr size_t MIN_SMALL_REST = 512;

bool is_small(size_t bytes) {
  return bytes <= MAX_SMALL;
}

} // namespace

size_t CustomPool::segment_bytes(size_t bytes) const {
  if (is_small(bytes)) {
    return PAGE;
  }
  return bytes < LARGE ? LARGE_SEGMENT : (bytes + PAGE - 1) / PAGE * PAGE;
}

void* CustomPool::reuse(size_t bytes, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool small = is_small(bytes);
  const auto found = free_.lower_bound({stream, small, bytes, 0, nullptr});
  if (found == free_.end() || std::get<0>(*found) != stream || std::get<1>(*found) != small) {
    return nullptr;
  }
  char* const at = std::get<4>(*found);
  return split(segment_of(at)->second, at, bytes);
}

void* CustomPool::grow(size_t bytes, cudaStream_t stream) {
  const size_t length = segment_bytes(bytes);
  auto* const at = static_cast<char*>(allocator_->raw_alloc_with_stream(length, stream));
  TORCH_CHECK_WITH(
      OutOfMemoryError, at != nullptr, "CUDA out of memory. The allocator of this MemPool has no memory for ", std::to_string(length), " bytes");
  const std::lock_guard<std::mutex> lock(mutex_);
  Segment& segment = segments_[at];
  segment.bytes = length;
  segment.stream = stream;
  segment.small = is_small(bytes);
  segment.number = next_number_++;
  segment.parts[at] = {length, false};
  free_.insert(free_key(segment, at, length));
  return split(segment, at, bytes);
}

CustomPool::SegmentIterator CustomPool::segment_of(char* at) {
  return std::prev(segments_.upper_bound(at));
}

// pre: a free part of at least `bytes` begins at `at`.
void* CustomPool::split(Segment& segment, char* at, size_t bytes) {
  Part& part = segment.parts.at(at);
  free_.erase(free_key(segment, at, part.bytes));
  const size_t rest = part.bytes - bytes;
  // The rest of a large block would be too small for another large one.
  if (!no_split_ && (segment.small ? rest >= MIN_SMALL_REST : rest > MAX_SMALL)) {
    part.bytes = bytes;
    segment.parts[at + bytes] = {rest, false};
    free_.insert(free_key(segment, at + bytes, rest));
  }
  part.live = true;
  return at;
}

bool CustomPool::free(void* ptr) {
  auto* at = static_cast<char*>(ptr);
  std::vector<char*> returned;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = segment_of(at);
    auto& [start, segment] = *found;
    auto part = segment.parts.find(at);
    part->second.live = false;
    const auto next = std::next(part);
    if (next != segment.parts.end() && !next->second.live) {
      free_.erase(free_key(segment, next->first, next->second.bytes));
      part->second.bytes += next->second.bytes;
      segment.parts.erase(next);
    }
    if (part != segment.parts.begin() && !std::prev(part)->second.live) {
      const auto before = std::prev(part);
      free_.erase(free_key(segment, before->first, before->second.bytes));
      before->second.bytes += part->second.bytes;
      segment.parts.erase(part);
      part = before;
    }
    if (!closed_ || !segment.is_free()) {
      free_.insert(free_key(segment, part->first, part->second.bytes));
      return false;
    }
    returned.push_back(start);
    segments_.erase(found);
  }
  return_segments(returned);
  return true;
}

void CustomPool::set_no_split() {
  const std::lock_guard<std::mutex> lock(mutex_);
  no_split_ = true;
}

std::vector<char*> CustomPool::remove_free() {
  std::vector<char*> returned;
  for (auto found = segments_.begin(); found != segments_.end();) {
    const auto& [at, segment] = *found;
    if (!segment.is_free()) {
      ++found;
      continue;
    }
    free_.erase(free_key(segment, at, segment.bytes));
    returned.push_back(at);
    found = segments_.erase(found);
  }
  return returned;
}

void CustomPool::return_segments(const std::vector<char*>& segments) {
  if (segments.empty()) {
    return;
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  for (char* at : segments) {
    allocator_->raw_delete(at);
  }
}

void CustomPool::trim() {
  std::vector<char*> returned;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    returned = remove_free();
  }
  return_segments(returned);
}

void CustomPool::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  trim();
}

std::map<char*, CustomPool::Segment> CustomPool::segments() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return segments_;
}

size_t CustomPool::bytes() {
  size_t sum = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [at, segment] : segments_) {
    sum += segment.bytes;
  }
  return sum;
}

} // namespace forebay_torch
