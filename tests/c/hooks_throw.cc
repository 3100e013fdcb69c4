// In a program with a C++ runtime, but without PyTorch's exception classes, a hook that fails throws std::runtime_error
// or std::bad_alloc, so that a framework that does not check for NULL gets an error and not address 0. CuPy's hook
// leaves a Python exception instead, so without Python it answers NULL here, too.
#include <forebay.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

static void must_throw(const char *what, const std::function<void *()> &call) {
  std::string text;
  try {
    if (call() != nullptr) text = "an address";
    else text = "NULL";
  } catch (const std::exception &error) {
    bool right = dynamic_cast<const std::runtime_error *>(&error) || dynamic_cast<const std::bad_alloc *>(&error);
    if (right && std::string(error.what()).find(what) != std::string::npos) return;
    text = std::string("an exception with the text ") + error.what();
  }
  std::fprintf(stderr, "wanted an exception with '%s' in it, got %s\n", what, text.c_str());
  std::exit(EXIT_FAILURE);
}

int main() {
  const size_t huge = size_t(1) << 50;
  for (int round = 0; round < 100; round++) {  // no leak, no lock left held by an unwinding call
    must_throw("live", [=] { return forebay_torch_malloc(static_cast<ptrdiff_t>(huge), 0, nullptr); });
  }
  must_throw("device", [] { return forebay_torch_malloc(512, -1, nullptr); });

  must_throw("live", [=] { return forebay_cupy_malloc(nullptr, huge, 0); });
  void *block = forebay_torch_malloc(512, 0, nullptr);
  if (block == nullptr) return EXIT_FAILURE;
  forebay_torch_free(block, 512, 0, nullptr);
  std::printf("hooks with C++: right\n");
  return EXIT_SUCCESS;
}
