// How every verb ends: one place turns a status into a sentence and an exit code.
#include <algorithm>
#include <iostream>

#include "launcher/commands/commands.h"

namespace weft {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kExitNothingFits;
    case absl::StatusCode::kUnavailable:
      return kExitTryAgain;
    default:
      return kExitFailed;
  }
}

int Fail(const absl::Status& status) {
  std::cerr << "weft: " << status.message() << "\n";
  return ExitCodeOf(status);
}

int FailJobFile(const absl::Status& status) {
  const std::string text(status.message());
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  std::cerr << text << "\n";
  std::cerr << "weft: " << lines << (lines == 1 ? " error" : " errors")
            << "; nothing was started\n";
  return kExitUsage;
}

}  // namespace weft
