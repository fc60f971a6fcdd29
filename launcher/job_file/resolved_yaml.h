// resolved.yaml: the job as it runs. Every key of the list, every `auto` replaced by the plan's
// value, paths absolute, the cluster profile inside. Reading it back gives the same JobSpec, so a
// run is repeated from it without a search. Also the comparison of two jobs, key by key. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// A RunRecord is recorded beside the job; nothing of it changes how a run computes.
struct RunRecord {
  std::string run_id = {};  // as the run's checkpoints state it; empty: written by an older weft
  int64_t generation = 0;
  std::string weft_version;
  int64_t planned_bytes = 0;  // of the largest rank
  double predicted_step_s = 0;
  std::vector<std::string> data;           // "path size:hash", one per file
  std::vector<std::string> accepted = {};  // RunIdentity::accepted
};

// `job` with every `auto` replaced: the layout's degrees and batch cut, the length of the decay.
JobSpec Resolve(JobSpec job, const Layout& layout);

// The job as a job file that is complete in itself: the model and the cluster's profile are inside.
std::string JobFileText(const JobSpec& job);
// The same with a record of the run, and words of what it is.
std::string ResolvedText(const JobSpec& job, const RunRecord& record);

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
