// resolved.yaml (plan/keys/resolved_job.h) is read back here, and two jobs are compared, key by
// key. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/resolved_job.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// The record in the tree of a resolved.yaml; missing parts stay at their defaults.
RunRecord ReadRecord(const Value& tree);

// The layout that `job` fixes completely; empty if anything is left to the planner.
std::optional<Layout> FixedLayout(const JobSpec& job);

struct SpecChange {
  std::string key;
  std::string before;
  std::string after;
  // Model, data, batch, seed, optimizer, learning rate: with it, the run would be another run.
  bool mathematics = false;
};
// REQUIRES: both came from Resolve().
std::vector<SpecChange> Changes(const JobSpec& before, const JobSpec& after);

// Returns what a run cannot change, as its checkpoints state it: key -> value, of all that
// SpecChange calls mathematics but for paths, which may move. REQUIRES: `job` came from Resolve().
std::map<std::string, std::string> Mathematics(const JobSpec& job);
// Says whether a run may go on with another value of the key where a person says so: the
// optimizer's states keep their meaning.
bool IsAcceptable(absl::string_view key);
// Returns the keys that IsAcceptable allows, for people.
std::string AcceptableKeys();
// Returns what makes `job` another run than the one that stated `before`.
std::vector<SpecChange> ChangedMathematics(const std::map<std::string, std::string>& before,
                                           const JobSpec& job);

}  // namespace weft
