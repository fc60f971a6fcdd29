// SpecIssue: one broken rule of what was asked, before a file and a line are known. The checks of
// job_spec, model, cluster and layout all return these, so that every broken rule can be shown at
// once and each points at its key. Pure values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// `key` is the dotted job.yaml key; `message` says the value found, what is allowed and the next
// step, without the key: "3 does not divide n_head 4; use 1, 2 or 4".
struct SpecIssue {
  std::string key;
  std::string message;

  friend bool operator==(const SpecIssue&, const SpecIssue&) = default;
};

// OK if there is none, else InvalidArgument "key: message" of the first.
absl::Status FirstIssue(const std::vector<SpecIssue>& issues);

// The divisors of `number` up to `most`, for a message: "1", "1 or 2", "1, 2, 4 or 8". Of many, the
// dozen around `found`. REQUIRES: number >= 1, most >= 1.
std::string DivisorsText(int64_t number, int64_t most, int64_t found);

}  // namespace weft
