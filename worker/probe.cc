#include "worker/probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "process/signals.h"
#include "worker/backend/loader.h"
#include "worker/link_timer.h"
#include "worker/probe_rates.h"
#include "worker/process_rank.h"

namespace weft {
namespace {

constexpr int64_t kCommTimeoutMs = 20000;
constexpr int64_t kMessageBytes[] = {4, 4096, 65536, 1 << 20, 1 << 23};

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What this process holds in memory now.
int64_t ResidentBytes() {
  std::ifstream stream("/proc/self/status");
  for (std::string key; stream >> key;) {
    int64_t kib = 0;
    if (key == "VmRSS:" && stream >> kib) return kib * 1024;
    stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
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

absl::StatusOr<std::string> HeadJson(const BackendApi& api) {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(api.device_count(&count)));
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) {
    DeviceDescription device;
    RETURN_IF_ERROR(ToStatus(api.describe_device(i, &device)));
    devices.push_back(absl::StrCat("{\"name\": ", JsonText(device.name),
                                   ", \"memory_bytes\": ", device.memory_bytes, "}"));
  }
  return absl::StrCat("\"backend\": ", JsonText(api.name),
                      ", \"versions\": ", JsonText(api.versions), ", \"devices\": [",
                      absl::StrJoin(devices, ", "), "]");
}

std::string RatesJson(const DeviceRates& rates) {
  std::vector<std::string> matmuls;
  for (const MatmulPoint& point : rates.matmuls) {
    matmuls.push_back(absl::StrFormat(
        "{\"m\": %d, \"n\": %d, \"k\": %d, \"precision\": \"%s\", \"flops_per_s\": %.6g}", point.m,
        point.n, point.k, PrecisionName(point.precision), point.flops_per_s));
  }
  return absl::StrFormat(
      "\"rates\": {\"stream_bytes_per_s\": %.6g, \"operation_bytes_per_s\": %.6g, "
      "\"attention_flops_per_s\": %.6g, \"op_overhead_s\": %.6g, \"matmuls\": [%s]}",
      rates.stream_bytes_per_s, rates.operation_bytes_per_s, rates.attention_flops_per_s,
      rates.op_overhead_s, absl::StrJoin(matmuls, ", "));
}

absl::StatusOr<std::string> MeasuredRates(const ProbeOptions& options, const BackendApi& api) {
  Device* device = nullptr;
  const DeviceOptions device_options{.local_index = 0, .threads = options.threads};
  RETURN_IF_ERROR(ToStatus(api.open_device(&device_options, &device)));
  const absl::StatusOr<DeviceRates> rates = MeasureRates(*device, options.seconds);
  // The workspaces are gone by now; what stays is the libraries'.
  const int64_t library_bytes = ResidentBytes();
  api.close_device(device);
  RETURN_IF_ERROR(rates.status());
  return absl::StrCat(RatesJson(*rates), ", \"library_bytes\": ", library_bytes);
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): only reader
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// One message there and one back between neighbours 2i and 2i+1, all pairs at once.
absl::Status PingPong(Comm& comm, View data) {
  const int peer = comm.rank() ^ 1;
  if (peer >= comm.world_size()) return absl::OkStatus();
  const bool first = comm.rank() < peer;
  for (const bool send : {first, !first}) {
    const Transfer transfer{.send = send, .peer = peer, .data = data};
    RETURN_IF_ERROR(ToStatus(comm.Exchange(&transfer, 1)));
  }
  return absl::OkStatus();
}

// Sizes of groups that all ranks are in, each among its neighbours: 2, 4, ... and the world.
std::vector<int> GroupSizes(int world_size) {
  std::vector<int> sizes;
  for (int size = 2; size < world_size && world_size % size == 0; size *= 2) sizes.push_back(size);
  sizes.push_back(world_size);
  return sizes;
}

// This rank's group of `size` neighbours.
absl::StatusOr<int> NeighbourGroup(Comm& comm, int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), comm.rank() / size * size);
  int group = 0;
  RETURN_IF_ERROR(ToStatus(comm.NewGroup(comm.rank() / size, ranks.data(), size, &group)));
  return group;
}

