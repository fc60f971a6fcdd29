#include "launcher/cluster_yaml.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "launcher/job_keys.h"
#include "launcher/yaml_values.h"

namespace weft {
namespace {

void CheckKeys(const YamlNode& map, const std::string& path, Issues* issues) {
  const std::vector<std::string> known = ClusterKeys();
  for (const auto& [name, node] : map.entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    const bool leaf = std::find(known.begin(), known.end(), dotted) != known.end();
    const bool section =
        path.empty() && (name == "device" || name == "intra_node" || name == "inter_node");
    if (leaf) continue;
    if (section && node.is_map()) {
      CheckKeys(node, name, issues);
    } else if (section) {
      issues->Add(node.place, dotted, absl::StrCat("found ", node.Found(), "; expected a map"));
    } else {
      std::vector<std::string> siblings =
          path.empty() ? std::vector<std::string>{"device", "intra_node", "inter_node"}
                       : std::vector<std::string>();
      for (const std::string& key : known) {
        const bool inside = absl::StrContains(key, '.');
        if (path.empty() && !inside) siblings.push_back(key);
        if (!path.empty() && absl::StartsWith(key, path + ".")) {
          siblings.push_back(key.substr(path.size() + 1));
        }
      }
      const std::optional<std::string> nearest = Nearest(name, siblings);
      issues->Add(node.place, dotted,
                  nearest ? absl::StrCat("unknown key; did you mean ", *nearest, "?")
                          : absl::StrCat("unknown key; known are ", absl::StrJoin(siblings, ", ")));
    }
  }
}

Cluster FromTree(const YamlNode& tree, Issues* issues) {
  Cluster cluster;
  const size_t before = issues->all().size();
  CheckKeys(tree, "", issues);
  const YamlValues values(tree, "", issues);
  for (const std::string& key : ClusterKeys()) {
    const bool optional = key == "cores_per_node" || key == "nodes";
    if (!optional && !values.Has(key)) values.Wrong(key, "missing; a cluster profile needs it");
  }
  values.Read("name", &cluster.name);
  values.Read("nodes", &cluster.nodes);
  values.Read("slots_per_node", &cluster.slots_per_node);
  values.Read("cores_per_node", &cluster.cores_per_node);
  values.Read("device.name", &cluster.device.name);
  values.Read("device.memory_bytes", &cluster.device.memory_bytes);
  values.Read("device.library_bytes", &cluster.device.library_bytes);
  values.Read("device.matmul_flops_per_s", &cluster.device.matmul_flops_per_s);
  values.Read("device.memory_bytes_per_s", &cluster.device.memory_bytes_per_s);
  values.Read("device.op_overhead_s", &cluster.device.op_overhead_s);
  values.Read("intra_node.latency_s", &cluster.intra_node.latency_s);
  values.Read("intra_node.bytes_per_s", &cluster.intra_node.bytes_per_s);
  values.Read("inter_node.latency_s", &cluster.inter_node.latency_s);
  values.Read("inter_node.bytes_per_s", &cluster.inter_node.bytes_per_s);
  const std::string backend = values.Text("device.backend").value_or("cpu");
  if (backend != "cpu" && backend != "cuda") {
    values.Wrong("device.backend", absl::StrCat("found ", backend, "; expected cpu or cuda"));
  }
  cluster.device.backend = backend == "cuda" ? BackendKind::kCuda : BackendKind::kCpu;
  if (issues->all().size() == before) {
    for (const SpecIssue& issue : ClusterIssues(cluster)) {
      const std::string key(absl::StripPrefix(issue.key, "cluster."));
      const absl::string_view field =
          key == "slots" || key == "gpus_per_node" ? "slots_per_node" : key;
      issues->Add(values.PlaceOf(field), field, issue.message);
    }
  }
  return cluster;
}

std::string FindProfile(const std::string& name, const std::vector<std::string>& folders,
                        const std::string& job_folder) {
  std::error_code error;
  if (absl::StrContains(name, '/') || absl::EndsWith(name, ".yaml")) {
    const std::filesystem::path path = std::filesystem::path(job_folder) / name;
    return std::filesystem::is_regular_file(path, error) ? path.string() : "";
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

}  // namespace

std::vector<std::string> ClusterKeys() {
  return {"name",
          "nodes",
          "slots_per_node",
          "cores_per_node",
          "device.name",
          "device.backend",
          "device.memory_bytes",
          "device.library_bytes",
          "device.matmul_flops_per_s",
          "device.memory_bytes_per_s",
          "device.op_overhead_s",
          "intra_node.latency_s",
          "intra_node.bytes_per_s",
          "inter_node.latency_s",
          "inter_node.bytes_per_s"};
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
  std::ifstream stream(path);
  std::stringstream text;
  if (path.empty() || !stream || !(text << stream.rdbuf())) {
    issues->Add(
        profile.place, "cluster.profile",
        absl::StrCat("found no readable profile ", profile.scalar, "; use ",
                     absl::StrJoin(KnownProfiles(folders), ", "), " or the path of a file"));
    return {};
  }
  const std::optional<YamlNode> tree = ParseYaml(text.str(), path, profile.place.order, issues);
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
  const DeviceProfile& device = cluster.device;
  return absl::StrCat(in, "name: ", YamlText(cluster.name), "\n", in, "nodes: ", cluster.nodes,
                      "\n", in, "slots_per_node: ", cluster.slots_per_node, "\n", in,
                      "cores_per_node: ", cluster.cores_per_node, "\n", in, "device:\n", in,
                      "  name: ", YamlText(device.name), "\n", in,
                      "  backend: ", device.backend == BackendKind::kCuda ? "cuda" : "cpu", "\n",
                      in, "  memory_bytes: ", device.memory_bytes, "\n", in,
                      "  library_bytes: ", device.library_bytes, "\n", in,
                      "  matmul_flops_per_s: ", NumberText(device.matmul_flops_per_s), "\n", in,
                      "  memory_bytes_per_s: ", NumberText(device.memory_bytes_per_s), "\n", in,
                      "  op_overhead_s: ", NumberText(device.op_overhead_s), "\n", in,
                      "intra_node: {latency_s: ", NumberText(cluster.intra_node.latency_s),
                      ", bytes_per_s: ", NumberText(cluster.intra_node.bytes_per_s), "}\n", in,
                      "inter_node: {latency_s: ", NumberText(cluster.inter_node.latency_s),
                      ", bytes_per_s: ", NumberText(cluster.inter_node.bytes_per_s), "}\n");
}

}  // namespace weft
