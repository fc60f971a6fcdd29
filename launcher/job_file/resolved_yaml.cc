#include "launcher/job_file/resolved_yaml.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/job_keys.h"
#include "plan/keys/job_tree.h"
#include "plan/keys/value_reader.h"
#include "plan/keys/value_text.h"
#include "plan/spec/layout_spec.h"

namespace weft {
namespace {

// Names, if they differ; else the first line that does: the same profile, described anew.
std::pair<std::string, std::string> ProfileChange(Cluster before, Cluster after) {
  if (before.name != after.name) return {before.name, after.name};
  const auto lines_of = [](Cluster cluster) {
    cluster.nodes = cluster.slots_per_node = 1;
    return std::vector<std::string>(
        absl::StrSplit(LinesText(ClusterTree(std::move(cluster)), 0), '\n'));
  };
  const std::vector<std::string> old_lines = lines_of(before), new_lines = lines_of(after);
  size_t line = 0;
  while (line < old_lines.size() && line < new_lines.size() && old_lines[line] == new_lines[line]) {
    ++line;
  }
  const auto shown = [&](absl::Span<const std::string> lines) {
    return absl::StrCat(before.name, " with ",
                        line < lines.size() ? absl::StripAsciiWhitespace(lines[line]) : "no more");
  };
  return {shown(old_lines), shown(new_lines)};
}

}  // namespace

RunRecord ReadRecord(const Value& tree) {
  RunRecord record;
  Issues none;
  const ValueReader values(tree, "", &none);
  values.Read("resolved.run_id", &record.run_id);
  values.Read("resolved.generation", &record.generation);
  values.Read("resolved.weft_version", &record.weft_version);
  values.Read("resolved.planned_bytes", &record.planned_bytes);
  values.Read("resolved.predicted_step_s", &record.predicted_step_s);
  if (const Value* data = values.Node("resolved.data")) {
    for (const Value& file : data->items) record.data.push_back(file.scalar);
  }
  if (const Value* accepted = values.Node("resolved.accepted")) {
    for (const Value& change : accepted->items) record.accepted.push_back(change.scalar);
  }
  return record;
}

std::optional<Layout> FixedLayout(const JobSpec& job) {
  if (!IsComplete(job.layout)) return std::nullopt;
  return LayoutOf(job.layout);
}

std::vector<SpecChange> Changes(const JobSpec& before, const JobSpec& after) {
  std::map<std::string, std::string> old_texts;
  for (KeyText& old : KeyTexts(before)) old_texts.emplace(old.key, std::move(old.text));
  std::vector<SpecChange> changes;
  for (const KeyText& now : KeyTexts(after)) {
    const std::string old = std::exchange(old_texts[now.key], "");
    old_texts.erase(now.key);
    if (old == now.text) continue;
    SpecChange change{now.key, old, now.text, IsMathematics(now.kind)};
    if (now.key == "cluster.profile") {
      std::tie(change.before, change.after) = ProfileChange(before.cluster, after.cluster);
    }
    changes.push_back(std::move(change));
  }
  // A model's keys are not stated where they say nothing.
  for (const auto& [key, text] : old_texts) {
    if (absl::StartsWith(key, "model.")) changes.push_back({key, text, "not there", true});
  }
  return changes;
}

bool IsAcceptable(absl::string_view key) {
  const JobKey* const row = FindJobKey(key);
  return row != nullptr && row->kind == KeyKind::kAdjustable;
}

std::string AcceptableKeys() {
  std::vector<absl::string_view> keys;
  for (const JobKey& row : JobKeys()) {
    if (row.kind == KeyKind::kAdjustable) keys.push_back(row.key);
  }
  return absl::StrJoin(keys, ", ");
}

std::map<std::string, std::string> Mathematics(const JobSpec& job) {
  std::map<std::string, std::string> stated;
  for (KeyText& now : KeyTexts(job)) {
    // A source may move while what lies there stays the same: others compare that.
    if (IsMathematics(now.kind) && now.kind != KeyKind::kSource) {
      stated[now.key] = std::move(now.text);
    }
  }
  return stated;
}

std::vector<SpecChange> ChangedMathematics(const std::map<std::string, std::string>& before,
                                           const JobSpec& job) {
  std::vector<SpecChange> changes;
  const std::map<std::string, std::string> now = Mathematics(job);
  for (const auto& [key, value] : before) {
    const auto found = now.find(key);
    const std::string is = found == now.end() ? "not there" : found->second;
    if (is != value) changes.push_back({key, value, is, true});
  }
  const bool states_model = before.count("model.model_type") > 0;  // older manifests do not
  for (const auto& [key, value] : now) {
    if (states_model && absl::StartsWith(key, "model.") && before.count(key) == 0) {
      changes.push_back({key, "", value, true});
    }
  }
  return changes;
}

}  // namespace weft
