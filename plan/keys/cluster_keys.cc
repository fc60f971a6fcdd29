#include "plan/keys/cluster_keys.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/keys/key_field.h"
#include "plan/keys/value_reader.h"
#include "plan/keys/value_text.h"

namespace weft {
namespace {

// A key of a profile, what it fills, and what happens without it.
struct ClusterKey {
  absl::string_view name;
  KeyField (*field)(Cluster&);
  bool needed = false;
  bool kept_if_empty = true;  // false: not written where it is 0 or a list of none
};

#define WEFT_FIELD(member) [](Cluster& cluster) -> KeyField { return &cluster.member; }
// Keys are in the order in which they are written.
constexpr ClusterKey kKeys[] = {
    {"name", WEFT_FIELD(name), true},
    {"nodes", WEFT_FIELD(nodes)},
    {"slots_per_node", WEFT_FIELD(slots_per_node), true},
    {"cores_per_node", WEFT_FIELD(cores_per_node)},
    {"nics_per_node", WEFT_FIELD(nics_per_node)},
    {"host_memory_bytes", WEFT_FIELD(host_memory_bytes)},
    {"host_library_bytes", WEFT_FIELD(host_library_bytes), false, false},
    {"device.name", WEFT_FIELD(device.name), true},
    {"device.backend", WEFT_FIELD(device.backend), true},
    {"device.memory_bytes", WEFT_FIELD(device.memory_bytes), true},
    {"device.library_bytes", WEFT_FIELD(device.library_bytes), true},
    {"device.compute_units", WEFT_FIELD(device.compute_units)},
    {"device.peak_flops_per_s.fp32", WEFT_FIELD(device.peak_flops_per_s.fp32), true},
    {"device.peak_flops_per_s.bf16", WEFT_FIELD(device.peak_flops_per_s.bf16)},
    {"device.peak_flops_per_s.fp8", WEFT_FIELD(device.peak_flops_per_s.fp8)},
    {"device.peak_memory_bytes_per_s", WEFT_FIELD(device.peak_memory_bytes_per_s), true},
    {"device.efficiency.matmul_fp32", WEFT_FIELD(device.matmul_efficiency.fp32), true},
    {"device.efficiency.matmul_bf16", WEFT_FIELD(device.matmul_efficiency.bf16)},
    {"device.efficiency.matmul_fp8", WEFT_FIELD(device.matmul_efficiency.fp8)},
    {"device.efficiency.attention", WEFT_FIELD(device.attention_efficiency), true},
    {"device.efficiency.streaming", WEFT_FIELD(device.streaming_efficiency), true},
    {"device.op_overhead_s", WEFT_FIELD(device.op_overhead_s), true},
    {"device.matmuls", WEFT_FIELD(device.matmuls), false, false},
    {"intra_node.latency_s", WEFT_FIELD(intra_node.latency_s), true},
    {"intra_node.bytes_per_s", WEFT_FIELD(intra_node.bytes_per_s), true},
    {"intra_node.switch_reduces", WEFT_FIELD(intra_node.switch_reduces)},
    {"inter_node.latency_s", WEFT_FIELD(inter_node.latency_s)},
    {"inter_node.bytes_per_s", WEFT_FIELD(inter_node.bytes_per_s)},
    {"inter_node.switch_reduces", WEFT_FIELD(inter_node.switch_reduces)},
    {"storage.node_bytes_per_s", WEFT_FIELD(storage.node_bytes_per_s)},
    {"storage.total_bytes_per_s", WEFT_FIELD(storage.total_bytes_per_s)},
    {"failures.device_mtbf_hours", WEFT_FIELD(failures.device_mtbf_hours)},
    {"failures.restart_s", WEFT_FIELD(failures.restart_s)},
    {"price_per_device_hour", WEFT_FIELD(price_per_device_hour), false, false},
    {"collectives", WEFT_FIELD(collectives), false, false},
};
#undef WEFT_FIELD

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

void CheckKnownKeys(const ValueReader& values, const Value& map, const std::string& path) {
  const std::vector<std::string> known = KnownIn(path);
  for (const auto& [name, node] : map.entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    values.CheckKnown(dotted, known);
    if (std::find(known.begin(), known.end(), name) == known.end()) continue;
    if (!IsLeaf(dotted) && node.is_map()) {
      CheckKnownKeys(values, node, dotted);
    } else if (!IsLeaf(dotted)) {
      values.Wrong(dotted, absl::StrCat("found ", node.Found(), "; expected a map"));
    }
  }
}

void CheckNeeded(const ValueReader& values) {
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

// Returns where the value stands that an issue of ClusterIssues is about.
Place PlaceOfIssue(const ValueReader& values, absl::string_view key) {
  const size_t bracket = key.find('[');
  int64_t index = 0;
  if (bracket == absl::string_view::npos ||
      !absl::SimpleAtoi(key.substr(bracket + 1, key.find(']') - bracket - 1), &index)) {
    return values.PlaceOf(key);
  }
  const Value* list = values.Node(key.substr(0, bracket));
  if (list == nullptr || index >= std::ssize(list->items)) return values.PlaceOf("");
  return list->items[static_cast<size_t>(index)].place;
}

}  // namespace

Cluster ReadClusterMap(const Value& tree, Issues* issues) {
  Cluster cluster;
  const size_t before = issues->all().size();
  const ValueReader values(tree, "", issues);
  CheckKnownKeys(values, tree, "");
  CheckNeeded(values);
  for (const ClusterKey& key : kKeys) ReadKey(values, key.name, key.field(cluster), nullptr);
  if (issues->all().size() > before) return cluster;
  for (const SpecIssue& issue : ClusterIssues(cluster)) {
    std::string field(absl::StripPrefix(issue.key, "cluster."));
    if (field == "slots" || field == "gpus_per_node") field = "slots_per_node";
    issues->Add(PlaceOfIssue(values, field), field, issue.message);
  }
  return cluster;
}

Value ClusterTree(Cluster cluster) {
  Value tree = Value::Map();
  const bool is_connected = cluster.inter_node != LinkProfile{};
  for (const ClusterKey& key : kKeys) {
    Value value = PrintField(key.field(cluster));
    const bool is_empty = value.is_null() || value.scalar == "0";
    if (is_empty && !key.kept_if_empty) continue;
    if (!is_connected && absl::StartsWith(key.name, "inter_node.")) continue;
    tree.Put(key.name, std::move(value));
  }
  return tree;
}

std::string ClusterFingerprint(Cluster cluster) {
  cluster.price_per_device_hour = 0;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a of 64 bits
  for (const char c : LineText(ClusterTree(std::move(cluster)))) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::vector<ClusterKeyForm> ClusterKeyForms() {
  Cluster cluster;
  std::vector<ClusterKeyForm> forms;
  for (const ClusterKey& key : kKeys) {
    forms.push_back({key.name, FormOf(key.field(cluster)), key.needed});
  }
  return forms;
}

std::vector<std::string> ClusterKeys() {
  std::vector<std::string> keys;
  for (const ClusterKey& key : kKeys) keys.emplace_back(key.name);
  return keys;
}

}  // namespace weft
