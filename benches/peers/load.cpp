// How long a process takes to load a library: its path is the argument, microseconds are printed.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>

int main(int count, char **arguments) {
  if (count != 2) return 2;
  auto start = std::chrono::steady_clock::now();
  void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  std::printf("%.1f\n", us);
  return 0;
}
