// What every contender is. A contender is a struct of static functions, so that the loops call the allocator directly and
// pay the same for it; each is compiled into a program of its own, which includes the contender's header and no other.
//
//   name                          as run.py knows it
//   kDevice                       true: memory of the device, false: pinned memory of the host
//   open()                        makes the pool; the context exists
//   fresh(room)                   gives everything back and forgets all peaks; nothing is live
//   meet(stream), part(stream)    a stream is about to be used, and will not be used any more
//   take(bytes, stream)           allocates, or throws
//   give(p, bytes, stream)        frees on the stream of the allocation, or throws
//   give_elsewhere(p, bytes, from, on)
//                                 frees memory of `from` behind what `on` has queued, which already waits for `from`
//   physical_peak()               most memory of the system held since fresh(), in bytes, where the contender can tell
//   kNoPhysical                   why it cannot
#pragma once

#include <cstdint>
#include <optional>

namespace peers {

enum class Room {
  kPreset,  // as its own makers measure it: a contender that wants its memory named beforehand takes half of the device
  kGrows,   // starts empty, takes what it needs
};

using Physical = std::optional<std::uint64_t>;

}  // namespace peers
