#include "library.h"

#include <c10/util/Exception.h>

#include <dlfcn.h>

#include <mutex>

namespace forebay_torch {

Library::Library(const std::string& path) {
  void* opened = dlopen(path.c_str(), RTLD_NOW);
  TORCH_CHECK(opened != nullptr, path, " cannot be opened: ", dlerror());
#define FOREBAY_TORCH_FIND(name)                                       \
  name = reinterpret_cast<decltype(name)>(dlsym(opened, #name));       \
  TORCH_CHECK(                                                         \
      name != nullptr,                                                 \
      path,                                                            \
      " lacks " #name                                                  \
      ": it is older than this package; rebuild it, or let FOREBAY_LIBRARY name a newer one");
  FOREBAY_TORCH_FUNCTIONS(FOREBAY_TORCH_FIND)
#undef FOREBAY_TORCH_FIND
}

forebay_pool* Library::shared_pool() const {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  forebay_pool* made = pool_.load(std::memory_order_relaxed);
  if (made == nullptr) {
    check(forebay_pool_shared(&made));
    pool_.store(made, std::memory_order_release);
  }
  return made;
}

void Library::check(forebay_status status) const {
  TORCH_CHECK(status == FOREBAY_STATUS_OK, forebay_last_error_message());
}

} // namespace forebay_torch
