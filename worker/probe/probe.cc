#include "worker/probe/probe.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "process/signals.h"
#include "worker/backend/library_environment.h"
#include "worker/backend/loader.h"
#include "worker/links/link_probe.h"
#include "worker/probe/folder_relay.h"
#include "worker/probe/probe_rates.h"
#include "worker/probe/product.h"
#include "worker/process/process_rank.h"

namespace weft {
namespace {

constexpr int64_t kCommTimeoutMs = 20000;

// A line of /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& wanted) {
  std::ifstream stream("/proc/self/status");
  for (std::string key; stream >> key;) {
    int64_t kib = 0;
    if (key == wanted && stream >> kib) return kib * 1024;
    stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// Returns what libraries hold of the device's memory, or this process's resident memory where the
// device's is the host's, and of that the pages of files, which all workers of a host share.
// REQUIRES: whoever measured has freed its own.
std::string LibraryJson(Device& device) {
  const int64_t used = device.UsedBytes();
  if (used > 0) return absl::StrCat(", \"library_bytes\": ", used);
  return absl::StrCat(", \"library_bytes\": ", StatusBytes("VmRSS:"),
                      ", \"shared_bytes\": ", StatusBytes("RssFile:"));
}

std::string JsonText(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  quoted.push_back('"');
  return quoted;
}

absl::StatusOr<std::string> HeadJson(const BackendApi& api, const std::vector<std::string>& notes) {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(api.device_count(&count)));
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) {
    DeviceDescription device;
    RETURN_IF_ERROR(ToStatus(api.describe_device(i, &device)));
    devices.push_back(absl::StrCat("{\"name\": ", JsonText(device.name),
                                   ", \"memory_bytes\": ", device.memory_bytes,
                                   ", \"compute_units\": ", device.compute_units, "}"));
  }
  return absl::StrCat(
      "\"backend\": ", JsonText(api.name), ", \"versions\": ", JsonText(api.versions),
      ", \"devices\": [", absl::StrJoin(devices, ", "), "], \"notes\": [",
      absl::StrJoin(notes, ", ",
                    [](std::string* out, const std::string& note) { out->append(JsonText(note)); }),
      "]");
}

std::string RatesJson(const DeviceRates& rates) {
  std::vector<std::string> matmuls;
  for (const MatmulPoint& point : rates.matmuls) {
    matmuls.push_back(absl::StrFormat(
        "{\"m\": %d, \"n\": %d, \"k\": %d, \"precision\": \"%s\", \"flops_per_s\": %.6g}", point.m,
        point.n, point.k, WordOf(point.precision), point.flops_per_s));
  }
  return absl::StrFormat(
      "\"rates\": {\"stream_bytes_per_s\": %.6g, \"operation_bytes_per_s\": %.6g, "
      "\"attention_flops_per_s\": %.6g, \"attention_precision\": \"%s\", \"op_overhead_s\": %.6g, "
      "\"matmuls\": [%s]}",
      rates.stream_bytes_per_s, rates.operation_bytes_per_s, rates.attention_flops_per_s,
      WordOf(rates.attention_precision), rates.op_overhead_s, absl::StrJoin(matmuls, ", "));
}

absl::StatusOr<std::string> MeasuredRates(const ProbeOptions& options, BackendKind kind,
                                          const BackendApi& api) {
  // The CPU backend multiplies 8-bit floats in wider types: that is no rate to plan by.
  DeviceOptions device_options{
      .local_index = 0, .threads = options.threads, .fp8 = kind != BackendKind::kCpu};
  std::vector<Precision> precisions = {Precision::kFp32, Precision::kBf16};
  Device* device = nullptr;
  BackendStatus opened = api.open_device(&device_options, &device);
  if (opened.ok() && device_options.fp8) {
    precisions.push_back(Precision::kFp8);
  } else if (!opened.ok() && device_options.fp8) {  // it may be too old for them
    device_options.fp8 = false;
    opened = api.open_device(&device_options, &device);
  }
  RETURN_IF_ERROR(ToStatus(opened));
  const absl::StatusOr<DeviceRates> rates = MeasureRates(
      *device, options.threads, kind == BackendKind::kCpu ? HostRateSizes() : GpuRateSizes(),
      precisions, options.seconds);
  // The workspaces are gone by now; what stays is the libraries'.
  const std::string libraries = LibraryJson(*device);
  api.close_device(device);
  RETURN_IF_ERROR(rates.status());
  return RatesJson(*rates) + libraries;
}

absl::StatusOr<std::string> MeasuredProduct(const ProbeOptions& options, BackendKind kind,
                                            const BackendApi& api) {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(api.device_count(&count)));
  const int64_t side = kind == BackendKind::kCpu ? kHostProductSide : kGpuProductSide;
  double slowest = 0;
  for (int i = 0; i < count; ++i) {
    const DeviceOptions device_options{.local_index = i, .threads = options.threads};
    Device* device = nullptr;
    RETURN_IF_ERROR(ToStatus(api.open_device(&device_options, &device)));
    const absl::StatusOr<double> rate = MeasureProduct(*device, side, options.seconds);
    api.close_device(device);
    RETURN_IF_ERROR(rate.status());
    slowest = i == 0 ? *rate : std::min(slowest, *rate);
  }
  return absl::StrFormat("\"product_flops_per_s\": %.6g", slowest);
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): only reader
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// Empty on ranks other than 0.
absl::StatusOr<std::string> MeasuredLinks(const ProbeOptions& options, BackendKind kind,
                                          const BackendApi& api) {
  RETURN_IF_ERROR(DieWithParent(SIGKILL, getppid()));
  ASSIGN_OR_RETURN(const ProcessRank me, FindProcessRank(FromEnvironment));
  Device* device = nullptr;
  const DeviceOptions device_options{.local_index = me.local_rank, .threads = options.threads};
  RETURN_IF_ERROR(ToStatus(api.open_device(&device_options, &device)));
  Comm* comm = nullptr;
  FolderRelay relay(options.relay_folder, me.rank);
  const std::string rendezvous = absl::StrCat(
      "/weft-", getuid(), "-", absl::Hex(std::hash<std::string>{}(options.relay_folder)), "-probe");
  const CommOptions comm_options{.init_timeout_ms = kCommTimeoutMs,
                                 .timeout_ms = kCommTimeoutMs,
                                 .rank = me.rank,
                                 .world_size = me.world_size,
                                 .rendezvous = rendezvous.c_str(),
                                 .device = device,
                                 .relay = options.relay_folder.empty() ? nullptr : &relay};
  RETURN_IF_ERROR(ToStatus(api.open_comm(&comm_options, &comm)));
  // A rank that fails leaves at once, its peers may wait for it: mpirun ends them.
  constexpr double kThisNode = 0;
  ASSIGN_OR_RETURN(const LinkTimes links,
                   MeasureLinks(kind, *device, *comm, kThisNode, options.seconds, [] {}));
  const std::string libraries = LibraryJson(*device);
  const bool first = comm->rank() == 0;
  api.close_comm(comm);
  api.close_device(device);
  if (!first) return std::string();
  return LinksJson(links) + libraries;
}

}  // namespace

