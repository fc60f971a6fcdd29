// weft plan: what would run, how much memory it takes, how long a step lasts, and why not
// otherwise.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/host_options.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/plan_questions.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/keys/job_rules.h"

namespace weft {
namespace {

// --without-nodes: what is left of the cluster. Fixed degrees stay fixed.
absl::Status LoseNodes(int lost, JobFile& file) {
  Cluster& cluster = file.job.cluster;
  if (lost >= cluster.nodes) {
    return absl::InvalidArgumentError(absl::StrCat("--without-nodes: ", lost, " of cluster.nodes ",
                                                   cluster.nodes, " leaves none; use 0 to ",
                                                   cluster.nodes - 1));
  }
  cluster.nodes -= lost;
  const std::vector<SpecIssue> issues = Validate(file.job);
  if (issues.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--without-nodes ", lost, ": ", issues.front().key,
                                                 ": ", issues.front().message));
}

int RunPlan(PlanArguments arguments) {
  arguments.options.check_files = !arguments.without_data;
  absl::StatusOr<std::vector<ListedHost>> hosts = HostsOf(arguments.host_words);
  if (!hosts.ok()) return Fail(hosts.status());
  arguments.hosts = *std::move(hosts);
  TakeNamedHosts(arguments.hosts, &arguments.options);
  absl::StatusOr<JobFile> file = ReadJobFile(arguments.path, arguments.options);
  if (!file.ok()) return FailJobFile(file.status());
  if (arguments.without_nodes > 0) {
    const absl::Status status = LoseNodes(arguments.without_nodes, *file);
    if (!status.ok()) return Fail(status);
  }
  if (!arguments.parts.empty()) return AnswerParts(arguments, *file);
  if (arguments.layout) return AnswerLayout(arguments, *file);
  if (arguments.why) return AnswerWhy(arguments, *file);
  return AnswerPlan(arguments, *file);
}

}  // namespace

void AddPlan(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* plan = app.add_subcommand("plan", "show layout, memory and step time of a job file");
  plan->add_option("job", arguments->path, "the job file")->required();
  plan->add_option("--set", arguments->options.sets, "replace a key: --set training.steps=100")
      ->allow_extra_args(false);
  plan->add_option("--cluster", arguments->options.cluster,
                   "plan for another cluster: a name of configs/clusters, or a file");
  plan->add_option("--nodes", arguments->options.nodes,
                   "of the cluster, in place of its own number")
      ->check(WholeNumber(1, 1 << 20));
  AddHostNames(*plan, &arguments->host_words);
  plan->add_option("--without-nodes", arguments->without_nodes, "re-plan with so many nodes fewer")
      ->check(WholeNumber(0, 1 << 20));
  // Also an empty text is a question, to be refused.
  const auto add_question = [plan](const std::string& flag, std::optional<std::string>& text,
                                   const std::string& description) {
    return plan->add_option_function<std::string>(
        flag, [&text](const std::string& given) { text = given; }, description);
  };
  CLI::Option* why =
      add_question("--why", arguments->why, "why not that: --why tp=4,pp=2; term by term");
  CLI::Option* layout = add_question("--layout", arguments->layout,
                                     "judge exactly this layout: --layout tp=8,pp=2,dp=4");
  plan->add_option("--engine", arguments->engine,
                   "with --layout: whose habits are modelled: megatron, or megatron,states=bf16")
      ->needs(layout);
  layout->excludes(why);
  CLI::Option* parts =
      plan->add_option("--parts", arguments->parts,
                       "plan over several kinds of devices, as clusters and their nodes: --parts "
                       "h100x8:4,a100-80gx8:8");
  parts->delimiter(',')->excludes(why)->excludes(layout);
  plan->add_option("--svg", arguments->svg, "draw the pipeline schedule into this file")
      ->excludes(why)
      ->excludes(parts);
  plan->add_flag("--json", arguments->json, "print JSON (docs/plan_json.md)");
  plan->add_option("--explain", arguments->explain, "how many losing layouts to show, with reasons")
      ->check(WholeNumber(0, 1 << 20));
  plan->add_flag("--without-data", arguments->without_data, "plan where the data files are not");
  plan->callback([arguments, exit_code] { *exit_code = RunPlan(*arguments); });
}

}  // namespace weft
