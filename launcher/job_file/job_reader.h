// The tree of a job file -> JobSpec: every key of job_keys.h, by section. Issues have their place;
// what the values mean together is Validate's. Pure but for the files that the job names.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct ReadJobOptions {
  bool check_files = true;  // data files have to be on this machine
  bool to_run = false;      // what is only planned is refused
  std::function<void(const PrepareProgress&)> on_tokens = {};  // as JobFileOptions
  int token_threads = 1;
};

struct ReadJobResult {
  JobSpec job;
  bool has_tokens = true;  // false: data.train names texts that have no tokens yet
  bool has_steps = true;   // false: training.epochs is not counted, and job's steps are assumed
};

// `root`: aliases renamed, --set applied, no unknown keys. `folder`: of the job file.
ReadJobResult ReadJob(const Value& root, const std::string& folder, const ReadJobOptions& options,
                      Issues* issues, std::vector<std::string>* notes);

}  // namespace weft
