#include "launcher/commands/run_checks.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/clean_up.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/limits.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "launcher/machine/start.h"
#include "launcher/run/going_on.h"
#include "launcher/run/run_folder.h"
#include "plan/errors.h"
#include "plan/estimate/goodput.h"
#include "plan/search/describe.h"
#include "plan/search/host_share.h"
#include "plan/search/search.h"
#include "plan/search/space.h"

namespace weft {
namespace {

RunNeeds NeedsOf(const JobSpec& job, const Plan& plan) {
  return {.ranks = plan.layout.world_size(),
          .rank_bytes = plan.peak_bytes(),
          .checkpoint_bytes = CheckpointBytes(QuestionOf(job))};
}

// The coordinator plans anew for what a host offers, for fewer ranks where there is no plan for
// more. `slots` is what it would try first.
absl::Status FitsHere(const JobSpec& job, int64_t free_bytes, int slots) {
  JobSpec here = job;
  const int64_t share = HostShareBytes(job.cluster, free_bytes, slots);
  if (share < job.cluster.device.memory_bytes) {
    ASSIGN_OR_RETURN(here.cluster, WithSlotBytes(job.cluster, share));
  }
  here.cluster.slots_per_node = slots;
  return FindPlan(here, Purpose::kRun).status();
}

}  // namespace

absl::Status JudgeMemory(const JobSpec& job, std::optional<int64_t> free_bytes) {
  constexpr int kMostPlans = 8;  // each may take a second
  const int slots = job.cluster.slots_per_node;
  if (!free_bytes) return absl::OkStatus();
  const int64_t share = HostShareBytes(job.cluster, std::max<int64_t>(1, *free_bytes), slots);
  if (share >= job.cluster.device.memory_bytes) return absl::OkStatus();
  absl::Status first;
  for (int fewer = 0; fewer < slots; ++fewer) {
    if (fewer == kMostPlans) return absl::OkStatus();
    const absl::Status fits = FitsHere(job, std::max<int64_t>(1, *free_bytes), slots - fewer);
    if (fits.ok()) return absl::OkStatus();
    if (fewer == 0) first = fits;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "memory: this machine has ", BytesText(*free_bytes), " free, that is ", BytesText(share),
      " for each of ", slots, slots == 1 ? " rank" : " ranks", ", beside ",
      BytesText(job.cluster.host_library_bytes), " of weft's own: ", first.message(),
      "; free memory, or lower ", SlotsKey(job.cluster.device.backend),
      ", training.micro_batch_size or the model"));
}

absl::Status CheckHostCount(const JobSpec& job, const std::vector<ListedHost>& hosts,
                            const std::string& granted_by) {
  const int named = hosts.empty() ? 1 : static_cast<int>(hosts.size());
  const int most = job.cluster.nodes + job.hosts.spares;
  const int least = job.hosts.least_nodes > 0 ? job.hosts.least_nodes : most;
  if (named >= least && named <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.nodes: ", job.cluster.nodes,
      job.hosts.spares > 0 ? absl::StrCat(" and cluster.spares ", job.hosts.spares) : "", " but ",
      granted_by.empty() ? "" : "the allocation has ", named, named == 1 ? " host" : " hosts",
      !granted_by.empty() ? absl::StrCat("; ask ", granted_by, " for as many, or write MIN:MAX")
      : named == 1        ? " is named; name as many by --hosts or --hostfile, or change the number"
                   : " are named; name as many by --hosts or --hostfile, or change the number"));
}

absl::Status CheckTrainable(const JobSpec& job) {
  if (job.cluster.device.backend == BackendKind::kCuda &&
      access(Beside("libweft_cuda.so").c_str(), R_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.profile: ", job.cluster.name,
        " has GPUs, but libweft_cuda.so does not lie beside weft; build it where there "
        "is a CUDA toolkit (docs/gpu.md), or use cpu"));
  }
  return absl::OkStatus();
}

absl::Status CheckMpi(const JobSpec& job, const std::vector<ListedHost>& hosts) {
  if (job.cluster.device.backend == BackendKind::kCuda || !hosts.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(FindOpenMpi().status());
  return CheckLoopback();
}

absl::Status CheckMemory(const JobSpec& job, const Plan& plan) {
  if (job.cluster.device.backend == BackendKind::kCuda) return absl::OkStatus();
  // Several hosts are planned for what each of them offers.
  if (job.cluster.nodes > 1) return absl::OkStatus();
  RETURN_IF_ERROR(JudgeAddressSpace(LimitsHere(), NeedsOf(job, plan)));
  return JudgeMemory(job, AvailableMemoryBytes());
}

absl::Status MakeRoom(const PreparedJob& prepared, const std::vector<ListedHost>& hosts,
                      const RunIdentity& run) {
  const JobSpec& job = prepared.file.job;
  if (hosts.empty() && job.cluster.device.backend == BackendKind::kCpu) {
    RETURN_IF_ERROR(JudgeTasksAndFiles(LimitsHere(), NeedsOf(job, prepared.plan)));
    RETURN_IF_ERROR(CheckSharedRoom(prepared.plan.layout.world_size()));
  }
  const std::string disk = FullDiskText(prepared.paths.folder);
  absl::string_view full = disk;
  if (absl::ConsumePrefix(&full, "; ")) return absl::ResourceExhaustedError(full);
  for (const std::string& problem : RemoveStages(CheckpointFolder(job), run.id).problems) {
    std::cout << "note: " << problem << "\n";
  }
  std::string note;
  RETURN_IF_ERROR(CheckRoom(job, run, CheckpointBytes(QuestionOf(job)), &note));
  if (!note.empty()) std::cout << "note: " << note << "\n";
  return absl::OkStatus();
}

}  // namespace weft
