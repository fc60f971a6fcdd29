// Every key a job file may hold, with the names that other systems give it, and what is known but
// not built yet. The list is frozen by a test: a new key needs a reason why the planner cannot
// choose its value. Keys of `model` are Hugging Face's and live in model_config.h. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "launcher/job_file/yaml_tree.h"

namespace weft {

enum class KeyState {
  kUsed,
  kFree,    // a map whose keys are the user's (cluster.env), or a file's own format (profile)
  kNotYet,  // known, but only the values in `accepted` can be carried out
};

struct JobKey {
  absl::string_view key;      // dotted: "training.steps"
  absl::string_view aliases;  // separated by spaces; undotted ones also stand in the key's section
  KeyState state = KeyState::kUsed;
  absl::string_view accepted =
      "";  // kNotYet: separated by spaces; nothing (null) is always accepted
};

// Returns the keys in the order in which resolved.yaml writes them.
absl::Span<const JobKey> JobKeys();

// Sections, in order: job, model, tokenizer, data, ...
std::vector<std::string> JobSections();

// Renames aliases to weft's names, once: a key together with its alias is an issue with both lines.
// Every rename adds a note. What changes its meaning between systems is an issue with a hint.
void RenameAliases(YamlNode* root, Issues* issues, std::vector<std::string>* notes);

// weft's name of a dotted key; the key itself if it is none of the aliases.
std::string CanonicalKey(absl::string_view dotted);

// Adds an issue, with the nearest known key, for each key that is unknown.
void CheckKnownKeys(const YamlNode& root, Issues* issues);

// Adds an issue for each known key whose value weft cannot carry out yet.
void CheckBuiltKeys(const YamlNode& root, Issues* issues);

}  // namespace weft
