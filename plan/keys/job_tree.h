// A job as a tree of keys, and back: the canonical form in which resolved.yaml holds it and in
// which it travels. Every path is absolute, the model and the cluster's profile stand inside. The
// table is job_keys.h; what joins several keys is a function here. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "plan/keys/job_keys.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Reads the keys of `tree` into a job of this model and cluster, which are read apart. Paths and
// globs stand in the tree as they will be used. What is missing or wrong becomes an issue; ranges
// and rules are Validate's (job_rules.h).
JobSpec ReadJobKeys(const Value& tree, ModelShape model, Cluster cluster, Issues* issues,
                    std::vector<std::string>* notes);

// Reads what JobTree returns, its model and cluster too. Unknown keys are issues; a key that is not
// there has its default, so a tree of an older weft is read.
JobSpec ReadJobTree(const Value& tree, Issues* issues);

// Returns every key that has a value, in the table's order, sections as maps.
Value JobTree(JobSpec job);

// One key of a job in one line, for comparing: cluster.profile without the counts of nodes and
// slots, which have keys of their own.
struct KeyText {
  std::string key;
  KeyKind kind = KeyKind::kExecution;
  std::string text;
};
std::vector<KeyText> KeyTexts(const JobSpec& job);

}  // namespace weft
