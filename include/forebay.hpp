/*
 * Forebay for C++17 and later: a memory resource for CCCL and RMM (cuda::mr::resource). Header only; link libforebay.
 *
 *   rmm::mr::set_current_device_resource(forebay::memory_resource{});    // for all later allocations of RMM
 *
 * Needs CCCL, which comes with the CUDA toolkit and with RMM. CCCL before 3.1 (CUDA 13.0 has 3.0) has other names for
 * these calls: with it a program can call this resource, but not pass it to CCCL. Tested with CCCL 3.5 and RMM 26.10.
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

// A failed call, which changed nothing. The text is that of forebay_last_error_message().
class error : public std::runtime_error {
 public:
  error(forebay_status status, const std::string &text) : std::runtime_error(text), status_(status) {}

  forebay_status status() const noexcept { return status_; }

 private:
  forebay_status status_;
};

// Out of memory, also after the library gave back all memory that it could. The text has the pool's report.
class out_of_memory : public std::bad_alloc {
 public:
  explicit out_of_memory(const std::string &text) : text_(std::make_shared<const std::string>(text)) {}

  const char *what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_; // shared, since copying an exception must not throw
};

// Throws the exception for a status other than FOREBAY_STATUS_OK. Call it on the thread of the failed call, before its
// next failed call.
inline void check(forebay_status status) {
  if (status == FOREBAY_STATUS_OK) return;
  const std::string text = forebay_last_error_message();
  if (status == FOREBAY_STATUS_OUT_OF_MEMORY) throw out_of_memory(text);
  throw error(status, text);
}

// A reference to a pool. The pool ends with its last reference, and frees all its memory, live blocks included.
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

// Creates a pool separate from the shared one. NULL: the defaults and the FOREBAY_* variables. Throws forebay::error.
inline pool_ref make_pool(const forebay_pool_options *options = nullptr) {
  forebay_pool *made = nullptr;
  check(forebay_pool_create(options, &made));
  return pool_ref(made, forebay_pool_destroy);
}

// Memory of one device's pool, aligned to 512 bytes.
//
// Ownership   Copies are equal, cheap, and keep the pool alive. Free all memory before the last copy ends.
// Streams     Memory is allocated and freed in the order of the stream in the call, which must be alive: see
//             forebay_pool_malloc and forebay_pool_free. Uses on other streams must be ordered before the free, or
//             recorded with forebay_pool_record_use.
// Threads     Any, but not in a signal handler.
// Errors      Allocating throws forebay::out_of_memory, a std::bad_alloc, or forebay::error. Deallocating throws
//             nothing: for memory that is not live it writes a message to stderr and changes nothing.
class memory_resource {
 public:
  // Throws forebay::error if there is no usable driver or no such device.
  explicit memory_resource(int device = 0) : memory_resource(device, shared_pool()) {}

  memory_resource(int device, pool_ref pool) : pool_(std::move(pool)), device_(device) {
    std::int32_t count = 0;
    check(forebay_pool_device_count(pool_.get(), &count));
    if (device < 0 || device >= count) {
      throw error(FOREBAY_STATUS_INVALID_ARGUMENT,
                  "device " + std::to_string(device) + ": there are " + std::to_string(count) + ", counted from 0");
    }
  }

  // Written out: the versions that nvcc generates are for device code, too, where std::shared_ptr does not compile.
  memory_resource(const memory_resource &other) noexcept : pool_(other.pool_), device_(other.device_) {}
  memory_resource &operator=(const memory_resource &other) noexcept {
    pool_ = other.pool_;
    device_ = other.device_;
    return *this;
  }

  // 0 bytes give NULL. `alignment` is a power of two, at most 512 bytes.
  void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    check_alignment(alignment);
    void *block = nullptr;
    check(forebay_pool_malloc(pool_.get(), bytes, device_, stream.get(), &block));
    return block;
  }

  void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    report(forebay_pool_free(pool_.get(), block, stream.get()), block, bytes);
  }

  // Memory that no queued work uses. Slower, and the pool holds more memory while queued work is unfinished.
  void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
    check_alignment(alignment);
    void *block = nullptr;
    check(forebay_pool_malloc_ready(pool_.get(), bytes, device_, nullptr, &block));
    return block;
  }

  // Frees after all work that the device has now, without a wait on the host.
  void deallocate_sync(void *block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    report(forebay_pool_free_after_all(pool_.get(), block), block, bytes);
  }

  int device() const noexcept { return device_; }

  // The pool, for the functions of forebay.h. Never NULL.
  forebay_pool *pool() const noexcept { return pool_.get(); }

  // Equal resources may free the memory of each other.
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

  static void report(forebay_status status, void *block, std::size_t bytes) noexcept {
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
