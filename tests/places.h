// Where this checkout and its build lie. Functions instead of macros, so that the tests' objects are the
// same in every checkout and the compiler's cache serves them all.
#pragma once
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// SourcePath("/configs/jobs") is the absolute path of configs/jobs.
std::string SourcePath(absl::string_view below = "");
// BinaryPath("/bin/weft") is the absolute path of what this build has there.
std::string BinaryPath(absl::string_view below = "");

}  // namespace weft
