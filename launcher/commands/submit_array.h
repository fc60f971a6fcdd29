// weft submit --array: several runs as one array of Slurm's, each in a folder of its own. All are
// read, planned and checked before one is submitted. Speaks to people.
#pragma once
#include <string>
#include <vector>

#include "launcher/commands/job_preparation.h"
#include "launcher/commands/submit_slurm.h"

namespace weft {

struct ArraySubmission {
  SlurmSubmission submission;
  std::string path;                // of the job file
  JobFileOptions options;          // with the sets of all tasks
  std::vector<std::string> lists;  // of --array
  std::vector<std::string> accept;
  bool dry_run = false;
};

// `base`: the job without the lists. Returns what the command ends with.
int SubmitArray(const ArraySubmission& array, const PreparedJob& base);

}  // namespace weft
