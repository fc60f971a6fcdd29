#include "launcher/job_file/cluster_yaml.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "data/whole_file.h"
#include "launcher/job_file/yaml_values.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

// A key of a profile and what happens without it.
struct ClusterKey {
  absl::string_view name;
  bool needed = false;
};

// Keys are in the order in which they are written.
constexpr ClusterKey kKeys[] = {{"name", true},
                                {"nodes", false},
                                {"slots_per_node", true},
                                {"cores_per_node", false},
                                {"nics_per_node", false},
                                {"host_memory_bytes", false},
                                {"device.name", true},
                                {"device.backend", true},
                                {"device.memory_bytes", true},
                                {"device.library_bytes", true},
                                {"device.compute_units", false},
                                {"device.peak_flops_per_s.fp32", true},
                                {"device.peak_flops_per_s.bf16", false},
                                {"device.peak_flops_per_s.fp8", false},
                                {"device.peak_memory_bytes_per_s", true},
                                {"device.efficiency.matmul_fp32", true},
                                {"device.efficiency.matmul_bf16", false},
                                {"device.efficiency.matmul_fp8", false},
                                {"device.efficiency.attention", true},
                                {"device.efficiency.streaming", true},
                                {"device.op_overhead_s", true},
                                {"device.matmuls", false},
                                {"intra_node.latency_s", true},
                                {"intra_node.bytes_per_s", true},
                                {"intra_node.switch_reduces", false},
                                {"inter_node.latency_s", false},
                                {"inter_node.bytes_per_s", false},
                                {"inter_node.switch_reduces", false},
                                {"storage.node_bytes_per_s", false},
                                {"storage.total_bytes_per_s", false},
                                {"failures.device_mtbf_hours", false},
                                {"failures.restart_s", false},
                                {"price_per_device_hour", false},
                                {"collectives", false}};

// The names that may stand in the section `path`, each once.
std::vector<std::string> KnownIn(absl::string_view path) {
  const std::string prefix = path.empty() ? "" : absl::StrCat(path, ".");
  std::vector<std::string> names;
  for (const ClusterKey& key : kKeys) {
    if (!absl::StartsWith(key.name, prefix)) continue;
    const absl::string_view rest = key.name.substr(prefix.size());
    std::string name(rest.substr(0, rest.find('.')));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

bool IsLeaf(absl::string_view dotted) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const ClusterKey& key) { return key.name == dotted; });
}

void AddUnknown(const YamlNode& node, absl::string_view dotted, absl::string_view name,
                const std::vector<std::string>& known, Issues* issues) {
  const std::optional<std::string> nearest = Nearest(name, known);
  issues->Add(node.place, dotted,
              nearest ? absl::StrCat("unknown key; did you mean ", *nearest, "?")
                      : absl::StrCat("unknown key; known are ", absl::StrJoin(known, ", ")));
}

void CheckKeys(const YamlNode& map, const std::string& path, Issues* issues) {
  const std::vector<std::string> known = KnownIn(path);
  for (const auto& [name, node] : map.entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      AddUnknown(node, dotted, name, known, issues);
    } else if (!IsLeaf(dotted) && node.is_map()) {
      CheckKeys(node, dotted, issues);
    } else if (!IsLeaf(dotted)) {
      issues->Add(node.place, dotted, absl::StrCat("found ", node.Found(), "; expected a map"));
    }
  }
}

void CheckNeeded(const YamlValues& values) {
  for (const ClusterKey& key : kKeys) {
    if (key.needed && !values.Has(key.name)) {
      values.Wrong(key.name, "missing; a cluster profile needs it");
    }
  }
  for (const absl::string_view precision : {"bf16", "fp8"}) {
    const std::string peak = absl::StrCat("device.peak_flops_per_s.", precision);
    const std::string efficiency = absl::StrCat("device.efficiency.matmul_", precision);
    if (values.Has(peak) && !values.Has(efficiency)) {
      values.Wrong(efficiency, absl::StrCat("missing beside ", peak,
                                            "; give the share of the peak that is reached"));
    }
  }
  if (values.Has("inter_node.latency_s") != values.Has("inter_node.bytes_per_s")) {
    values.Wrong("inter_node", "needs both latency_s and bytes_per_s, or is left out");
  }
}

