#include "launcher/slurm/sbatch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/machine/ask_program.h"
#include "launcher/slurm/slurm_program.h"
#include "plan/errors.h"

namespace weft {
namespace {

struct Complaint {
  absl::string_view said;  // by sbatch
  absl::StatusCode code;
  absl::string_view key;              // that it is about; empty: none
  std::string SchedulerSpec::*value;  // of that key
  absl::string_view meaning;
};

constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
constexpr auto kLater = absl::StatusCode::kUnavailable;

constexpr Complaint kComplaints[] = {
    {"invalid partition specified", kWrong, "cluster.partition", &SchedulerSpec::partition,
     "is no partition of this cluster; `sinfo -s` lists them"},
    {"invalid account or account/partition", kWrong, "cluster.account", &SchedulerSpec::account,
     "is no account that you may use in that partition; `sacctmgr show assoc user=$USER` lists "
     "them"},
    {"invalid qos", kWrong, "cluster.qos", &SchedulerSpec::qos,
     "is no quality of service of yours; `sacctmgr show qos` lists them"},
    {"invalid feature", kWrong, "cluster.constraint", &SchedulerSpec::constraint,
     "names a feature that no node has; `sinfo -o '%n %f'` lists them"},
    {"invalid node name", kWrong, "cluster.exclude", &SchedulerSpec::exclude,
     "names a node that is not there; `sinfo -N` lists them"},
    {"reservation is invalid", kWrong, "cluster.reservation", &SchedulerSpec::reservation,
     "is no reservation that you may use; `scontrol show reservation` lists them"},
    {"invalid --time", kWrong, "cluster.time", &SchedulerSpec::time,
     "is no time to Slurm; write minutes, HH:MM:SS or D-HH:MM:SS"},
    {"time limit is invalid", kWrong, "cluster.time", &SchedulerSpec::time,
     "is more than the partition allows, or has to be said; `sinfo -s` shows its limit"},
    {"dependency", kWrong, "cluster.dependency", &SchedulerSpec::dependency,
     "is no dependency to Slurm; write e.g. afterok:1234 or singleton"},
    {"unrecognized option", kWrong, "cluster.sbatch_options", &SchedulerSpec::options,
     "has an option that sbatch does not know; sbatch --help lists them"},
    {"invalid option", kWrong, "cluster.sbatch_options", &SchedulerSpec::options,
     "has an option that sbatch does not know; sbatch --help lists them"},
    {"not permitted to use this partition", kWrong, "cluster.partition", &SchedulerSpec::partition,
     "is not for your group; name another one (`sinfo -s`)"},
    {"accounting/qos policy", kWrong, "cluster.qos", &SchedulerSpec::qos,
     "and the account's limits forbid a job of this size; ask for fewer nodes, or name another "
     "account"},
    {"node count specification invalid", kWrong, "", nullptr,
     "cluster.nodes is more than the partition has; `sinfo -s` shows how many"},
    {"node configuration is not available", kWrong, "", nullptr,
     "no node of the partition is as the job needs it (cluster.slots, gpus_per_node, memory); "
     "`scontrol show node` says what they have"},
    {"more processors requested", kWrong, "", nullptr,
     "cluster.slots times cluster.threads_per_worker is more than a node has; `scontrol show node` "
     "says how many"},
    {"memory specification", kWrong, "", nullptr,
     "no node of the partition has the memory that the plan needs; spread it over more nodes"},
    {"(gres)", kWrong, "", nullptr,
     "the partition has no such GPUs; `sinfo -o '%P %G'` lists them"},
    {"unable to contact", kLater, "", nullptr,
     "slurmctld does not answer; try again once `scontrol ping` says UP"},
    {"configuration source", kWrong, "", nullptr,
     "Slurm's programs find no slurm.conf on this host; submit from a login node of the "
     "cluster, or set SLURM_CONF"},
    {"socket timed out", kLater, "", nullptr,
     "slurmctld does not answer in time; look by squeue whether the job was taken before you try "
     "again"},
    {"access/permission denied", absl::StatusCode::kPermissionDenied, "", nullptr,
     "Slurm does not let you submit jobs here; ask its administrator"},
};

}  // namespace

std::string JobIdIn(absl::string_view output) {
  const std::string line = LastLine(output);
  const std::string id = line.substr(0, line.find(';'));
  const bool is_number = !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  return is_number ? id : "";
}

absl::Status SbatchFailure(absl::string_view words, const SchedulerSpec& site) {
  const std::string lower = absl::AsciiStrToLower(words);
  for (const Complaint& complaint : kComplaints) {
    if (!absl::StrContains(lower, complaint.said)) continue;
    if (complaint.key.empty()) return {complaint.code, complaint.meaning};
    const std::string& value = site.*complaint.value;
    return {complaint.code,
            absl::StrCat(complaint.key, ": ", value.empty() ? "the site's default" : value, " ",
                         complaint.meaning)};
  }
  const std::string last = LastLine(words);
  return absl::UnknownError(
      absl::StrCat("sbatch does not take the job: ", last.empty() ? "it said nothing" : last));
}

absl::Status TestSbatch(const std::string& script, const SchedulerSpec& site) {
  ASSIGN_OR_RETURN(const SlurmAnswer answer, AskSlurm({"sbatch", "--test-only"}, script));
  return answer.exit_code == 0 ? absl::OkStatus() : SbatchFailure(answer.err, site);
}

absl::StatusOr<std::string> CallSbatch(const std::string& script, const SchedulerSpec& site) {
  ASSIGN_OR_RETURN(const SlurmAnswer answer, AskSlurm({"sbatch", "--parsable"}, script));
  if (answer.exit_code != 0) return SbatchFailure(answer.err, site);
  std::string id = JobIdIn(answer.out);
  if (id.empty()) return SbatchFailure(absl::StrCat(answer.out, answer.err), site);
  return id;
}

}  // namespace weft
