// Failure is the one way in which a backend makes a BackendStatus that is not OK, FirstFailure
// where a device keeps one. Header only, so that both backends use it and neither depends on the
// other. Texts follow the rule for messages: thing, value found, what is allowed, next step; what
// does not fit into 251 characters is cut.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "worker/backend/device.h"

namespace weft {

// The values of absl::StatusCode that backends use; absl itself does not cross the boundary.
enum FailureCode : int {
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

[[gnu::format(printf, 2, 3)]] inline BackendStatus Failure(FailureCode code, const char* format,
                                                           ...) {
  BackendStatus status;
  status.code = code;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.text, sizeof(status.text), format, arguments);
  va_end(arguments);
  return status;
}

// Keeps the first failure of operations, which return nothing, until Device::Synchronize() takes
// it.
class FirstFailure {
 public:
  bool ok() const { return first_.ok(); }
  void Keep(const BackendStatus& status) {
    if (first_.ok()) first_ = status;
  }
  BackendStatus Take() { return std::exchange(first_, {}); }

  // Returns `fits`. Operands that do not are our own code's mistake: Internal, and the operation
  // touches nothing.
  bool Require(bool fits, const char* operation, View main_operand) {
    if (!fits) {
      Keep(Failure(kInternal, "%s: operands do not fit together; the main one is [%lld, %lld]",
                   operation, static_cast<long long>(main_operand.rows),
                   static_cast<long long>(main_operand.cols)));
    }
    return fits;
  }

 private:
  BackendStatus first_;
};

}  // namespace weft
