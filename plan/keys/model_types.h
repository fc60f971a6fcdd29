// The values of model_type that a job file or a config.json may have: what each means without
// saying so, and which of its keys no plan depends on. A type is a row of a table; every mechanism
// is a key of its own (plan/keys/model_keys.h), which any type of the family may have. Pure.
#pragma once
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/model.h"
#include "plan/spec/words.h"

namespace weft {

// Says whether `words`, separated by spaces, has `word`: as lists of keys stand in the tables.
bool HasWord(absl::string_view words, absl::string_view word);

// A family is how files spell keys: as GPT-2's config.json does, or as llama's.
enum class ModelFamily { kGpt2, kLlama };
Words WordsOf(ModelFamily);

// SlidingBlocks says which blocks of a type slide where a file names a window and no list of them.
enum class SlidingBlocks {
  kAll,
  kFrom,         // those from max_window_layers on
  kUnturned,     // those without positions
  kAllButEvery,  // all but every ModelType::every-th, or every sliding_window_pattern-th
};

struct ModelType {
  Architecture architecture = Architecture::kLlama;
  absl::string_view class_name = "";  // transformers' class, of types that are trained
  ModelFamily family = ModelFamily::kLlama;
  // Sets what a config.json of the type leaves out, beside the architecture's mechanisms; null:
  // nothing beyond the family's defaults.
  void (*set_defaults)(ModelShape&) = nullptr;
  absl::string_view needs = "";  // keys beside the family's, separated by spaces
  // Keys of routing, positions and formats, which the engine would have to carry out and no plan
  // depends on. Empty for the types that the engine trains.
  absl::string_view passed_over = "";
  // Keys that transformers' configuration of the type reads in a config.json, beside passed_over,
  // and those that all configurations have (plan/keys/config_json.h).
  absl::string_view reads = "";
  absl::string_view defaults = "";  // key=value of what it assumes where a config.json is silent
  SlidingBlocks slides = SlidingBlocks::kAll;
  int64_t every = 0;  // of SlidingBlocks::kAllButEvery
  // Blocks may lack positions: every fourth does where no_rope_layers says nothing.
  bool has_unturned = false;
  bool has_rope_by_span = false;  // rope_parameters may be a map for each kind of block
  bool turns_sliding = false;     // sliding blocks alone have positions
  // The model_type of a model with a vision tower whose text_config is of this type; "": none.
  absl::string_view wrapper = "";

  absl::string_view name() const { return WordOf(architecture); }
  bool is_only_planned() const { return !passed_over.empty(); }
};

absl::Span<const ModelType> ModelTypes();
// The row of an architecture.
const ModelType& TypeOf(Architecture architecture);
// Gives `model` what a file of the type need not say.
void SetTypeDefaults(const ModelType& type, ModelShape& model);
// Null if there is none of this name.
const ModelType* FindModelType(absl::string_view name);
// Returns the type that a person who wrote `name` has misspelled; null if it may be the name of
// another architecture: one letter makes a mllama of a llama.
const ModelType* MisspelledModelType(absl::string_view name);
// "gpt2, llama, ... or cohere2"
std::string ModelTypesText();

}  // namespace weft
