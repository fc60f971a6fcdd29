#include "launcher/commands/submit_slurm.h"

#include <cstdlib>
#include <iostream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/hosts/ssh.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/start.h"
#include "launcher/slurm/batch_script.h"
#include "launcher/slurm/partition_nodes.h"
#include "launcher/slurm/run_record.h"
#include "launcher/slurm/sbatch.h"
#include "launcher/slurm/slurm_program.h"
#include "plan/errors.h"
#include "plan/estimate/goodput.h"
#include "plan/keys/resolved_job.h"
#include "plan/search/describe.h"
#include "plan/search/space.h"
#include "plan/spec/layout_text.h"
#include "process/run_files.h"
#include "process/run_lock.h"

namespace weft {

namespace {

// Looks into the run folder as OpenForSlurm does, and touches nothing.
absl::Status WouldRefuse(const PreparedJob& prepared, bool fresh,
                         const std::vector<std::string>& accept) {
  RETURN_IF_ERROR(CheckFreeInSlurm(prepared));
  if (IsRunning(prepared.paths.folder)) {
    return absl::UnavailableError(
        absl::StrCat(prepared.paths.folder, " is in use by another weft"));
  }
  if (fresh) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Continuation going_on, LookAtRun(prepared, accept, std::cerr));
  std::string note;
  return CheckRoom(prepared.file.job, going_on.run, CheckpointBytes(QuestionOf(prepared.file.job)),
                   &note);
}

}  // namespace

std::string ScriptOf(const SlurmSubmission& submission, const PreparedJob& prepared) {
  const JobSpec& job = prepared.file.job;
  const std::string& there = job.hosts.remote_path;
  const FaultCosts costs = FaultCostsOf(job.cluster, CheckpointBytes(QuestionOf(job)),
                                        prepared.plan.layout.world_size());
  return BatchScript(
      job, prepared.plan,
      {.program = there.empty() ? Beside("weft") : there + "/weft",
       .run_folder = submission.tasks.empty() ? prepared.paths.folder : submission.folder,
       .save_s = costs.save_s,
       .after = submission.after,
       .tasks = submission.tasks});
}

namespace {

void SayHowToFollow(const SlurmSubmission& submission, const PreparedJob& prepared,
                    const std::string& id) {
  const std::string& folder = prepared.paths.folder;
  const absl::StatusOr<SlurmJob> job = AskForJob(id);
  if (job.ok() && job->reason != "None" && !job->reason.empty()) {
    std::cout << "  " << job->state << ": " << ReasonMeaning(job->reason) << "\n";
  }
  std::cout << "  tail -F " << ShellWord(absl::StrCat(folder, "/logs/slurm-", id, ".log")) << "\n"
            << "  " << submission.program << " stop " << ShellWord(folder) << "\n";
}

}  // namespace

int PrintBatchScript(const SlurmSubmission& submission, const PreparedJob& prepared,
                     const std::vector<const PreparedJob*>& runs, bool fresh,
                     const std::vector<std::string>& accept) {
  const std::string script = ScriptOf(submission, prepared);
  std::cout << script << std::flush;
  absl::Status refusal;
  for (const PreparedJob* run : runs) {
    // Data without a fingerprint would be another than that of the run in the folder.
    if (run->file.has_tokens) {
      refusal.Update(WouldRefuse(*run, fresh, accept));
    } else {
      std::cerr
          << "note: data.train: is text, which a submission tokenises first; whether it could "
             "go on with "
          << run->paths.folder << " was not looked at\n";
    }
  }
  refusal.Update(CheckNodesInSlurm(prepared));
  // Where there is no Slurm the script is looked at alone.
  if (!FindInPath("sbatch").empty())
    refusal.Update(TestSbatch(script, prepared.file.job.scheduler));
  if (refusal.ok()) return kExitOk;
  std::cerr << "weft: a submission would be refused:\n";
  return Fail(refusal);
}

absl::Status OpenForSlurm(const PreparedJob& prepared, bool fresh,
                          const std::vector<std::string>& accept, int64_t* after_step) {
  ASSIGN_OR_RETURN(const OpenedRun run, OpenRun(prepared, fresh, accept, std::cout));
  std::string note;
  RETURN_IF_ERROR(CheckRoom(prepared.file.job, run.going_on.run,
                            CheckpointBytes(QuestionOf(prepared.file.job)), &note));
  if (!note.empty()) std::cerr << "note: " << note << "\n";
  RETURN_IF_ERROR(
      WriteWhole(SubmittedJobPath(prepared.paths.folder), JobFileText(prepared.file.job)));
  WriteResolved(prepared, run);
  *after_step = run.going_on.after_step;
  return absl::OkStatus();
}

absl::Status CheckFreeInSlurm(const PreparedJob& prepared) {
  const std::string& folder = prepared.paths.folder;
  for (const char* const own : {"/tmp", "/dev/shm", "/run"}) {
    if (!IsWithin(folder, own)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job.output_dir: ", folder,
                     " is on this host alone; name a folder on a file system that "
                     "all nodes mount at the same path"));
  }
  const std::optional<SlurmRunRecord> record = ReadSlurmRun(folder);
  if (!record) return absl::OkStatus();
  const absl::StatusOr<SlurmJob> job = AskForJob(record->job_id);
  if (absl::IsNotFound(job.status())) return absl::OkStatus();
  RETURN_IF_ERROR(job.status());
  if (!IsUnderWay(*job)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("run folder ", folder, ": Slurm job ", record->job_id, " has it and is ",
                   job->state, "; wait for its end, or end it: weft stop ", ShellWord(folder)));
}

absl::Status CheckNodesInSlurm(const PreparedJob& prepared) {
  if (std::getenv("SBATCH_PARTITION") != nullptr) return absl::OkStatus();
  const absl::StatusOr<SlurmAnswer> partitions =
      AskSlurm({"scontrol", "show", "partition", "--oneliner", "--all"});
  if (!partitions.ok() || partitions->exit_code != 0) return absl::OkStatus();
  const absl::StatusOr<SlurmAnswer> nodes =
      AskSlurm({"scontrol", "show", "node", "--oneliner", "--all"});
  if (!nodes.ok() || nodes->exit_code != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const std::string note,
      CheckNodesOfPartition(prepared.file.job, prepared.plan, ParseSlurmPartitions(partitions->out),
                            ParseSlurmNodes(nodes->out)));
  if (!note.empty()) std::cerr << "note: " << note << "\n";
  return absl::OkStatus();
}

int SubmitToSlurm(const SlurmSubmission& submission, const PreparedJob& prepared,
                  int64_t after_step) {
  const JobSpec& job = prepared.file.job;
  // sbatch's own log goes there, before weft runs.
  MakeLogsFolder(prepared.paths);
  const absl::StatusOr<std::string> id = CallSbatch(ScriptOf(submission, prepared), job.scheduler);
  if (!id.ok()) return Fail(id.status());
  const absl::Status written =
      WriteSlurmRun(prepared.paths.folder, RecordFor(prepared.paths.folder, *id));
  if (!written.ok()) std::cerr << "weft: warning: " << written.message() << "\n";
  std::cout << "slurm job " << *id << ": " << LayoutText(prepared.plan.layout) << ", "
            << BytesText(prepared.plan.peak_bytes()) << " a worker\n"
            << (after_step > 0 ? "resume: " : "run: ") << prepared.paths.folder;
  if (after_step > 0) std::cout << " from step " << after_step;
  std::cout << "\n";
  SayHowToFollow(submission, prepared, *id);
  return kExitOk;
}

}  // namespace weft
