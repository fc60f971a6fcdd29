// The form in which a trained model leaves: that of the Hugging Face directory that it came from,
// so that whoever knew what to do with that one knows what to do with this one.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "plan/spec/model.h"

namespace weft {

// Returns the directory that the run of a checkpoint took its weights from (model.init_from); empty
// if it took them from none, or from one that is gone or is none of Hugging Face's.
std::string SourceOf(const Manifest& manifest);

// The form of `source`: model_type, ends of text, number format, generation_config.json and the
// tokenizer's files. Its config.json is taken as it is where it says the model that was trained;
// else weft's own, with what that one says of the type and of texts. `source` empty: weft's own
// form. `dtype`: float32, bfloat16 or float16 in place of the source's; empty: as it says.
absl::StatusOr<HuggingFaceForm> FormLike(const std::string& source, const ModelShape& model,
                                         const std::string& dtype);

}  // namespace weft
