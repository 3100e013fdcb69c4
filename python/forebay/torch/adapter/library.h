// Forebay's C ABI, from the library object that the Python package has opened: one pool for both.
#pragma once

#include <forebay.h>

#include <atomic>
#include <string>

namespace forebay_torch {

#define FOREBAY_TORCH_FUNCTIONS(X)        \
  X(forebay_buffer_destroy)               \
  X(forebay_buffer_from_ipc_descriptor)   \
  X(forebay_buffer_get_info)              \
  X(forebay_ipc_export)                   \
  X(forebay_last_error_message)           \
  X(forebay_pool_base_address)            \
  X(forebay_pool_block_size_for)          \
  X(forebay_pool_get_limit)               \
  X(forebay_pool_get_stats)               \
  X(forebay_pool_malloc_for)              \
  X(forebay_pool_memory_info)             \
  X(forebay_pool_reset_peaks)             \
  X(forebay_pool_resource_create)         \
  X(forebay_pool_set_limit)               \
  X(forebay_pool_set_mapping_observer)    \
  X(forebay_pool_shared)                  \
  X(forebay_pool_snapshot)                \
  X(forebay_resource_set_peer_access)     \
  X(forebay_stream_register)              \
  X(forebay_torch_begin_allocate_to_pool) \
  X(forebay_torch_block_at)               \
  X(forebay_torch_end_allocate_to_pool)   \
  X(forebay_torch_free_while)             \
  X(forebay_torch_hold_pool)              \
  X(forebay_torch_init)                   \
  X(forebay_torch_pool_of)                \
  X(forebay_torch_pool_use_count)         \
  X(forebay_torch_record_stream)          \
  X(forebay_torch_release_pool)           \
  X(forebay_torch_reset)                  \
  X(forebay_torch_restore)

class Library {
 public:
  // Throws if the library cannot be opened, or lacks a function.
  explicit Library(const std::string& path);

#define FOREBAY_TORCH_MEMBER(name) decltype(&::name) name = nullptr;
  FOREBAY_TORCH_FUNCTIONS(FOREBAY_TORCH_MEMBER)
#undef FOREBAY_TORCH_MEMBER

  // The shared pool. Made on first use, so that the environment is read no earlier than that.
  forebay_pool* pool() const {
    forebay_pool* known = pool_.load(std::memory_order_acquire);
    return known != nullptr ? known : shared_pool();
  }

  // Throws the library's message unless `status` is OK.
  void check(forebay_status status) const;

 private:
  forebay_pool* shared_pool() const;

  mutable std::atomic<forebay_pool*> pool_{nullptr};
};

} // namespace forebay_torch
