// The keys of section `model`: Hugging Face's config.json keys, as a table of what each fills. Keys
// that change the mathematics have to be ones weft carries out. What others' config.json files hold
// besides is plan/keys/config_json.h's. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/keys/key_field.h"
#include "plan/keys/model_types.h"
#include "plan/keys/value.h"
#include "plan/spec/model.h"

namespace weft {

// Keys that set what only training does by chance. Without training they mean nothing.
absl::Span<const absl::string_view> DropoutKeys();

// A ModelUse says what the model is read for.
struct ModelUse {
  bool refuse_dropouts = true;  // else a note says that they are passed over
  bool is_pretrained = false;   // its weights were trained as it says: to change it is no advice
};

// `job_model`: the section of the job file. `config`: the tree of the config.json, or null. Keys of
// the job file replace those of the config.json (a note says so).
ModelShape ReadModel(const Value& job_model, const Value* config, const ModelUse& use,
                     Issues* issues, std::vector<std::string>* notes);

// Returns the section that ReadModel reads back as `model`. REQUIRES: CheckModel(model).ok().
Value ModelTree(ModelShape model);

// All model keys of a family that a job file may hold, sorted (the frozen list).
std::vector<std::string> ModelKeyList(ModelFamily family);

// A ModelKeyForm says what may stand in section `model` under one name, of whichever family.
struct ModelKeyForm {
  std::string name = {};
  std::string read_as = {};            // another name of this key; empty: none
  std::optional<FieldForm> form = {};  // none, and no values: anything, which is not looked at
  std::string values = {};             // only these can be carried out, separated by spaces
};
// Returns one for each name, sorted: keys, what other systems call them, and what a published
// config.json has beside them. Names that begin with _ are taken, too.
std::vector<ModelKeyForm> ModelKeyForms();

}  // namespace weft
