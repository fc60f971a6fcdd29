// weft plan --parts: one job over several kinds of devices.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/plan_questions.h"
#include "launcher/job_file/mixed_json.h"
#include "plan/errors.h"
#include "plan/mixed/find_mixed.h"
#include "plan/mixed/mixed_text.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

// "h100x8:32" is the cluster of the job that names this profile and so many nodes.
absl::StatusOr<Cluster> PartCluster(const PlanArguments& arguments, const std::string& word) {
  const size_t colon = word.rfind(':');
  int nodes = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(word.substr(colon + 1), &nodes) || nodes < 1 || nodes > 1 << 20) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--parts: \"", word, "\" is not CLUSTER:NODES with 1 to 1048576 nodes, as h100x8:4"));
  }
  JobFileOptions options = arguments.options;
  options.cluster = word.substr(0, colon);
  options.nodes = nodes;
  ASSIGN_OR_RETURN(JobFile file, ReadJobFile(arguments.path, options));
  return std::move(file.job.cluster);
}

}  // namespace

int AnswerParts(const PlanArguments& arguments, const JobFile& file) {
  if (arguments.options.cluster || arguments.options.nodes || arguments.without_nodes > 0 ||
      !arguments.hosts.empty()) {
    return Fail(absl::InvalidArgumentError(
        "--parts: says which nodes there are; leave out --cluster, --nodes, --without-nodes and "
        "named hosts"));
  }
  std::vector<Cluster> parts;
  for (const std::string& word : arguments.parts) {
    absl::StatusOr<Cluster> part = PartCluster(arguments, word);
    if (!part.ok()) return FailJobFile(part.status());
    parts.push_back(*std::move(part));
  }
  const absl::StatusOr<MixedAnswer> answer = FindMixedPlan(file.job, parts);
  if (!answer.ok()) {
    return Fail(
        absl::Status(answer.status().code(), absl::StrCat("--parts: ", answer.status().message())));
  }
  if (arguments.json) {
    std::cout << MixedJson(file.job, parts, *answer);
    return kExitOk;
  }
  for (const std::string& note : file.notes) {
    std::cout << FoldedText(absl::StrCat("note: ", note), 6) << "\n";
  }
  std::cout << MixedText(file.job, parts, *answer)
            << "\nestimate only, weft runs a job on devices of one kind yet\n";
  return kExitOk;
}

}  // namespace weft
