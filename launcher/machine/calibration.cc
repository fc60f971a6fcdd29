#include "launcher/machine/calibration.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// A worker holds at least this much beside its buffers once its link and its log are there too; on
// a GPU that is the kernels that its libraries load as they are first needed, and a context.
constexpr int64_t kLeastHostLibraryBytes = int64_t{48} << 20;
// weft, weftd, the agent, mpirun and shims.
constexpr int64_t kOwnBytesOfAHost = int64_t{96} << 20;
constexpr int64_t kLeastDeviceLibraryBytes = int64_t{1} << 30;
// Libraries hold so many times what they held in the probe: a job has more groups and shapes. A
// GPU's context, which is most of it there, does not grow.
constexpr double kHostLibraryGrowth = 2;
constexpr double kDeviceLibraryGrowth = 1.25;

// Workers get this share of the memory that is free now; the rest is left to everything else.
constexpr double kMemoryShare = 0.9;

// Four digits: more were noise.
double Rounded(double value) {
  double rounded = value;
  return absl::SimpleAtod(absl::StrFormat("%.4g", value), &rounded) ? rounded : value;
}

double Share(double part, double whole) {
  return std::clamp(std::round(part / whole * 1000) / 1000, 0.001, 1.0);
}

// The middle rate of the larger half of the products.
double SustainedFlopsPerS(std::vector<MatmulPoint> points) {
  const auto work = [](const MatmulPoint& point) {
    return static_cast<double>(point.m) * static_cast<double>(point.n) *
           static_cast<double>(point.k);
  };
  std::sort(points.begin(), points.end(), [&](const MatmulPoint& a, const MatmulPoint& b) {
    return work(a) != work(b) ? work(a) > work(b) : a.flops_per_s < b.flops_per_s;
  });
  std::vector<double> rates;
  for (size_t i = 0; i < (points.size() + 1) / 2; ++i) rates.push_back(points[i].flops_per_s);
  std::nth_element(rates.begin(), rates.begin() + std::ssize(rates) / 2, rates.end());
  return rates[rates.size() / 2];
}

absl::Status ReadRates(const Json& probe, Cluster& cluster) {
  const Json& rates = probe.at("rates");
  DeviceProfile& device = cluster.device;
  for (const Json& item : rates.at("matmuls")) {
    MatmulPoint point{item.at("m"), item.at("n"), item.at("k"), Precision::kFp32,
                      Rounded(item.at("flops_per_s"))};
    ASSIGN_OR_RETURN(point.precision, ParsePrecision(item.at("precision").get<std::string>()));
    device.matmuls.push_back(point);
  }
  const auto set_peak = [&](Precision precision, double* peak, double* efficiency) {
    std::vector<MatmulPoint> points;
    for (const MatmulPoint& point : device.matmuls) {
      if (point.precision != precision) continue;
      points.push_back(point);
      *peak = std::max(*peak, point.flops_per_s);
    }
    if (!points.empty()) *efficiency = Share(SustainedFlopsPerS(points), *peak);
  };
  set_peak(Precision::kFp32, &device.peak_flops_per_s.fp32, &device.matmul_efficiency.fp32);
  set_peak(Precision::kBf16, &device.peak_flops_per_s.bf16, &device.matmul_efficiency.bf16);
  set_peak(Precision::kFp8, &device.peak_flops_per_s.fp8, &device.matmul_efficiency.fp8);
  ASSIGN_OR_RETURN(const Precision attention,
                   ParsePrecision(rates.at("attention_precision").get<std::string>()));
  const double fastest = device.peak_flops_per_s.of(attention);
  if (fastest <= 0) {
    return absl::InternalError(
        absl::StrCat("no matrix product of ", WordOf(attention), " was measured"));
  }
  device.attention_efficiency = Share(rates.at("attention_flops_per_s"), fastest);
  const double stream = rates.at("stream_bytes_per_s");
  device.peak_memory_bytes_per_s = Rounded(stream);
  device.streaming_efficiency = Share(rates.at("operation_bytes_per_s"), stream);
  device.op_overhead_s = Rounded(rates.at("op_overhead_s"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CollectivePoint>> PointsOf(const Json& links) {
  std::vector<CollectivePoint> points;
  for (const Json& item : links.at("collectives")) {
    CollectivePoint point{Collective::kAllReduce, item.at("ranks"), item.at("bytes"),
                          Rounded(item.at("seconds")), item.value("nodes", 1)};
    ASSIGN_OR_RETURN(
        point.collective,
        ParseWord<Collective>(item.at("collective").get<std::string>(), "a collective"));
    points.push_back(point);
  }
  return points;
}

absl::Status Fill(const MachineFacts& facts, const Json& rates, const Json& links,
                  Cluster& cluster) {
  cluster.name = facts.name;
  cluster.slots_per_node = facts.slots;
  cluster.host_memory_bytes = facts.total_memory_bytes;
  cluster.storage.node_bytes_per_s = Rounded(facts.storage_bytes_per_s);
  DeviceProfile& device = cluster.device;
  device.backend = facts.backend;
  const Json& first = rates.at("devices").at(0);
  device.name = first.at("name");
  device.compute_units = first.at("compute_units");
  int64_t library_bytes = rates.at("library_bytes");
  int64_t shared_bytes = rates.value("shared_bytes", int64_t{0});
  RETURN_IF_ERROR(ReadRates(rates, cluster));
  if (links.is_object()) {
    library_bytes = std::max(library_bytes, links.at("library_bytes").get<int64_t>());
    shared_bytes = std::max(shared_bytes, links.value("shared_bytes", int64_t{0}));
    ASSIGN_OR_RETURN(cluster.collectives, PointsOf(links));
    cluster.intra_node = FitLink(cluster.collectives);
  } else {
    cluster.intra_node = {.latency_s = 0, .bytes_per_s = device.StreamBytesPerS()};
  }
  const bool is_host = facts.backend == BackendKind::kCpu;
  const double growth = is_host ? kHostLibraryGrowth : kDeviceLibraryGrowth;
  const int64_t own_bytes = std::max<int64_t>(0, library_bytes - shared_bytes);
  device.library_bytes = std::max(is_host ? kLeastHostLibraryBytes : kLeastDeviceLibraryBytes,
                                  static_cast<int64_t>(growth * static_cast<double>(own_bytes)));
  if (is_host) {
    cluster.cores_per_node = facts.cores;
    cluster.host_library_bytes = kOwnBytesOfAHost + shared_bytes;
    const double dealt = kMemoryShare * static_cast<double>(facts.free_memory_bytes) -
                         static_cast<double>(cluster.host_library_bytes);
    device.memory_bytes = static_cast<int64_t>(std::max(0.0, dealt) / facts.slots) >> 20 << 20;
  } else {
    device.memory_bytes = first.at("memory_bytes");
  }
  return absl::OkStatus();
}

absl::Status AddAcrossHosts(const Json& links, int nics, Cluster& cluster) {
  const int nodes = links.at("nodes");
  const int ranks = links.at("ranks");
  if (nodes < 2) {
    return absl::InvalidArgumentError("is of one host; links between hosts take two");
  }
  const absl::string_view backend = WordOf(cluster.device.backend);
  if (links.at("backend").get<std::string>() != backend) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is of backend ", links.at("backend").get<std::string>(), ", the profile of ", backend));
  }
  ASSIGN_OR_RETURN(const std::vector<CollectivePoint> points, PointsOf(links));
  std::vector<CollectivePoint> of_the_network;
  std::erase_if(cluster.collectives, [](const CollectivePoint& point) { return point.nodes > 1; });
  for (const CollectivePoint& point : points) {
    if (point.nodes < 2) continue;
    cluster.collectives.push_back(point);
    if (point.ranks == point.nodes) of_the_network.push_back(point);
  }
  cluster.inter_node = FitLink(of_the_network);
  cluster.nics_per_node = nics;
  // All ranks of a node were at it at once.
  if (nics > 0) cluster.inter_node.bytes_per_s *= static_cast<double>(ranks) / nodes / nics;
  cluster.inter_node.bytes_per_s = Rounded(cluster.inter_node.bytes_per_s);
  return absl::OkStatus();
}

}  // namespace

absl::Status AddLinksAcrossHosts(const std::string& json, int nics, Cluster* cluster) {
  const absl::StatusOr<Json> links = ParseJson(json, {.most_bytes = kMostLinksBytes});
  if (!links.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is not what a run's measuring leaves (", links.status().message(), ")"));
  }
  try {
    RETURN_IF_ERROR(AddAcrossHosts(*links, nics, *cluster));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("is not what a run's measuring leaves (", error.what(), ")"));
  }
  return CheckCluster(*cluster);
}

