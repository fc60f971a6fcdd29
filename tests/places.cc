#include "tests/places.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string SourcePath(absl::string_view below) {
  return absl::StrCat(WEFT_SOURCE_DIR, below);
}

std::string BinaryPath(absl::string_view below) {
  return absl::StrCat(WEFT_BINARY_DIR, below);
}

}  // namespace weft
