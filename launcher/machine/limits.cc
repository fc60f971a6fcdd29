#include "launcher/machine/limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/machine/machine.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

// Measured of release builds, x86-64, two cores: a worker maps 1.4 GiB beside its plan and has 17
// threads; weft, weftd, the agent and mpirun have 44 together. More cores take more of both.
constexpr int64_t kMappedByLibraries = int64_t{1} << 30;
constexpr int64_t kTasksOfARank = 12;
constexpr int64_t kTasksOfTheRest = 40;
constexpr int64_t kRecordBytes = int64_t{1} << 20;  // journal and logs

std::optional<int64_t> LimitOf(int resource) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

ProcessLimits LimitsHere() {
  ProcessLimits limits{.address_bytes = LimitOf(RLIMIT_AS), .file_bytes = LimitOf(RLIMIT_FSIZE)};
  if (const std::optional<TasksAllowed> group = TasksOfGroup()) {
    limits.tasks_left = group->most - group->taken;
    limits.tasks_limit = absl::StrCat("pids.max of the control group is ", group->most);
  }
  // The kernel does not hold root to it.
  const std::optional<int64_t> of_user = geteuid() == 0 ? std::nullopt : LimitOf(RLIMIT_NPROC);
  if (of_user) {
    const int64_t left = *of_user - TasksOfUser(getuid());
    if (!limits.tasks_left || left < *limits.tasks_left) {
      limits.tasks_left = left;
      limits.tasks_limit = absl::StrCat("ulimit -u is ", *of_user);
    }
  }
  return limits;
}

absl::Status JudgeAddressSpace(const ProcessLimits& limits, const RunNeeds& needs) {
  const int64_t needed = kMappedByLibraries + needs.rank_bytes;
  if (!limits.address_bytes || *limits.address_bytes >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("memory: ulimit -v lets a process map ", BytesText(*limits.address_bytes),
                   ", but a rank of this plan maps ", BytesText(needed),
                   " at least, most of it never touched; raise it: ulimit -v unlimited"));
}

absl::Status JudgeTasksAndFiles(const ProcessLimits& limits, const RunNeeds& needs) {
  const int64_t tasks = kTasksOfTheRest + kTasksOfARank * needs.ranks;
  if (limits.tasks_left && *limits.tasks_left < tasks) {
    return absl::ResourceExhaustedError(absl::StrCat(
        limits.tasks_limit, ", which leaves ", std::max<int64_t>(0, *limits.tasks_left),
        " processes and threads, but a run of ", needs.ranks,
        needs.ranks == 1 ? " rank needs " : " ranks needs ", tasks, " at least; raise it"));
  }
  const int64_t bytes = std::max(kRecordBytes, needs.checkpoint_bytes / std::max(1, needs.ranks));
  if (limits.file_bytes && *limits.file_bytes < bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ulimit -f lets a file have ", BytesText(*limits.file_bytes),
                     ", but records and a rank's part of a checkpoint need ", BytesText(bytes),
                     "; raise it: ulimit -f unlimited"));
  }
  return absl::OkStatus();
}

}  // namespace weft
