#include "launcher/slurm/slurm_job.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

struct Meaning {
  absl::string_view reason;
  absl::string_view text;
};
constexpr Meaning kMeanings[] = {
    {"JobHeldUser", "it is held; let it go by `scontrol release JOBID`"},
    {"JobHeldAdmin", "an administrator holds it; ask for its release"},
    {"Resources", "it waits for free nodes"},
    {"Priority", "jobs of a higher priority come first"},
    {"Dependency", "it waits for the jobs of cluster.dependency"},
    {"DependencyNeverSatisfied", "the jobs of cluster.dependency did not end so; cancel it"},
    {"BeginTime", "Slurm waits a while before it starts a job again"},
    {"PartitionTimeLimit", "cluster.time is above the partition's limit; ask for less"},
    {"PartitionNodeLimit", "the partition has fewer nodes than cluster.nodes; ask for less"},
    {"PartitionDown", "the partition is down; name another one by cluster.partition"},
    {"QOSMaxJobsPerUserLimit", "cluster.qos lets no more of your jobs run at a time"},
    {"AssocGrpCpuLimit", "the account has no CPUs left; wait, or name another cluster.account"},
    {"ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"},
    {"JobLaunchFailure",
     "its first node could not write the job's log, or begin it at all; job.output_dir has to "
     "be on a file system that all nodes mount at the same path"},
    {"NonZeroExitCode",
     "weft has ended with an error; logs/slurm-JOBID.log of the run folder says which"},
    {"Reservation", "it waits for cluster.reservation to begin"},
};

}  // namespace

SlurmJob ParseSlurmJob(absl::string_view text) {
  SlurmJob job;
  std::string restarts;
  const std::pair<absl::string_view, std::string*> fields[] = {
      {"JobId=", &job.id},           {"JobState=", &job.state},
      {"Reason=", &job.reason},      {"StartTime=", &job.start_time},
      {"EndTime=", &job.end_time},   {"PreemptTime=", &job.preempt_time},
      {"NodeList=", &job.node_list}, {"Restarts=", &restarts}};
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    for (const auto& [name, member] : fields) {
      if (member->empty() && absl::StartsWith(word, name)) {
        *member = std::string(absl::StripPrefix(word, name));
      }
    }
  }
  if (!absl::SimpleAtoi(restarts, &job.restarts)) job.restarts = 0;
  return job;
}

bool IsUnderWay(const SlurmJob& job) {
  for (const char* const state :
       {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
        "SPECIAL_EXIT", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"}) {
    if (job.state == state) return true;
  }
  return false;
}

bool IsPreempted(const SlurmJob& job) {
  return !job.preempt_time.empty() && job.preempt_time != "None";
}

std::string ReasonMeaning(absl::string_view reason) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.reason == reason) return absl::StrCat(reason, ": ", meaning.text);
  }
  return std::string(reason);
}

// A job that was cancelled is COMPLETING while its processes end, and so is one that has met its
// time limit, which its reason says.
AfterRun AfterRunOf(const EndedRun& run, const SlurmJob& job, int idle_ends) {
  if (!run.may_go_on || run.person_stopped) return AfterRun::kLeave;
  const bool out_of_time = job.reason == "TimeLimit";
  if (job.state != "RUNNING" && !out_of_time) return AfterRun::kLeave;
  const bool taken = out_of_time || IsPreempted(job);
  if (taken || run.progressed) return AfterRun::kRequeue;
  return idle_ends + 1 >= kMostIdleEnds ? AfterRun::kHold : AfterRun::kRequeue;
}

}  // namespace weft
