// As much of PyTorch's c10/util/Exception.h as the hooks meet: the same names, the same constructor, the same vtables
// in the same libraries. `Error` has its first virtual function out of line in libc10, `OutOfMemoryError` in libc10_cuda.
#pragma once
#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
  const char *function;
  const char *file;
  uint32_t line;
};

class Error : public std::exception {
 public:
  Error(SourceLocation location, std::string message);
  Error(const Error &) = delete;
  ~Error() override;
  const char *what() const noexcept override;
  const SourceLocation &location() const { return location_; }
  static int live;

 private:
  std::string message_;
  std::string backtrace_;
  SourceLocation location_;
  std::string what_;
};

class OutOfMemoryError : public Error {
  using Error::Error;

 public:
  ~OutOfMemoryError() override;
};

}  // namespace c10
