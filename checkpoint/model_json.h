// A model's shape as JSON: in a checkpoint's manifest, and in what weft asks a worker to infer.
// Field names are ModelShape's, those of rope_scaling with "rope_" before them; all are written and
// all have to be there.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/model.h"

namespace weft {

// One object; numbers read back as they were.
std::string ModelJson(const ModelShape& model);

// InvalidArgument "found ..., expected ..." for text that is no such object, a field that is absent
// or of another kind, and a model that breaks a rule of CheckModel. Other keys are passed over.
absl::StatusOr<ModelShape> ParseModelJson(absl::string_view text);

}  // namespace weft
