// AllowedVariables says which variables a job may set for ranks that run as another user than its
// submitter: those that tune libraries, and none by which a library opens a file, loads code or
// writes somewhere. Where ranks run as the submitter, a job may set what that user could set by
// hand. Pure.
#pragma once
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// The built-in list. A name that ends with "*" stands for all that begin so.
absl::Span<const absl::string_view> AllowedVariables();

// PermissionDenied, naming those of `env` that are neither on the list nor in `more`, which is the
// operator's (`weft agent --standing --allow-env`).
absl::Status CheckVariables(const std::map<std::string, std::string>& env,
                            absl::Span<const std::string> more);

}  // namespace weft
