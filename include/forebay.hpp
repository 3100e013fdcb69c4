/*
 * Forebay for C++17 and later: a memory resource as CCCL and RMM know them (cuda::mr::resource). Header only; links libforebay.
 *
 *   rmm::mr::set_current_device_resource(forebay::memory_resource{});    // all that RMM gives out, from here on
 *
 * Needs CCCL, which comes with the CUDA toolkit and with RMM. Before 3.1 (CUDA 13.0 has 3.0) CCCL's resources had other names for these
 * calls: there this one can be called, and not handed to CCCL. Used with CCCL 3.5 and RMM 26.10.
 */

#ifndef FOREBAY_HPP
#define FOREBAY_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include "forebay.h"

namespace forebay {

// A call that failed, and changed nothing. What it says is forebay_last_error_message().
class error : public std::runtime_error {
 public:
  error(forebay_status status, const std::string &text) : std::runtime_error(text), status_(status) {}

  forebay_status status() const noexcept { return status_; }

 private:
  forebay_status status_;
};

// There is no memory, after everything that could be given back was. The text has the pool's report.
class out_of_memory : public std::bad_alloc {
 public:
  explicit out_of_memory(const std::string &text) : text_(std::make_shared<const std::string>(text)) {}

  const char *what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_; // an exception is copied, which must not throw
};

// Throws what a status says, unless it is FOREBAY_STATUS_OK. On the thread that made the call, before its next one.
inline void check(forebay_status status) {
  if (status == FOREBAY_STATUS_OK) return;
  const std::string text = forebay_last_error_message();
  if (status == FOREBAY_STATUS_OUT_OF_MEMORY) throw out_of_memory(text);
  throw error(status, text);
}

// A pool and who uses it: it ends with the last of them. What is then still live goes with it.
using pool_ref = std::shared_ptr<forebay_pool>;

// The shared pool of the process, which never ends. Throws forebay::error where there is no usable driver.
inline pool_ref shared_pool() {
  static forebay_pool *const pool = [] {
    forebay_pool *made = nullptr;
    check(forebay_pool_shared(&made));
    return made;
  }();
  return pool_ref(pool, [](forebay_pool *) {});
}

// A pool of your own. NULL: the options that the FOREBAY_* variables say. Throws forebay::error.
inline pool_ref make_pool(const forebay_pool_options *options = nullptr) {
  forebay_pool *made = nullptr;
  check(forebay_pool_create(options, &made));
  return pool_ref(made, forebay_pool_destroy);
}

// Memory of one device's pool, aligned to 512 bytes.
//
// Ownership   Copies are equal, cheap, and keep the pool alive; memory must go back before the last of them ends.
// Streams     Memory is given, and taken back, in the order of the stream that is named, as forebay_pool_malloc and
//             forebay_pool_free say. It must be alive in the call. Uses on other streams must come before, or be told by
//             forebay_pool_record_use.
// Threads     Any, but not in a signal handler.
// Errors      Allocating throws forebay::out_of_memory, a std::bad_alloc, or forebay::error. Deallocating does not fail for C++: what is
//             not live is told to the standard error stream, and changes nothing.
class memory_resource {
 public:
  // Throws forebay::error: there is no usable driver, or no such device.
  explicit memory_resource(int device = 0) : memory_resource(device, shared_pool()) {}

  memory_resource(int device, pool_ref pool) : pool_(std::move(pool)), device_(device) {
    std::int32_t count = 0;
    check(forebay_pool_device_count(pool_.get(), &count));
    if (device < 0 || device >= count) {
      throw error(FOREBAY_STATUS_INVALID_ARGUMENT,
                  "device " + std::to_string(device) + ": there are " + std::to_string(count) + ", counted from 0");
    }
  }

  // Written out: what nvcc makes by itself is for the device too, where a pool's count cannot be.
  memory_resource(const memory_resource &other) noexcept : pool_(other.pool_), device_(other.device_) {}
  memory_resource &operator=(const memory_resource &other) noexcept {
    pool_ = other.pool_;
    device_ = other.device_;
    return *this;
  }

  // 0 bytes give NULL. At most 512 bytes of alignment, a power of two.
  void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    check_alignment(alignment);
    void *block = nullptr;
    check(forebay_pool_malloc(pool_.get(), bytes, device_, stream.get(), &block));
    return block;
  }

  void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    told(forebay_pool_free(pool_.get(), block, stream.get()), block, bytes);
  }

  // Memory that nothing on any stream uses any more. Slower, and holds more while the device is behind.
  void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
    check_alignment(alignment);
    void *block = nullptr;
    check(forebay_pool_malloc_ready(pool_.get(), bytes, device_, nullptr, &block));
    return block;
  }

  // Whatever the device has to do with the memory comes first; nobody waits for it.
  void deallocate_sync(void *block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    told(forebay_pool_free_after_all(pool_.get(), block), block, bytes);
  }

  int device() const noexcept { return device_; }

  // For the calls of forebay.h. Never NULL.
  forebay_pool *pool() const noexcept { return pool_.get(); }

  // Whether each may take back what the other gave.
  friend bool operator==(const memory_resource &a, const memory_resource &b) noexcept {
    return a.pool_.get() == b.pool_.get() && a.device_ == b.device_;
  }
  friend bool operator!=(const memory_resource &a, const memory_resource &b) noexcept { return !(a == b); }

#if !defined(CCCL_VERSION) || CCCL_VERSION >= 3001000
  friend constexpr void get_property(const memory_resource &, cuda::mr::device_accessible) noexcept {}
#endif

 private:
  static constexpr std::size_t default_alignment = 256, largest_alignment = 512;

  static void check_alignment(std::size_t alignment) {
    if (alignment == 0 || alignment > largest_alignment || (alignment & (alignment - 1)) != 0) {
      throw error(FOREBAY_STATUS_INVALID_ARGUMENT,
                  "alignment is " + std::to_string(alignment) + ": it must be a power of two, at most 512");
    }
  }

  static void told(forebay_status status, void *block, std::size_t bytes) noexcept {
    if (status == FOREBAY_STATUS_FORKED) return; // the memory is the parent's
    if (status != FOREBAY_STATUS_OK) {
      std::fprintf(stderr, "forebay: %zu bytes at %p could not be given back: %s\n", bytes, block,
                   forebay_last_error_message());
    }
  }

  pool_ref pool_;
  int device_;
};

} // namespace forebay

#endif
