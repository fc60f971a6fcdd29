// weft ps: the jobs of a weftd that serves them, newest first; where none is named, those in Slurm.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/service_options.h"
#include "launcher/commands/slurm_verbs.h"
#include "launcher/machine/child_process.h"
#include "launcher/service/job_view.h"
#include "launcher/service/message_json.h"
#include "plan/errors.h"
#include "process/clock.h"

namespace weft {
namespace {

struct PsArguments {
  ServiceWords words;
  bool all = false;
  std::vector<std::string> phases;
  std::string owner;
  int64_t most = 100;
  bool json = false;
};

absl::StatusOr<std::vector<v1::Job>> Jobs(const PsArguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, OpenService(arguments.words));
  v1::ListRequest request;
  request.set_owner(arguments.owner);
  for (const std::string& phase : arguments.phases) request.add_phases(phase);
  const bool takes_over = arguments.all || !arguments.phases.empty();
  return ListJobs(*client, request, arguments.most,
                  [&](const v1::Job& job) { return takes_over || !IsOver(job.phase()); });
}

// `why` says what a person has to do who does not mean Slurm's jobs.
int PsOfSlurm(const absl::Status& why, const PsArguments& arguments) {
  if (arguments.json) return Fail(why);
  if (!arguments.phases.empty()) {
    return Fail(absl::InvalidArgumentError(
        "--phase: names a phase of weft's, but no weftd is named, and Slurm's jobs have states of "
        "Slurm's; leave it away and read STATE, or name a weftd by --coordinator"));
  }
  const absl::StatusOr<std::string> table = SlurmJobsTable(
      {.all = arguments.all, .owner = arguments.owner, .most = arguments.most}, TableWidth());
  if (!table.ok()) {
    return Fail(absl::Status(
        why.code(),
        absl::StrCat(why.message(), "; and Slurm does not answer: ", table.status().message())));
  }
  std::cout << *table;
  return kExitOk;
}

int Ps(const PsArguments& arguments) {
  const absl::StatusOr<std::vector<v1::Job>> jobs = Jobs(arguments);
  const bool is_of_slurm = absl::IsInvalidArgument(jobs.status()) && !NamesAWeftd(arguments.words);
  if (is_of_slurm && !FindInPath("squeue").empty()) {
    return PsOfSlurm(jobs.status(), arguments);
  }
  if (!jobs.ok()) return FailCall(jobs.status());
  if (arguments.json) {
    std::vector<std::string> elements;
    for (const v1::Job& job : *jobs) elements.push_back(MessageJson(job));
    std::cout << ArrayJson(elements);
  } else if (jobs->empty()) {
    std::cout << (arguments.all ? "no jobs\n"
                                : "no jobs wait or run; --all lists those that did\n");
  } else {
    std::cout << JobsTable(*jobs, UnixTimeMs(), TableWidth());
  }
  return kExitOk;
}

}  // namespace

void AddPs(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<PsArguments>();
  CLI::App* ps = app.add_subcommand("ps", "list the jobs of a weftd that serves them");
  ps->add_flag("--all", arguments->all, "those that are over, too");
  ps->add_option("--phase", arguments->phases,
                 "only jobs in this phase: QUEUED, RUNNING, FAILED...")
      ->allow_extra_args(false);
  ps->add_option("--owner", arguments->owner, "only jobs of this user");
  ps->add_option("--most", arguments->most, "so many at most, newest first; default: 100")
      ->check(WholeNumber(1, 1000000));
  AddJsonOption(*ps, &arguments->json);
  AddServiceOptions(*ps, &arguments->words);
  ps->callback([arguments, exit_code] { *exit_code = Ps(*arguments); });
}

}  // namespace weft
