#include "foreign_pool.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

namespace {

// PyTorch's: blocks up to SMALL share segments of 2 MiB, others below 10 MiB segments of 20 MiB.
constexpr size_t PAGE = size_t{2} << 20;
constexpr size_t LARGE_SEGMENT = size_t{20} << 20;
constexpr size_t LARGE = size_t{10} << 20;
constexpr size_t GRAIN = 512;

bool is_small(size_t bytes) {
  return bytes <= SMALL;
}

} // namespace

size_t ForeignPool::segment_bytes(size_t bytes) const {
  if (is_small(bytes)) {
    return PAGE;
  }
  return bytes < LARGE ? LARGE_SEGMENT : (bytes + PAGE - 1) / PAGE * PAGE;
}

void* ForeignPool::reuse(size_t bytes, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool small = is_small(bytes);
  const auto found = free_.lower_bound({stream, small, bytes, 0, nullptr});
  if (found == free_.end() || std::get<0>(*found) != stream || std::get<1>(*found) != small) {
    return nullptr;
  }
  char* const at = std::get<4>(*found);
  return cut(around(at)->second, at, bytes);
}

void* ForeignPool::grow(size_t bytes, cudaStream_t stream) {
  const size_t length = segment_bytes(bytes);
  auto* const at = static_cast<char*>(allocator_->raw_alloc_with_stream(length, stream));
  TORCH_CHECK_WITH(
      OutOfMemoryError, at != nullptr, "CUDA out of memory. The allocator of this MemPool gave nothing for ", std::to_string(length), " bytes");
  const std::lock_guard<std::mutex> lock(mutex_);
  Segment& segment = segments_[at];
  segment.bytes = length;
  segment.stream = stream;
  segment.small = is_small(bytes);
  segment.number = next_++;
  segment.parts[at] = {length, false};
  free_.insert(entry(segment, at, length));
  return cut(segment, at, bytes);
}

ForeignPool::Place ForeignPool::around(char* at) {
  return std::prev(segments_.upper_bound(at));
}

// pre: a free part of at least so many bytes begins at `at`.
void* ForeignPool::cut(Segment& segment, char* at, size_t bytes) {
  Part& part = segment.parts.at(at);
  free_.erase(entry(segment, at, part.bytes));
  const size_t rest = part.bytes - bytes;
  // A short rest of a large block would serve nobody.
  if (!no_split_ && (segment.small ? rest >= GRAIN : rest > SMALL)) {
    part.bytes = bytes;
    segment.parts[at + bytes] = {rest, false};
    free_.insert(entry(segment, at + bytes, rest));
  }
  part.live = true;
  return at;
}

bool ForeignPool::give(void* ptr) {
  auto* at = static_cast<char*>(ptr);
  std::vector<char*> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto place = around(at);
    auto& [start, segment] = *place;
    auto part = segment.parts.find(at);
    part->second.live = false;
    const auto next = std::next(part);
    if (next != segment.parts.end() && !next->second.live) {
      free_.erase(entry(segment, next->first, next->second.bytes));
      part->second.bytes += next->second.bytes;
      segment.parts.erase(next);
    }
    if (part != segment.parts.begin() && !std::prev(part)->second.live) {
      const auto before = std::prev(part);
      free_.erase(entry(segment, before->first, before->second.bytes));
      before->second.bytes += part->second.bytes;
      segment.parts.erase(part);
      part = before;
    }
    if (!closed_ || !segment.free()) {
      free_.insert(entry(segment, part->first, part->second.bytes));
      return false;
    }
    done.push_back(start);
    segments_.erase(place);
  }
  give_back(done);
  return true;
}

void ForeignPool::set_no_split() {
  const std::lock_guard<std::mutex> lock(mutex_);
  no_split_ = true;
}

std::vector<char*> ForeignPool::take_free() {
  std::vector<char*> done;
  for (auto place = segments_.begin(); place != segments_.end();) {
    const auto& [at, segment] = *place;
    if (!segment.free()) {
      ++place;
      continue;
    }
    free_.erase(entry(segment, at, segment.bytes));
    done.push_back(at);
    place = segments_.erase(place);
  }
  return done;
}

void ForeignPool::give_back(const std::vector<char*>& segments) {
  if (segments.empty()) {
    return;
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  for (char* at : segments) {
    allocator_->raw_delete(at);
  }
}

void ForeignPool::trim() {
  std::vector<char*> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done = take_free();
  }
  give_back(done);
}

void ForeignPool::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  trim();
}

std::map<char*, ForeignPool::Segment> ForeignPool::segments() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return segments_;
}

size_t ForeignPool::bytes() {
  size_t sum = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [at, segment] : segments_) {
    sum += segment.bytes;
  }
  return sum;
}

} // namespace forebay_torch
