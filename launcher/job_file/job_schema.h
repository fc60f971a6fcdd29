// The table of job.yaml's keys for other programs: a JSON Schema, with which an editor completes
// and checks a job file, and the keys as JSON. Pure.
#pragma once
#include <string>

#include "absl/types/span.h"
#include "plan/keys/job_keys.h"

namespace weft {

// JSON Schema, draft 2020-12 (json-schema.org). It takes all that the reader takes, keys by other
// systems' names and what a published config.json has beside a model's own among it, and looks at
// each key by itself: rules that join several are `weft plan`'s to check.
std::string JobSchema();

// A JSON array of {key, default, meaning, allowed, aliases, ...}, one for each of `keys`.
std::string KeysJson(absl::Span<const JobKey* const> keys);

}  // namespace weft
