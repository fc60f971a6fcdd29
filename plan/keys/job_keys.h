// The table of job.yaml's keys: a row per key, with the member it fills, what it means, what it may
// be, whose mathematics it is, and its names in other systems. The reader, --set, resolved.yaml,
// the comparison at resume, the wire, `weft keys`, docs/job_yaml.md and the schema follow from it.
// A new key is a row here, a member of plan/spec/job_spec.h, and its use; it needs a reason why the
// planner cannot choose its value. Keys of `model` are Hugging Face's: model_keys.h. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/keys/key_field.h"
#include "plan/spec/job_spec.h"

namespace weft {

enum class KeyKind {
  kExecution,    // how the job runs: another value trains the same model
  kMathematics,  // what is computed: with another value the run would be another run
  kAdjustable,   // mathematics that a person may change on the way, as the optimizer's states stay
  kSource,       // a path to mathematics: it may move while what lies there stays the same
  kInput,        // another key holds what it says: read by a rule of job_tree.h, never printed
  kNotBuilt,     // known, but only the values in `otherwise` can be carried out
};

inline bool IsMathematics(KeyKind kind) {
  return kind == KeyKind::kMathematics || kind == KeyKind::kAdjustable || kind == KeyKind::kSource;
}

struct JobKey {
  absl::string_view key;  // dotted: "training.steps"
  KeyKind kind;
  KeyField (*field)(JobSpec&);  // null for kNotBuilt and kInput
  absl::string_view meaning;    // for people, one line; {words}: those of its enumeration
  // Says what counts where the key is not given, if the member's default does not say it;
  // kNotBuilt: the values that are accepted, separated by spaces.
  absl::string_view otherwise = "";
  Limits limits = {};
  // Names that other systems give it, separated by spaces; undotted ones also stand in its section.
  absl::string_view aliases = "";
  bool planned_only = false;  // the engine does not run every value yet: `*` in the docs

  absl::string_view section() const { return key.substr(0, key.find('.')); }
  absl::string_view name() const;  // the last part
};

// Returns the keys in the order in which resolved.yaml writes them.
absl::Span<const JobKey> JobKeys();
const JobKey* FindJobKey(absl::string_view dotted);  // null: none

// Sections, in order: job, model, tokenizer, data, ...
const std::vector<std::string>& JobSections();

// Returns JobKey::meaning with the words in it: "`constant`, `linear` or `cosine`".
std::string MeaningText(const JobKey& key);

// Returns the default of a key in words: "required", "auto", "0.1", "[0.9, 0.95]", "-".
std::string DefaultText(const JobKey& key);

}  // namespace weft
