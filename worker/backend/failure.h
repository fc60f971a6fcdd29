// Failure: the one way a backend makes a BackendStatus that is not OK. Header only, so that both
// backends use it and neither depends on the other. Texts follow the rule for messages: thing,
// value found, what is allowed, next step; what does not fit into 251 characters is cut.
#pragma once
#include <cstdarg>
#include <cstdio>

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

}  // namespace weft
