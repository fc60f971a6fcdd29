// The ends of text that a model states beside its weights, by id: a model that has generated one of
// them has finished its text.
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Returns every id of eos_token_id, a number or a list, in generation_config.json and config.json
// of a Hugging Face directory; a file that is not there, and null, state none. InvalidArgument:
// "file: what was found, what was expected".
absl::StatusOr<std::set<int32_t>> ReadStatedEnds(const std::string& folder);

}  // namespace weft
