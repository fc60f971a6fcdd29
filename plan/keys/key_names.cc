#include "plan/keys/key_names.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/keys/job_keys.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

struct Hint {
  absl::string_view key;  // last part of the dotted key
  absl::string_view message;
  absl::string_view share_of = "";  // the value converts: it is a share of this key's
};
// Keys of other systems that mean something else, or have no single counterpart.
constexpr Hint kHints[] = {
    {"warmup", "is a share of the steps elsewhere; write lr_scheduler.warmup_steps",
     "training.steps"},
    {"warmup_ratio", "is a share of the steps; write lr_scheduler.warmup_steps", "training.steps"},
    {"t_warmup", "holds a number and a unit; write lr_scheduler.warmup_steps in steps"},
    {"min_lr_factor", "is a share of lr elsewhere; write lr_scheduler.min_lr", "optimizer.lr"},
    {"alpha_f", "is a share of lr elsewhere; write lr_scheduler.min_lr", "optimizer.lr"},
    {"decay_ratio", "is a share of the steps elsewhere; write lr_scheduler.decay_steps",
     "training.steps"},
    {"max_duration", "holds a number and a unit; write training.steps or training.tokens"},
    {"checkpoint_activations", "is a flag; write activation_checkpointing.mode: full or none"},
    {"recompute_layer", "is a flag; write activation_checkpointing.mode: full or none"},
    {"gradient_checkpointing", "is a flag; write activation_checkpointing.mode: full or none"},
    {"recompute-granularity",
     "has other values; write activation_checkpointing.mode: none, selective or full"},
    {"precision", "has other values; write training.mixed_precision: bf16, fp16, fp8 or fp32"},
    {"dtype", "has other values; write training.mixed_precision: bf16, fp16, fp8 or fp32"},
    {"bf16", "is a section of flags elsewhere; write training.mixed_precision: bf16"},
    {"sharding_strategy",
     "has other values; write parallelism.zero_stage: 3 for FULL_SHARD, 2 for SHARD_GRAD_OP"},
    {"fsdp_reshard_after_forward",
     "has other values; write parallelism.zero_stage: 3 for always, 2 for never"},
    {"tp_mode", "has other values; write parallelism.sequence_parallel: true for REDUCE_SCATTER"},
    {"load_step", "is a step elsewhere; write checkpoint.resume: auto or none"},
    {"async_mode", "has other values; write checkpoint.async: false"},
    {"last_save_in_hf", "is a flag; write checkpoint.export_hf: never"},
    {"enable_cpu_offload", "is a flag; write offload.optimizer: cpu or none"},
    {"cpu_offload", "is a flag; write offload.optimizer: cpu or none"},
    {"checkpoint_in_cpu", "is a flag; write offload.optimizer: none"},
    {"num-layers-per-virtual-pipeline-stage",
     "counts layers; write parallelism.virtual_stages, the chunks of a stage"},
    {"hostfile", "is an option of weft run: --hostfile FILE; write cluster.nodes here"},
};

std::map<std::string, std::string> MakeAliasTable() {
  std::map<std::string, std::string> table;
  for (const JobKey& key : JobKeys()) {
    for (absl::string_view alias : absl::StrSplit(key.aliases, ' ', absl::SkipEmpty())) {
      table.emplace(alias, key.key);
      if (absl::StrContains(alias, '.')) continue;
      table.emplace(absl::StrCat(key.section(), ".", alias), key.key);
    }
    // Flat files (gpt-neox, Hugging Face arguments) hold the last part at the top.
    if (absl::StrContains(key.key, '.') && key.section() == "training") {
      table.emplace(key.name(), key.key);
    }
  }
  for (const char* too_vague : {"type", "rank", "alpha"}) table.erase(too_vague);
  return table;
}

// Dotted name anywhere in a file -> weft's key.
const std::map<std::string, std::string>& AliasTable() {
  static const auto* const table = new std::map<std::string, std::string>(MakeAliasTable());
  return *table;
}

