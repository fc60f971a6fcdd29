// config.json of a Hugging Face directory, which model.path or model.init_from names. What its keys
// mean is plan/keys/model_keys.h.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/keys/value.h"
#include "plan/spec/model.h"

namespace weft {

// Reads config.json at `path` (a file, or a folder that holds one). Null node with issues if it
// cannot be read. `place` is where model.path stands.
Value ReadConfigJson(const std::string& path, const Place& place, Issues* issues);

// The model that the config.json of a Hugging Face directory states, as it computes where it does
// not train: dropouts are passed over. InvalidArgument with all issues, one a line: no config.json,
// or one that weft cannot carry out.
absl::StatusOr<ModelShape> ModelOfDirectory(const std::string& folder);

// The model_type of a wrapper, with a vision tower beside it, that such a text model may be a part
// of; "": there is none.
absl::string_view WrapperOf(const ModelShape& model);

}  // namespace weft
