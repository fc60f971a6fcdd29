// How every verb ends: one place turns a status into a sentence and an exit code.
#include <algorithm>
#include <iostream>

#include "data/unicode.h"
#include "launcher/commands/commands.h"
#include "launcher/yaml_tree.h"

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
  std::cerr << "weft: " << Printable(status.message()) << "\n";
  return ExitCodeOf(status);
}

int FailJobFile(const absl::Status& status) {
  const std::string text = Printable(status.message());
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  const bool more = lines > static_cast<int64_t>(Issues::kMostShown);
  std::cerr << text << "\n";
  std::cerr << "weft: " << (more ? "more than " : "") << lines - (more ? 1 : 0)
            << (lines == 1 ? " error" : " errors") << "; nothing was started\n";
  return kExitUsage;
}

}  // namespace weft
