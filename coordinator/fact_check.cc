#include "coordinator/fact_check.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/hosts.h"

namespace weft {
namespace {

absl::Status CheckStep(const Job& job, int64_t step, absl::string_view what) {
  if (step >= 0 && step <= job.spec.training.steps) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " of step ", step, ", which the job has not; ", "it has ", job.spec.training.steps));
}

// A name becomes a part of a path.
absl::Status CheckName(absl::string_view name, absl::string_view what) {
  if (!name.empty() && name != "." && name != ".." && !absl::StrContains(name, '/')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is named \"", name, "\", which is a path"));
}

absl::Status Check(const Job& job, const Finished& fact) {
  const int64_t last_step = job.spec.training.steps;
  if (absl::Status known = CheckStep(job, fact.step, "an end"); !known.ok()) return known;
  if (fact.stopped) return absl::OkStatus();
  if (fact.step != last_step) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", fact.rank, " says that it is through after step ", fact.step,
                     "; the job ends at step ", last_step));
  }
  if (job.newest().step == last_step) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", fact.rank, " says that it is through, but step ", last_step,
      ", the last one, was not committed; the newest checkpoint is of step ", job.newest().step));
}

absl::Status Check(const Job& job, const Committed& fact) {
  if (absl::Status known = CheckStep(job, fact.step, "a checkpoint"); !known.ok()) return known;
  return CheckName(fact.folder, "a checkpoint");
}

absl::Status Check(const Job& job, const ShardWritten& fact) {
  if (absl::Status known = CheckStep(job, fact.step, "a shard"); !known.ok()) return known;
  return CheckName(fact.shard.file, "a shard");
}

template <typename Fact>
absl::Status Check(const Job&, const Fact&) {
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFact(const Job& job, const Event& fact) {
  return std::visit([&](const auto& each) { return Check(job, each); }, fact);
}

absl::Status CheckPlaced(const Job& job, int rank, const std::string& machine) {
  const HostShare* const share = FindShare(job, machine);
  if (share != nullptr && std::binary_search(share->ranks.begin(), share->ranks.end(), rank)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not placed on ",
                                                 share == nullptr ? machine : share->host,
                                                 ", from where it comes"));
}

}  // namespace weft