// Items of a list of maps that have exactly the keys `known`. `read` takes one of them.
template <typename ReadItem>
void ReadList(const YamlValues& values, absl::string_view list,
              const std::vector<std::string>& known, Issues* issues, ReadItem read) {
  const YamlNode* node = values.Node(list);
  if (node == nullptr) return;
  if (!node->is_list()) {
    values.Wrong(list, absl::StrCat("found ", node->Found(), "; expected a list"));
    return;
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    const YamlNode& item = node->items[i];
    const std::string path = absl::StrCat(list, "[", i, "]");
    if (!item.is_map()) {
      issues->Add(item.place, path, absl::StrCat("found ", item.Found(), "; expected a map"));
      continue;
    }
    for (const auto& [name, value] : item.entries) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      AddUnknown(value, absl::StrCat(path, ".", name), name, known, issues);
    }
    const YamlValues fields(item, path, issues);
    for (const std::string& name : known) {
      if (!fields.Has(name)) fields.Wrong(name, "missing");
    }
    read(fields);
  }
}

// A word that `parse` knows; what it says of any other becomes an issue.
template <typename T>
void ReadWord(const YamlValues& values, absl::string_view key,
              absl::StatusOr<T> (*parse)(absl::string_view), T* field) {
  const std::optional<std::string> text = values.Text(key);
  if (!text) return;
  const absl::StatusOr<T> parsed = parse(*text);
  if (parsed.ok()) {
    *field = *parsed;
  } else {
    values.Wrong(key, parsed.status().message());
  }
}

void ReadLink(const YamlValues& values, const std::string& section, LinkProfile* link) {
  values.Read(section + ".latency_s", &link->latency_s);
  values.Read(section + ".bytes_per_s", &link->bytes_per_s);
  link->switch_reduces = values.Flag(section + ".switch_reduces").value_or(false);
}

void ReadDevice(const YamlValues& values, Issues* issues, DeviceProfile* device) {
  values.Read("device.name", &device->name);
  const std::string backend = values.Text("device.backend").value_or("cpu");
  const absl::StatusOr<BackendKind> parsed = ParseBackend(backend);
  if (!parsed.ok()) values.Wrong("device.backend", absl::StrCat(parsed.status().message()));
  device->backend = parsed.value_or(BackendKind::kCpu);
  values.Read("device.memory_bytes", &device->memory_bytes);
  values.Read("device.library_bytes", &device->library_bytes);
  values.Read("device.compute_units", &device->compute_units);
  values.Read("device.peak_flops_per_s.fp32", &device->peak_flops_per_s.fp32);
  values.Read("device.peak_flops_per_s.bf16", &device->peak_flops_per_s.bf16);
  values.Read("device.peak_flops_per_s.fp8", &device->peak_flops_per_s.fp8);
  values.Read("device.peak_memory_bytes_per_s", &device->peak_memory_bytes_per_s);
  values.Read("device.efficiency.matmul_fp32", &device->matmul_efficiency.fp32);
  values.Read("device.efficiency.matmul_bf16", &device->matmul_efficiency.bf16);
  values.Read("device.efficiency.matmul_fp8", &device->matmul_efficiency.fp8);
  values.Read("device.efficiency.attention", &device->attention_efficiency);
  values.Read("device.efficiency.streaming", &device->streaming_efficiency);
  values.Read("device.op_overhead_s", &device->op_overhead_s);
  ReadList(values, "device.matmuls", {"m", "n", "k", "precision", "flops_per_s"}, issues,
           [&](const YamlValues& fields) {
             MatmulPoint point;
             fields.Read("m", &point.m);
             fields.Read("n", &point.n);
             fields.Read("k", &point.k);
             ReadWord(fields, "precision", &ParsePrecision, &point.precision);
             fields.Read("flops_per_s", &point.flops_per_s);
             device->matmuls.push_back(point);
           });
}