// Every collective among groups of one size, all groups at once, as in training.
absl::Status MeasureGroup(Comm& comm, LinkTimer& timer, int size, int group, void* data,
                          std::vector<CollectivePoint>& points) {
  for (const int64_t bytes : kMessageBytes) {
    const View all{data, 1, bytes / 4, DType::kF32};
    // Halves of an all-reduce take a whole range for each rank.
    const int64_t range = std::max<int64_t>(1, bytes / 4 / size);
    const View ranges{data, 1, range * size, DType::kF32};
    const auto measure = [&](Collective collective, View view, auto call) -> absl::Status {
      double seconds = 0;
      ASSIGN_OR_RETURN(seconds, timer.Time([&] { return ToStatus(call(view)); }));
      points.push_back({collective, size, 4 * view.elements(), seconds});
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(measure(Collective::kAllReduce, all, [&](View view) {
      return comm.AllReduce(group, ReduceOp::kSum, view);
    }));
    RETURN_IF_ERROR(measure(Collective::kReduceScatter, ranges, [&](View view) {
      return comm.ReduceScatter(group, ReduceOp::kSum, view);
    }));
    RETURN_IF_ERROR(measure(Collective::kAllGather, ranges,
                            [&](View view) { return comm.AllGather(group, view); }));
  }
  return absl::OkStatus();
}

// Within about `seconds`, where three calls of a kind do not take longer.
absl::StatusOr<std::vector<CollectivePoint>> MeasureLinks(Device& device, Comm& comm,
                                                          double seconds) {
  const int ranks = comm.world_size();
  const int64_t largest =
      *std::max_element(std::begin(kMessageBytes), std::end(kMessageBytes)) + 4 * ranks;
  void* data = device.Allocate(largest);
  if (data == nullptr) return absl::ResourceExhaustedError("no memory to measure with");
  device.Zero(View{data, 1, largest / 4, DType::kF32});
  ASSIGN_OR_RETURN(const int world, NeighbourGroup(comm, ranks));
  const std::vector<int> sizes = GroupSizes(ranks);
  constexpr size_t kCollectives = 3;  // of MeasureGroup, beside a transfer
  const size_t calls = std::size(kMessageBytes) * (1 + kCollectives * sizes.size());
  LinkTimer timer(comm, world, seconds / static_cast<double>(calls), &NowSeconds);
  std::vector<CollectivePoint> points;
  for (const int64_t bytes : kMessageBytes) {
    const View message{data, 1, bytes / 4, DType::kF32};
    double both_s = 0;
    ASSIGN_OR_RETURN(both_s, timer.Time([&] { return PingPong(comm, message); }));
    points.push_back({Collective::kSendReceive, 2, bytes, both_s / 2});
  }
  for (const int size : sizes) {
    int group = world;
    if (size < ranks) {
      ASSIGN_OR_RETURN(group, NeighbourGroup(comm, size));
    }
    RETURN_IF_ERROR(MeasureGroup(comm, timer, size, group, data, points));
  }
  device.Free(data, largest);
  return points;
}

std::string LinksJson(int ranks, const std::vector<CollectivePoint>& points) {
  std::vector<std::string> items;
  items.reserve(points.size());
  for (const CollectivePoint& point : points) {
    items.push_back(
        absl::StrFormat("{\"collective\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"seconds\": %.6g}",
                        CollectiveName(point.collective), point.ranks, point.bytes, point.seconds));
  }
  return absl::StrFormat("\"ranks\": %d, \"collectives\": [%s]", ranks, absl::StrJoin(items, ", "));
}

// Empty on ranks other than 0.
absl::StatusOr<std::string> MeasuredLinks(const ProbeOptions& options, const BackendApi& api) {
  RETURN_IF_ERROR(DieWithParent(SIGKILL, getppid()));
  ASSIGN_OR_RETURN(const ProcessRank me, FindProcessRank(FromEnvironment));
  Device* device = nullptr;
  const DeviceOptions device_options{.local_index = me.local_rank, .threads = options.threads};
  RETURN_IF_ERROR(ToStatus(api.open_device(&device_options, &device)));
  Comm* comm = nullptr;
  const CommOptions comm_options{.init_timeout_ms = kCommTimeoutMs, .timeout_ms = kCommTimeoutMs};
  RETURN_IF_ERROR(ToStatus(api.open_comm(&comm_options, &comm)));
  if (comm->world_size() < 2) {
    return absl::FailedPreconditionError("links are measured by 2 or more ranks under mpirun");
  }
  // A rank that fails leaves at once, its peers may wait for it: mpirun ends them.
  ASSIGN_OR_RETURN(const std::vector<CollectivePoint> points,
                   MeasureLinks(*device, *comm, options.seconds));
  const int64_t library_bytes = ResidentBytes();
  const bool first = comm->rank() == 0;
  api.close_comm(comm);
  api.close_device(device);
  if (!first) return std::string();
  return absl::StrCat(LinksJson(me.world_size, points), ", \"library_bytes\": ", library_bytes);
}

}  // namespace

absl::StatusOr<ProbeKind> ParseProbeKind(absl::string_view name) {
  if (name == "devices") return ProbeKind::kDevices;
  if (name == "rates") return ProbeKind::kRates;
  if (name == "links") return ProbeKind::kLinks;
  return absl::InvalidArgumentError(
      absl::StrCat("--probe: \"", name, "\" is unknown; use devices, rates or links"));
}

int ProbeExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "weft-worker: %s\n", absl::StrCat(status.message()).c_str());
  const bool cannot = absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
                      absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  return cannot ? 2 : 1;
}

absl::Status Probe(const ProbeOptions& options) {
  if (options.backend != "cpu" && options.backend != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend: \"", options.backend, "\" is unknown; use cpu or cuda"));
  }
  const BackendKind kind = options.backend == "cpu" ? BackendKind::kCpu : BackendKind::kCuda;
  ASSIGN_OR_RETURN(const BackendApi* api, LoadBackend(kind, options.backend_folder));
  ASSIGN_OR_RETURN(const std::string head, HeadJson(*api));
  std::string measured;
  if (options.kind == ProbeKind::kRates) {
    ASSIGN_OR_RETURN(measured, MeasuredRates(options, *api));
  } else if (options.kind == ProbeKind::kLinks) {
    ASSIGN_OR_RETURN(measured, MeasuredLinks(options, *api));
    if (measured.empty()) return absl::OkStatus();
  }
  std::printf("{%s%s%s}\n", head.c_str(), measured.empty() ? "" : ", ", measured.c_str());
  return absl::OkStatus();
}

}  // namespace weft
