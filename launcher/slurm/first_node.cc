#include "launcher/slurm/first_node.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/node_list.h"
#include "launcher/slurm/slurm_program.h"

namespace weft {
namespace {

constexpr int kAnswerMs = 5000;

}  // namespace

std::optional<BatchJob> BatchJobOf(const std::function<const char*(const char*)>& variable) {
  const absl::StatusOr<std::optional<SlurmAllocation>> allocation = AllocationOf(variable);
  if (!allocation.ok() || !*allocation) return std::nullopt;
  const SlurmAllocation& found = **allocation;
  if (!found.is_batch || found.hosts.empty()) return std::nullopt;
  return BatchJob{found.name(), found.hosts.front()};
}

bool HasLostItsFirstNode(const BatchJob& job, const SlurmJob& now) {
  const absl::StatusOr<std::vector<std::string>> nodes = ExpandNodeList(now.node_list);
  if (now.state != "RUNNING" || !nodes.ok() || nodes->empty()) return false;
  return std::find(nodes->begin(), nodes->end(), job.first_node) == nodes->end();
}

std::string RequeueWithoutFirstNode(const BatchJob& job) {
  const absl::StatusOr<SlurmJob> now = AskForJob(job.name, kAnswerMs);
  if (!now.ok() || !HasLostItsFirstNode(job, *now)) return "";
  const absl::StatusOr<SlurmAnswer> done =
      AskSlurm({"scontrol", "requeue", job.name}, "", kAnswerMs);
  if (!done.ok()) return "";
  return absl::StrCat("Slurm has taken ", job.first_node,
                      ", where the batch script ran, out of job ", job.name, "; ",
                      done->exit_code == 0 ? "the job is queued again"
                                           : absl::StrCat("it does not queue it: ", done->err));
}

}  // namespace weft