// Returns where the value stands that an issue of ClusterIssues is about.
Place PlaceOfIssue(const YamlValues& values, absl::string_view key) {
  const size_t bracket = key.find('[');
  int64_t index = 0;
  if (bracket == absl::string_view::npos ||
      !absl::SimpleAtoi(key.substr(bracket + 1, key.find(']') - bracket - 1), &index)) {
    return values.PlaceOf(key);
  }
  const YamlNode* list = values.Node(key.substr(0, bracket));
  if (list == nullptr || index >= std::ssize(list->items)) return values.PlaceOf("");
  return list->items[static_cast<size_t>(index)].place;
}

Cluster FromTree(const YamlNode& tree, Issues* issues) {
  Cluster cluster;
  const size_t before = issues->all().size();
  CheckKeys(tree, "", issues);
  const YamlValues values(tree, "", issues);
  CheckNeeded(values);
  values.Read("name", &cluster.name);
  values.Read("nodes", &cluster.nodes);
  values.Read("slots_per_node", &cluster.slots_per_node);
  values.Read("cores_per_node", &cluster.cores_per_node);
  values.Read("nics_per_node", &cluster.nics_per_node);
  values.Read("host_memory_bytes", &cluster.host_memory_bytes);
  ReadDevice(values, issues, &cluster.device);
  ReadLink(values, "intra_node", &cluster.intra_node);
  ReadLink(values, "inter_node", &cluster.inter_node);
  values.Read("storage.node_bytes_per_s", &cluster.storage.node_bytes_per_s);
  values.Read("storage.total_bytes_per_s", &cluster.storage.total_bytes_per_s);
  values.Read("failures.device_mtbf_hours", &cluster.failures.device_mtbf_hours);
  values.Read("failures.restart_s", &cluster.failures.restart_s);
  values.Read("price_per_device_hour", &cluster.price_per_device_hour);
  ReadList(values, "collectives", {"collective", "ranks", "bytes", "seconds"}, issues,
           [&](const YamlValues& fields) {
             CollectivePoint point;
             ReadWord(fields, "collective", &ParseCollective, &point.collective);
             fields.Read("ranks", &point.ranks);
             fields.Read("bytes", &point.bytes);
             fields.Read("seconds", &point.seconds);
             cluster.collectives.push_back(point);
           });
  if (issues->all().size() > before) return cluster;
  for (const SpecIssue& issue : ClusterIssues(cluster)) {
    std::string field(absl::StripPrefix(issue.key, "cluster."));
    if (field == "slots" || field == "gpus_per_node") field = "slots_per_node";
    issues->Add(PlaceOfIssue(values, field), field, issue.message);
  }
  return cluster;
}

std::string FindProfile(const std::string& name, const std::vector<std::string>& folders,
                        const std::string& job_folder) {
  std::error_code error;
  if (absl::StrContains(name, '/') || absl::EndsWith(name, ".yaml")) {
    const std::string path = AbsolutePath(name, job_folder);
    return std::filesystem::is_regular_file(path, error) ? path : "";
  }
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / absl::StrCat(name, ".yaml");
    if (std::filesystem::is_regular_file(path, error)) return path.lexically_normal().string();
  }
  return "";
}

// Names of the profiles that a bare name could have meant.
std::vector<std::string> KnownProfiles(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string LinkText(const LinkProfile& link) {
  return absl::StrCat("{latency_s: ", NumberText(link.latency_s),
                      ", bytes_per_s: ", NumberText(link.bytes_per_s),
                      ", switch_reduces: ", link.switch_reduces ? "true" : "false", "}");
}

}  // namespace

std::vector<std::string> ClusterKeys() {
  std::vector<std::string> keys;
  for (const ClusterKey& key : kKeys) keys.emplace_back(key.name);
  return keys;
}