absl::StatusOr<ProbeKind> ParseProbeKind(absl::string_view name) {
  if (name == "devices") return ProbeKind::kDevices;
  if (name == "rates") return ProbeKind::kRates;
  if (name == "product") return ProbeKind::kProduct;
  if (name == "links") return ProbeKind::kLinks;
  return absl::InvalidArgumentError(
      absl::StrCat("--probe: \"", name, "\" is unknown; use devices, rates, product or links"));
}

int ProbeExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "weft-worker: %s\n", absl::StrCat(status.message()).c_str());
  const bool cannot = absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
                      absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  return cannot ? 2 : 1;
}

absl::Status Probe(const ProbeOptions& options) {
  const absl::StatusOr<BackendKind> parsed = ParseBackend(options.backend);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--backend: ", parsed.status().message()));
  }
  const BackendKind kind = *parsed;
  std::vector<std::string> notes;
  if (kind == BackendKind::kCpu) notes = SettleLibraryEnvironment();
  ASSIGN_OR_RETURN(const BackendApi* api, LoadBackend(kind, options.backend_folder));
  ASSIGN_OR_RETURN(const std::string head, HeadJson(*api, notes));
  std::string measured;
  if (options.kind == ProbeKind::kRates) {
    ASSIGN_OR_RETURN(measured, MeasuredRates(options, kind, *api));
  } else if (options.kind == ProbeKind::kProduct) {
    ASSIGN_OR_RETURN(measured, MeasuredProduct(options, kind, *api));
  } else if (options.kind == ProbeKind::kLinks) {
    ASSIGN_OR_RETURN(measured, MeasuredLinks(options, kind, *api));
    if (measured.empty()) return absl::OkStatus();
  }
  std::printf("{%s%s%s}\n", head.c_str(), measured.empty() ? "" : ", ", measured.c_str());
  return absl::OkStatus();
}

}  // namespace weft
