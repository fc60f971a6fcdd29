#include "coordinator/service/control_calls.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/keys/job_rules.h"
#include "plan/search/search.h"
#include "process/log.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

LogLevel LevelOf(v1::SetLogLevelRequest::Level level) {
  switch (level) {
    case v1::SetLogLevelRequest::WARNING:
      return LogLevel::kWarning;
    case v1::SetLogLevelRequest::ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

}  // namespace

absl::StatusOr<v1::PlanReply> PlanFor(const v1::PlanRequest& request) {
  absl::StatusOr<JobSpec> job = ParseJobText(request.job());
  if (!job.ok()) return job.status();
  for (const SpecIssue& issue : Validate(*job)) {
    return absl::InvalidArgumentError(absl::StrCat(issue.key, ": ", issue.message));
  }
  const absl::StatusOr<weft::Plan> plan = FindPlan(*job, Purpose::kRun);
  if (!plan.ok()) return plan.status();
  v1::PlanReply reply;
  *reply.mutable_layout() = ToProto(plan->layout).properties();
  reply.set_planned_bytes(plan->peak_bytes());
  reply.set_predicted_step_s(plan->time.total_s());
  reply.set_ranks(plan->layout.world_size());
  return reply;
}

v1::SetLogLevelReply SetLogLevelTo(v1::SetLogLevelRequest::Level level, const std::string& caller) {
  static std::atomic<v1::SetLogLevelRequest::Level> now = v1::SetLogLevelRequest::INFO;
  v1::SetLogLevelReply before;
  before.set_before(now.exchange(level));
  LogWarning(
      absl::StrCat(caller, " sets the log's level to ", v1::SetLogLevelRequest::Level_Name(level)));
  SetLeastLogLevel(LevelOf(level));
  return before;
}

}  // namespace weft
