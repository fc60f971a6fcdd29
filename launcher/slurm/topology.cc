#include "launcher/slurm/topology.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/slurm/node_list.h"

namespace weft {
namespace {

// The leaf of each node; the first counts.
std::map<std::string, std::string> LeavesIn(absl::string_view text) {
  std::map<std::string, std::string> leaves;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    std::string name, nodes;
    bool is_inner = false;
    for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      if (absl::ConsumePrefix(&word, "SwitchName=") || absl::ConsumePrefix(&word, "BlockName=")) {
        name = std::string(word);
      } else if (absl::ConsumePrefix(&word, "Nodes=")) {
        nodes = std::string(word);
      } else if (absl::ConsumePrefix(&word, "Level=")) {
        is_inner = word != "0";
      }
    }
    if (name.empty() || nodes.empty() || is_inner) continue;
    const absl::StatusOr<std::vector<std::string>> list = ExpandNodeList(nodes);
    if (!list.ok()) continue;
    for (const std::string& node : *list) leaves.try_emplace(node, name);
  }
  return leaves;
}

}  // namespace

bool SetTopology(absl::string_view text, std::vector<ListedHost>* hosts) {
  const std::map<std::string, std::string> leaves = LeavesIn(text);
  std::vector<std::pair<std::string, std::vector<ListedHost>>> groups;
  for (const ListedHost& host : *hosts) {
    const auto leaf = leaves.find(host.name);
    if (leaf == leaves.end() || !host.domain.empty()) return false;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& each) { return each.first == leaf->second; });
    if (group == groups.end()) group = groups.insert(group, {leaf->second, {}});
    group->second.push_back(host);
    group->second.back().domain = leaf->second;
  }
  if (groups.size() < 2) return false;
  hosts->clear();
  for (auto& [leaf, group] : groups) hosts->insert(hosts->end(), group.begin(), group.end());
  return true;
}

std::string LeafOfAddress(absl::string_view address, absl::string_view pattern) {
  const std::vector<std::string> names = absl::StrSplit(address, '.');
  const std::vector<std::string> kinds = absl::StrSplit(pattern, '.');
  // A name with a dot of its own would be taken for two.
  if (kinds.size() < 2 || names.size() != kinds.size() || kinds.back() != "node") return "";
  return names[names.size() - 2];
}

std::string TopologyText(const std::vector<ListedHost>& hosts) {
  std::string text;
  for (size_t i = 0; i < hosts.size(); ++i) {
    absl::StrAppend(&text, hosts[i].name);
    const bool is_last = i + 1 == hosts.size();
    const bool ends = is_last || hosts[i + 1].domain != hosts[i].domain;
    if (ends) absl::StrAppend(&text, " on ", hosts[i].domain);
    if (!is_last) absl::StrAppend(&text, ends ? "; " : ", ");
  }
  return text;
}

}  // namespace weft
