// SpecIssue: one broken rule of what was asked, before a file and a line are known. The checks of
// job_spec, model, cluster and layout all return these, so that every broken rule can be shown at
// once and each points at its key. Pure values.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {

// `key` is the dotted job.yaml key; `message` says the value found, what is allowed and the next
// step, without the key: "3 does not divide n_head 4; use 1, 2 or 4".
struct SpecIssue {
  std::string key;
  std::string message;

  friend bool operator==(const SpecIssue&, const SpecIssue&) = default;
};

// OK if there is none, else InvalidArgument "key: message" of the first.
inline absl::Status FirstIssue(const std::vector<SpecIssue>& issues) {
  if (issues.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(issues.front().key, ": ", issues.front().message));
}

}  // namespace weft
