// A test finds this checkout and its build by these functions. Macros would make its objects
// another checkout's own, and the compiler's cache would serve one alone.
#pragma once
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// SourcePath("/configs/jobs") is the absolute path of configs/jobs.
std::string SourcePath(absl::string_view below = "");
// BinaryPath("/bin/weft") is the absolute path of what this build has there.
std::string BinaryPath(absl::string_view below = "");

}  // namespace weft
