// libc10.so, and with CUDA_PART libc10_cuda.so, as far as c10.h goes.
#include "c10.h"

namespace c10 {
#ifdef CUDA_PART
OutOfMemoryError::~OutOfMemoryError() = default;
#else
int Error::live = 0;
Error::Error(SourceLocation location, std::string message)
    : message_(std::move(message)), location_(location), what_(message_ + "\n" + location.file) {
  live++;
}
Error::~Error() { live--; }
const char *Error::what() const noexcept { return what_.c_str(); }
#endif
}  // namespace c10
