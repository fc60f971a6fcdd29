// weft plan: what would run, how much memory it takes, how long a step lasts, and why not
// otherwise.
#include <iostream>
#include <memory>

#include "launcher/commands/commands.h"
#include "launcher/job_yaml.h"
#include "launcher/plan_json.h"
#include "plan/search/describe.h"
#include "plan/search/search.h"

namespace weft {
namespace {

struct PlanArguments {
  std::string path;
  JobFileOptions options;
  bool json = false;
  bool without_data = false;
  int explain = 5;
};

int RunPlan(PlanArguments arguments) {
  arguments.options.check_files = !arguments.without_data;
  const absl::StatusOr<JobFile> file = ReadJobFile(arguments.path, arguments.options);
  if (!file.ok()) return FailJobFile(file.status());
  // What `weft run` would start, or, of a job that weft cannot run yet, what it would be like.
  const Purpose purpose = RunIssues(file->job).empty() ? Purpose::kRun : Purpose::kEstimate;
  const absl::StatusOr<Plan> plan = FindPlan(file->job, purpose);
  if (!plan.ok()) {
    std::cerr << file->Locate(plan.status().message()) << "\n";
    std::cerr << "weft: "
              << (absl::IsFailedPrecondition(plan.status()) ? "nothing fits" : "no plan") << "\n";
    return ExitCodeOf(plan.status());
  }
  if (arguments.json) {
    std::cout << PlanJson(*file, *plan, arguments.explain);
  } else {
    for (const std::string& note : file->notes) std::cout << "note: " << note << "\n";
    std::cout << PlanText(file->job, *plan, arguments.explain);
  }
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* plan = app.add_subcommand("plan", "show layout, memory and step time of a job file");
  plan->add_option("job", arguments->path, "the job file")->required();
  plan->add_option("--set", arguments->options.sets, "replace a key: --set training.steps=100")
      ->allow_extra_args(false);
  plan->add_flag("--json", arguments->json, "print JSON (docs/plan_json.md)");
  plan->add_option("--explain", arguments->explain, "how many losing layouts to show, with reasons")
      ->check(CLI::NonNegativeNumber);
  plan->add_flag("--without-data", arguments->without_data, "plan where the data files are not");
  plan->callback([arguments, exit_code] { *exit_code = RunPlan(*arguments); });
}

}  // namespace weft
