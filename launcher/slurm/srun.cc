#include "launcher/slurm/srun.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/hosts/ssh.h"

namespace weft {
namespace {

struct SrunComplaint {
  absl::string_view said;  // by srun
  absl::StatusCode code;
  absl::string_view meaning;
};

constexpr char kNodeFailure[] = "Node failure";
constexpr SrunComplaint kSrunComplaints[] = {
    {"execve()", absl::StatusCode::kInvalidArgument,
     "weft is not there; install it at the same path on each node, or name its folder by "
     "cluster.remote_path"},
    {"job/step has already completed", absl::StatusCode::kFailedPrecondition,
     "the allocation is over"},
    {"Expired or invalid job", absl::StatusCode::kFailedPrecondition, "the allocation is over"},
    {"Job has expired", absl::StatusCode::kFailedPrecondition, "the allocation is over"},
    // Slurm says so of a node that it has taken out of the allocation (--no-kill), too.
    {"Requested node configuration is not available", absl::StatusCode::kNotFound,
     "Slurm gives the step less than it asks for; look at cluster.sbatch_options"},
    {"not in this job", absl::StatusCode::kNotFound, "it is no node of the allocation"},
    {"Invalid node name", absl::StatusCode::kInvalidArgument, "it is no node of the cluster"},
    {"Unable to contact slurm controller", absl::StatusCode::kUnavailable,
     "slurmctld does not answer (scontrol ping)"},
    {"configuration source", absl::StatusCode::kInvalidArgument,
     "srun finds no slurm.conf where weft runs; set SLURM_CONF, in a container mount its folder"},
    {"Communication connection failure", absl::StatusCode::kUnavailable,
     "its slurmd does not answer"},
    {kNodeFailure, absl::StatusCode::kUnavailable, "Slurm holds it for failed"},
};

std::string CpusOf(const SrunWords& words, const std::string& host) {
  const auto found = std::find(words.hosts.begin(), words.hosts.end(), host);
  const auto at = static_cast<size_t>(found - words.hosts.begin());
  return at < words.cpus.size() ? absl::StrCat(words.cpus[at]) : "1";
}

}  // namespace

std::vector<std::string> SrunArgv(const SrunWords& words, const ListedHost& host,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"srun",
                                   absl::StrCat("--jobid=", words.job_id),
                                   absl::StrCat("--nodelist=", host.name),
                                   "--nodes=1",
                                   "--ntasks=1",
                                   "--ntasks-per-node=1",
                                   absl::StrCat("--cpus-per-task=", CpusOf(words, host.name)),
                                   "--mem=0",
                                   "--overlap",
                                   "--no-kill",
                                   "--kill-on-bad-exit=0",
                                   "--mpi=none",
                                   "--cpu-bind=none",
                                   "--export=ALL",
                                   "--quiet",
                                   "--job-name=weft-agent"};
  const std::vector<std::string> container =
      absl::StrSplit(words.container, ' ', absl::SkipEmpty());
  const bool of_srun = absl::StartsWith(words.container, "--");
  if (of_srun) argv.insert(argv.end(), container.begin(), container.end());
  // srun takes the command's path apart in the folder it is called from: all words are absolute.
  if (!of_srun) argv.insert(argv.end(), container.begin(), container.end());
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

absl::Status SrunFailure(const std::string& host, const std::string& program, int exit_code,
                         absl::string_view words) {
  // srun ends with 0 when its node has failed, too.
  if (exit_code == 0 && !absl::StrContains(words, kNodeFailure)) return absl::OkStatus();
  for (const SrunComplaint& complaint : kSrunComplaints) {
    if (absl::StrContains(words, complaint.said)) {
      return {complaint.code, absl::StrCat("host ", host, ": ", complaint.meaning)};
    }
  }
  // srun's own words come behind those of the agent that it has seen off.
  std::vector<absl::string_view> said;
  for (const absl::string_view line : absl::StrSplit(words, '\n', absl::SkipWhitespace())) {
    if (!absl::StartsWith(line, "srun: ") && !absl::StartsWith(line, "slurmstepd")) {
      said.push_back(line);
    }
  }
  if (said.empty()) {
    return absl::UnavailableError(absl::StrCat("host ", host, ": srun ended with ", exit_code, ": ",
                                               absl::StripAsciiWhitespace(words)));
  }
  return CommandFailure(host, program, exit_code, absl::StrJoin(said, "\n"));
}

AgentStarter SrunStarter(SrunWords words) {
  return {.name = "srun",
          .argv =
              [words = std::move(words)](const ListedHost& host,
                                         const std::vector<std::string>& command) {
                return SrunArgv(words, host, command);
              },
          .failure = SrunFailure,
          .starts_here = true,
          .ends_with_agent = false};
}

}  // namespace weft
