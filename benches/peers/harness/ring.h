// A bounded queue between one thread that puts and one that gets, both in batches, so that what is measured at its ends is
// not the queue.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace peers {

template <class Item, std::size_t kCapacity>
class Ring {
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  // Puts all of `items`, or none if there is no room for all.
  bool put(const Item *items, std::size_t count) {
    std::size_t at = put_.load(std::memory_order_relaxed);
    if (at + count - seen_got_ > kCapacity) {
      seen_got_ = got_.load(std::memory_order_acquire);
      if (at + count - seen_got_ > kCapacity) return false;
    }
    for (std::size_t i = 0; i < count; i++) items_[(at + i) % kCapacity] = items[i];
    put_.store(at + count, std::memory_order_release);
    return true;
  }

  // Gets up to `most` items; 0 if there are none.
  std::size_t get(Item *items, std::size_t most) {
    std::size_t at = got_.load(std::memory_order_relaxed);
    if (seen_put_ == at) seen_put_ = put_.load(std::memory_order_acquire);
    std::size_t count = std::min(most, seen_put_ - at);
    for (std::size_t i = 0; i < count; i++) items[i] = items_[(at + i) % kCapacity];
    if (count) got_.store(at + count, std::memory_order_release);
    return count;
  }

 private:
  // What each side writes is on cache lines of its own.
  alignas(128) std::atomic<std::size_t> put_{0};
  std::size_t seen_got_ = 0;
  alignas(128) std::atomic<std::size_t> got_{0};
  std::size_t seen_put_ = 0;
  alignas(128) std::array<Item, kCapacity> items_{};
};

}  // namespace peers
