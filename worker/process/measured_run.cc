#include "worker/process/measured_run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/log.h"
#include "process/rank_variables.h"
#include "worker/links/link_probe.h"

namespace weft {
namespace {

// A whole number that a double holds, which ranks of a host have in common.
double NodeNumber() {
  constexpr uint64_t kMask = (uint64_t{1} << 52) - 1;
  const char* host = std::getenv(kHostVariable);  // NOLINT(concurrency-mt-unsafe): only reader
  const std::string name = host == nullptr ? "" : host;
  return static_cast<double>((std::hash<std::string>{}(name)&kMask) + 1);
}

}  // namespace

absl::Status MeasureLinksOfRun(const JobSpec& job, const std::string& run_folder, Device& device,
                               Comm& comm, ProgressWriter& progress) {
  const auto moved = [&] { progress.SetPhase(RankPhase::kLoad); };
  moved();
  const BackendKind backend = job.cluster.device.backend;
  const absl::StatusOr<LinkTimes> links =
      MeasureLinks(backend, device, comm, NodeNumber(), job.comm.measure_seconds, moved);
  if (absl::IsFailedPrecondition(links.status()) && comm.FirstFailure().ok()) {
    LogWarning(absl::StrCat("comm.measure_seconds: ", links.status().message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(links.status());
  if (comm.rank() != 0) return absl::OkStatus();
  const EntryPath path = {run_folder, kLinksFile};
  const std::string text =
      absl::StrCat("{\"backend\": \"", WordOf(backend), "\", ", LinksJson(*links), "}\n");
  OpenedEntry file = OpenEntry(path, EntryUse::kRewrite);
  if (file.ok() && write(file.descriptor, text.data(), text.size()) != std::ssize(text)) {
    file.why = std::strerror(errno);
  }
  if (file.ok()) close(file.descriptor);
  if (!file.why.empty()) {
    LogWarning(absl::StrCat("links are lost: ", path.text(), ": cannot be written: ", file.why));
  }
  LogInfo(absl::StrCat("links among ", comm.world_size(), " ranks on ", links->nodes,
                       " hosts are measured: ", path.text()));
  return absl::OkStatus();
}

}  // namespace weft
