// Which core a thread runs on. Two threads on the two halves of one physical core would slow each other down and look
// like an allocator that does not scale, so every physical core is used once before any is used twice.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace peers {

struct Cores {
  std::vector<int> order;    // those this process may use, first one of each physical core
  std::size_t physical = 0;  // how many of them share nothing
};

inline Cores find_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  Cores cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  std::set<std::string> seen;
  std::vector<int> siblings;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string shared;
    if (!std::getline(file, shared)) shared = std::to_string(cpu);
    (seen.insert(shared).second ? cores.order : siblings).push_back(cpu);
  }
  cores.physical = cores.order.size();
  if (siblings.empty()) {
    // A virtual machine may not tell; where it does not, neighbours are the likely siblings.
    std::stable_partition(cores.order.begin(), cores.order.end(), [](int cpu) { return cpu % 2 == 0; });
  }
  cores.order.insert(cores.order.end(), siblings.begin(), siblings.end());
  return cores;
}

// Found before anything is pinned, since a pinned process may use one core only.
inline const Cores &cores() {
  static const Cores found = find_cores();
  return found;
}

// Keeps the calling thread on the core with this number in the order, counted round. Without leave it runs anywhere.
inline void pin(std::size_t number) {
  if (cores().order.empty()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores().order[number % cores().order.size()], &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace peers
