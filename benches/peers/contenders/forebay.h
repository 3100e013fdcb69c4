// Forebay, through its C ABI: a pool of its own.
#pragma once

#include "forebay_pool.h"

namespace peers {

struct Contender : ForebayPool {
  static constexpr bool kDevice = true;
  static void open() { must(forebay_pool_create(nullptr, &pool), "forebay_pool_create"); }
};

}  // namespace peers