LinkProfile FitLink(const std::vector<CollectivePoint>& points) {
  // seconds = steps * latency + moved / rate; each equation is divided by its seconds.
  double ss = 0, sm = 0, mm = 0, s1 = 0, m1 = 0;
  for (const CollectivePoint& point : points) {
    const bool one_step = point.collective == Collective::kSendReceive;
    const double rounds = point.collective == Collective::kAllReduce ? 2 : 1;
    const double steps = one_step ? 1 : rounds * (point.ranks - 1);
    const double chunk = static_cast<double>(point.bytes) / (one_step ? 1 : point.ranks);
    const double s = steps / point.seconds;
    const double m = steps * chunk / point.seconds;
    ss += s * s;
    sm += s * m;
    mm += m * m;
    s1 += s;
    m1 += m;
  }
  const double determinant = ss * mm - sm * sm;
  double latency_s = determinant > 0 ? (s1 * mm - m1 * sm) / determinant : 0;
  double per_byte_s = determinant > 0 ? (m1 * ss - s1 * sm) / determinant : 0;
  if (latency_s < 0 || per_byte_s <= 0 || determinant <= 0) {
    latency_s = 0;  // bytes must cost something: the rate that the points show without a latency
    per_byte_s = mm > 0 ? m1 / mm : 0;
  }
  LinkProfile link;
  link.latency_s = Rounded(latency_s);
  link.bytes_per_s = per_byte_s > 0 ? Rounded(1 / per_byte_s) : 0;
  return link;
}

absl::StatusOr<Cluster> ClusterFromProbes(const MachineFacts& facts, const std::string& rates,
                                          const std::string& links) {
  Cluster cluster;
  try {
    const Json rates_json = ParseJson(rates).value_or(nullptr);
    const Json links_json = ParseJson(links, {.most_bytes = kMostLinksBytes}).value_or(nullptr);
    RETURN_IF_ERROR(Fill(facts, rates_json, links_json, cluster));
  } catch (const Json::exception& error) {
    return absl::InternalError(absl::StrCat("weft-worker --probe did not print what was expected (",
                                            error.what(), "); is it of the same version as weft?"));
  }
  RETURN_IF_ERROR(CheckCluster(cluster));
  return cluster;
}

}  // namespace weft
