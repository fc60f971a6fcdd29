#include "launcher/slurm/after_run.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/slurm/run_record.h"
#include "launcher/slurm/slurm_program.h"
#include "plan/errors.h"

namespace weft {
namespace {

std::string WhyText(AfterRun after, const SlurmJob& job) {
  switch (after) {
    case AfterRun::kRequeue:
      return absl::StrCat("Slurm job ", job.id, " is queued again, and resumes by itself");
    case AfterRun::kHold:
      return absl::StrCat("Slurm job ", job.id, " has ended ", kMostIdleEnds,
                          " times without a step to show for it: it is held; once the cause is "
                          "gone, scontrol release ",
                          job.id);
    case AfterRun::kLeave:
      break;
  }
  return absl::StrCat("Slurm job ", job.id, " ends here (", job.state, ")");
}

}  // namespace

AfterRunAnswer AskAfterRun(const SlurmAllocation& allocation, const std::string& run_folder,
                           const EndedRun& run) {
  if (!allocation.is_batch) return {};
  const absl::StatusOr<SlurmJob> job = AskForJob(allocation.name());
  // Without Slurm's word nobody knows whether it was cancelled: nothing is run again by mistake.
  if (!job.ok()) return {AfterRun::kLeave, std::string(job.status().message())};
  SlurmRunRecord record = RecordFor(run_folder, allocation.name());
  const AfterRun after = AfterRunOf(run, *job, record.idle_ends);
  record.idle_ends = run.progressed || after == AfterRun::kHold ? 0 : record.idle_ends + 1;
  std::string why = WhyText(after, *job);
  const absl::Status written = WriteSlurmRun(run_folder, record);
  if (!written.ok()) absl::StrAppend(&why, "; warning: ", written.message());
  return {after, why};
}

absl::Status HoldJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(const SlurmAnswer answer,
                   AskSlurm({"scontrol", "requeuehold", "State=SpecialExit", job_id}));
  if (answer.exit_code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("Slurm does not hold job ", job_id, ": ", answer.err));
}

}  // namespace weft
