// A job as it travels and as the journal keeps it: its canonical tree (plan/keys/job_tree.h) as
// JSON,
// {"format_version": 1, "job": {...}, "model": {...}, ...}. A key that is not there has its
// default, so what an older weft wrote is read; a key that this version does not know is refused by
// name. Pure.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"

namespace weft {

std::string JobText(const JobSpec& job);

// InvalidArgument: no JSON, another format, or keys that are missing, unknown or wrong, one a line.
// Ranges and rules of the values are Validate's.
absl::StatusOr<JobSpec> ParseJobText(const std::string& text);

// `value` as JSON: unquoted scalars are numbers, flags and words.
nlohmann::ordered_json JsonOf(const Value& value);

}  // namespace weft