Cluster ReadCluster(const YamlNode& profile, const std::vector<std::string>& folders,
                    const std::string& job_folder, Issues* issues) {
  if (profile.is_map()) return FromTree(profile, issues);
  if (!profile.is_scalar()) {
    issues->Add(profile.place, "cluster.profile",
                absl::StrCat("found ", profile.Found(), "; expected a name or a path"));
    return {};
  }
  const std::string path = FindProfile(profile.scalar, folders, job_folder);
  if (path.empty()) {
    issues->Add(
        profile.place, "cluster.profile",
        absl::StrCat("found no readable profile ", profile.scalar, "; use ",
                     absl::StrJoin(KnownProfiles(folders), ", "), " or the path of a file"));
    return {};
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostSpecBytes);
  if (!text.ok()) {
    issues->Add(profile.place, "cluster.profile", text.status().message());
    return {};
  }
  const std::optional<YamlNode> tree = ParseYaml(*text, path, profile.place.order, issues);
  if (!tree) return {};
  if (!tree->is_map()) {
    issues->Add(tree->place, "",
                absl::StrCat("found ", tree->Found(), "; a cluster profile is a map"));
    return {};
  }
  return FromTree(*tree, issues);
}

std::string ClusterText(const Cluster& cluster, int indent) {
  const std::string in(static_cast<size_t>(indent), ' ');
  std::string text;
  const auto line = [&](const auto&... parts) { absl::StrAppend(&text, in, parts..., "\n"); };
  line("name: ", YamlText(cluster.name));
  line("nodes: ", cluster.nodes);
  line("slots_per_node: ", cluster.slots_per_node);
  line("cores_per_node: ", cluster.cores_per_node);
  line("nics_per_node: ", cluster.nics_per_node);
  line("host_memory_bytes: ", cluster.host_memory_bytes);
  const DeviceProfile& device = cluster.device;
  line("device:");
  line("  name: ", YamlText(device.name));
  line("  backend: ", BackendName(device.backend));
  line("  memory_bytes: ", device.memory_bytes);
  line("  library_bytes: ", device.library_bytes);
  line("  compute_units: ", device.compute_units);
  line("  peak_flops_per_s: {fp32: ", NumberText(device.peak_flops_per_s.fp32),
       ", bf16: ", NumberText(device.peak_flops_per_s.bf16),
       ", fp8: ", NumberText(device.peak_flops_per_s.fp8), "}");
  line("  peak_memory_bytes_per_s: ", NumberText(device.peak_memory_bytes_per_s));
  line("  efficiency:");
  line("    matmul_fp32: ", NumberText(device.matmul_efficiency.fp32));
  line("    matmul_bf16: ", NumberText(device.matmul_efficiency.bf16));
  line("    matmul_fp8: ", NumberText(device.matmul_efficiency.fp8));
  line("    attention: ", NumberText(device.attention_efficiency));
  line("    streaming: ", NumberText(device.streaming_efficiency));
  line("  op_overhead_s: ", NumberText(device.op_overhead_s));
  if (!device.matmuls.empty()) line("  matmuls:");
  for (const MatmulPoint& point : device.matmuls) {
    line("    - {m: ", point.m, ", n: ", point.n, ", k: ", point.k,
         ", precision: ", PrecisionName(point.precision),
         ", flops_per_s: ", NumberText(point.flops_per_s), "}");
  }
  line("intra_node: ", LinkText(cluster.intra_node));
  if (cluster.inter_node != LinkProfile{}) line("inter_node: ", LinkText(cluster.inter_node));
  line("storage: {node_bytes_per_s: ", NumberText(cluster.storage.node_bytes_per_s),
       ", total_bytes_per_s: ", NumberText(cluster.storage.total_bytes_per_s), "}");
  line("failures: {device_mtbf_hours: ", NumberText(cluster.failures.device_mtbf_hours),
       ", restart_s: ", NumberText(cluster.failures.restart_s), "}");
  if (cluster.price_per_device_hour > 0) {
    line("price_per_device_hour: ", NumberText(cluster.price_per_device_hour));
  }
  if (!cluster.collectives.empty()) line("collectives:");
  for (const CollectivePoint& point : cluster.collectives) {
    line("  - {collective: ", CollectiveName(point.collective), ", ranks: ", point.ranks,
         ", bytes: ", point.bytes, ", seconds: ", NumberText(point.seconds), "}");
  }
  return text;
}

}  // namespace weft
