#include "launcher/slurm/slurm_program.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

absl::StatusOr<SlurmAnswer> AskSlurm(const std::vector<std::string>& argv, const std::string& input,
                                     int timeout_ms) {
  absl::StatusOr<SlurmAnswer> answer = AskProgram(argv, input, timeout_ms);
  const absl::string_view what = answer.status().message();
  if (absl::IsNotFound(answer.status())) {
    return absl::NotFoundError(
        absl::StrCat(what,
                     "; submit from a login node of the cluster, load its Slurm module, or train "
                     "here by weft run"));
  }
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::UnavailableError(absl::StrCat(what, "; is slurmctld up? (scontrol ping)"));
  }
  return answer;
}

absl::StatusOr<SlurmJob> AskForJob(const std::string& id, int timeout_ms) {
  ASSIGN_OR_RETURN(const SlurmAnswer answer,
                   AskSlurm({"scontrol", "show", "job", "--oneliner", id}, "", timeout_ms));
  SlurmJob job = ParseSlurmJob(answer.out);
  if (answer.exit_code != 0 || job.id.empty()) {
    return absl::NotFoundError(absl::StrCat("Slurm knows no job ", id, " any more"));
  }
  job.id = id;  // Slurm's own number of a task may be that of its whole array
  return job;
}

}  // namespace weft