bool IsSection(absl::string_view name) {
  const std::vector<std::string>& sections = JobSections();
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

// Moves `node` to the dotted key `to`, making its section if there is none.
void PutAt(Value* root, absl::string_view to, Value node, Issues* issues, const std::string& from) {
  if (const Value* taken = root->FindPath(to)) {
    issues->Add(node.place, from,
                absl::StrCat("is another name of ", to, ", which stands on line ",
                             taken->place.line, "; keep one of the two"));
    return;
  }
  root->Put(to, std::move(node));
}

// Takes every alias below `map` out of the tree, into `found` as (dotted name, node).
void TakeAliases(const std::map<std::string, std::string>& table, const std::string& path,
                 Value* map, std::vector<std::pair<std::string, Value>>* found) {
  std::set<std::string> taken;
  for (auto& [name, node] : map->entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    if (table.count(dotted) > 0 && FindJobKey(dotted) == nullptr && !node.is_map()) {
      found->emplace_back(dotted, std::move(node));
      taken.insert(name);
    } else if (node.is_map() && FindJobKey(dotted) == nullptr && dotted != "model") {
      const bool had_entries = !node.entries.empty();
      TakeAliases(table, dotted, &node, found);
      // A foreign section that held nothing but aliases goes with them.
      if (had_entries && node.entries.empty() && !IsSection(dotted)) {
        taken.insert(name);
      }
    }
  }
  for (const std::string& name : taken) map->Remove(name);
}

// The hint with the value that keeps the meaning, where the file says enough to compute it.
std::string HintText(const Hint& hint, const Value& root, const Value& node) {
  if (hint.share_of.empty()) return absl::StrCat(hint.message);
  const Value* whole = root.FindPath(hint.share_of);
  const auto share = ParseNumber(node.scalar);
  const auto total = whole != nullptr ? ParseNumber(whole->scalar) : std::nullopt;
  if (!share || !total) return absl::StrCat(hint.message, ": the share x ", hint.share_of);
  const double value = *share * *total;
  return absl::StrCat(
      hint.message, ": ",
      hint.share_of == "training.steps" ? absl::StrCat(std::llround(value)) : absl::StrCat(value));
}

void CheckUnknown(const Value& root, const Value& node, const std::string& name,
                  const std::string& path, Issues* issues) {
  const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
  for (const Hint& hint : kHints) {
    if (hint.key == name) {
      issues->Add(node.place, dotted, HintText(hint, root, node));
      return;
    }
  }
  std::vector<std::string> siblings = path.empty() ? JobSections() : std::vector<std::string>();
  for (const JobKey& key : JobKeys()) {
    if (!path.empty() && key.section() == path && key.key != path) {
      siblings.emplace_back(key.name());
    }
    if (key.name() == name) {
      issues->Add(node.place, dotted, absl::StrCat("unknown key; did you mean ", key.key, "?"));
      return;
    }
  }
  const std::map<std::string, std::string>& table = AliasTable();
  if (const auto alias = table.find(name); alias != table.end()) {
    issues->Add(node.place, dotted, absl::StrCat("unknown key; did you mean ", alias->second, "?"));
    return;
  }
  const std::string all = path.empty() ? "weft keys" : absl::StrCat("weft keys ", path);
  issues->Add(
      node.place, dotted,
      absl::StrCat("unknown key; ", Suggestion(name, siblings, absl::StrCat(all, " lists all"))));
}

void CheckMap(const Value& root, const Value& map, const std::string& path, Issues* issues) {
  for (const auto& [name, node] : map.entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    if (dotted == "model" || FindJobKey(dotted) != nullptr) continue;  // model: see model_config
    if (!path.empty() || !IsSection(name)) {
      CheckUnknown(root, node, name, path, issues);
    } else if (node.is_map()) {
      CheckMap(root, node, dotted, issues);
    } else if (!node.is_null()) {
      issues->Add(node.place, dotted,
                  absl::StrCat("found ", node.Found(), "; a section is a map of keys"));
    }
  }
}

}  // namespace

void RenameAliases(Value* root, Issues* issues, std::vector<std::string>* notes) {
  const std::map<std::string, std::string>& table = AliasTable();
  std::vector<std::pair<std::string, Value>> found;
  TakeAliases(table, "", root, &found);
  for (auto& [dotted, node] : found) {
    const std::string& to = table.at(dotted);
    notes->push_back(absl::StrCat(node.place.Text(), ": ", dotted, " is read as ", to));
    PutAt(root, to, std::move(node), issues, dotted);
  }
}

std::string CanonicalKey(absl::string_view dotted) {
  if (FindJobKey(dotted) != nullptr) return absl::StrCat(dotted);
  const std::map<std::string, std::string>& table = AliasTable();
  const auto found = table.find(absl::StrCat(dotted));
  return found == table.end() ? absl::StrCat(dotted) : found->second;
}

std::vector<std::pair<std::string, std::string>> KeyAliases() {
  std::vector<std::pair<std::string, std::string>> aliases;
  for (const auto& [alias, key] : AliasTable()) {
    const bool is_read = FindJobKey(alias) == nullptr && !absl::StartsWith(alias, "model.");
    if (is_read) aliases.emplace_back(alias, key);
  }
  return aliases;
}

void CheckKeys(const Value& root, Issues* issues) {
  CheckMap(root, root, "", issues);
  for (const JobKey& key : JobKeys()) {
    if (key.kind != KeyKind::kNotBuilt) continue;
    const Value* node = root.FindPath(key.key);
    if (node == nullptr || node->is_null()) continue;
    const std::vector<std::string> accepted = absl::StrSplit(key.otherwise, ' ', absl::SkipEmpty());
    if (node->is_scalar() &&
        std::find(accepted.begin(), accepted.end(), node->word()) != accepted.end()) {
      continue;
    }
    const std::string found = node->is_scalar() ? absl::StrCat(node->scalar, " ") : "";
    issues->Add(
        node->place, key.key,
        absl::StrCat(found, "is not supported yet; ",
                     accepted.empty() ? "leave the key out"
                                      : absl::StrCat("use ", absl::StrJoin(accepted, " or "))));
  }
}

}  // namespace weft
