// job.yaml -> JobSpec: the one parser of what people write (docs/job_yaml.md). Strict, with every
// error at once, each with file, line, key, value found, what is allowed and the next step.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/prepare/prepare.h"
#include "plan/keys/value.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct JobFileOptions {
  std::vector<std::string> sets = {};  // "training.steps=100", in the order given
  bool check_files = true;             // false: data files need not be on this machine
  bool fresh = false;                  // a run that is there already is not gone on with
  bool to_run = false;                 // refuse what can be planned but not run yet
  // Given, texts are tokenised, and this is told how far that is. What the file says besides is
  // judged afterwards: read it without first.
  std::function<void(const PrepareProgress&)> on_tokens = {};
  int token_threads = 1;                    // by so many threads
  std::optional<std::string> cluster = {};  // replaces the job's cluster, before `sets`
  std::optional<int> nodes = {};            // in place of the job's or the profile's
  // How many hosts are named, and the fewest slots that one of them was given (0: none was): they
  // say what the job itself does not.
  int named_hosts = 0;
  int named_slots = 0;
  bool unsaid_slots = false;  // of some host nobody has said how many
};

struct JobFile {
  std::string path;  // as given
  JobSpec job;       // Validate(job).empty()
  Value tree;        // aliases renamed, --set applied
  // Hosts are named, and neither the file nor whoever named them says how many slots each has: what
  // `job` says is the profile's guess.
  bool slots_as_offered = false;
  bool has_tokens = true;          // false: the data is text that has not been tokenised
  bool has_steps = true;           // false: training.epochs is not counted; steps are assumed
  std::vector<std::string> notes;  // renamed aliases, sniffed formats, replaced model keys

  // Takes the interval that wastes least under `plan` (Bill::best_interval_steps) where it is auto.
  // Returns a note of it for people; empty where the job says how often.
  std::string SettleInterval(const Plan& plan);

  // "job.yaml:12: parallelism.tp: ..." for a message that begins with a dotted key, as those of
  // FindPlan do; the message itself if it does not.
  std::string Locate(absl::string_view message) const;
};

// InvalidArgument: one issue per line, sorted by line.
absl::StatusOr<JobFile> ReadJobFile(const std::string& path, const JobFileOptions& options);

// The same for a text that is in memory. Relative paths are relative to the folder of `path`.
absl::StatusOr<JobFile> ReadJobText(const std::string& text, const std::string& path,
                                    const JobFileOptions& options);

}  // namespace weft
