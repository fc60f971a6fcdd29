#include "plan/layout.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "plan/errors.h"

namespace weft {
namespace {

// "1", "1 to 4"
std::string UpToText(int64_t most) {
  return most <= 1 ? "1" : absl::StrCat("1 to ", most);
}

std::string SlotsText(const Cluster& cluster) {
  return absl::StrCat(cluster.slots(), " (cluster.nodes ", cluster.nodes, " x ",
                      SlotsKey(cluster.device.backend), " ", cluster.slots_per_node, ")");
}

// What no engine of ours runs yet.
void CheckBuilt(const Layout& layout, std::vector<SpecIssue>& issues) {
  if (layout.cp != 1) {
    issues.push_back({"parallelism.cp", absl::StrCat(layout.cp, " is not supported yet; use 1")});
  }
  if (layout.zero_stage != 0) {
    issues.push_back({"parallelism.zero_stage",
                      absl::StrCat(layout.zero_stage, " is not supported yet; use 0")});
  }
  if (layout.recompute != Recompute::kNone) {
    issues.push_back({"activation_checkpointing.mode", "is not supported yet; use none"});
  }
}

// Returns false if a degree is out of the range where it can be multiplied.
bool CheckSlots(const Cluster& cluster, const Layout& layout, std::vector<SpecIssue>& issues) {
  const std::vector<std::pair<absl::string_view, int>> degrees = {
      {"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}};
  const size_t before = issues.size();
  int64_t workers = 1;
  for (const auto& [axis, degree] : degrees) {
    const std::string key = absl::StrCat("parallelism.", axis);
    if (degree < 1) {
      issues.push_back({key, absl::StrCat(degree, " is too few; use 1 or more, or auto")});
    } else if (degree > cluster.slots()) {
      issues.push_back(
          {key, absl::StrCat(degree, " is more than the number of slots ", SlotsText(cluster),
                             "; use at most ", cluster.slots(), " or more slots")});
    }
    workers *= std::clamp(degree, 1, cluster.slots());
  }
  if (issues.size() > before) return false;
  if (workers > cluster.slots()) {
    issues.push_back(
        {"parallelism", absl::StrCat("dp ", layout.dp, " x tp ", layout.tp, " x pp ", layout.pp,
                                     " = ", workers, " workers are more than the number of slots ",
                                     SlotsText(cluster), "; lower a degree or use more slots")});
  }
  return true;
}

void CheckTensorDegree(const ModelShape& model, const Cluster& cluster, const Layout& layout,
                       std::vector<SpecIssue>& issues) {
  const ModelKeys keys = KeysOf(model.family);
  const int64_t other_degrees = int64_t{layout.dp} * layout.pp;
  const int64_t most =
      std::min<int64_t>(model.vocab_size, std::max<int64_t>(1, cluster.slots() / other_degrees));
  const int64_t common = std::gcd(std::gcd(model.num_heads, model.num_kv_heads), model.ffn_size);
  const std::vector<std::pair<absl::string_view, int64_t>> divided = {
      {keys.num_heads, model.num_heads},
      {keys.num_kv_heads, model.num_kv_heads},
      {keys.ffn_size, model.ffn_size}};
  for (const auto& [name, value] : divided) {
    if (value % layout.tp == 0) continue;
    issues.push_back(
        {"parallelism.tp", absl::StrCat(layout.tp, " does not divide ", name, " ", value, "; use ",
                                        DivisorsText(common, most, layout.tp))});
    return;
  }
  if (layout.tp > model.vocab_size) {
    issues.push_back({"parallelism.tp", absl::StrCat(layout.tp, " is more than ", keys.vocab_size,
                                                     " ", model.vocab_size, "; use ",
                                                     DivisorsText(common, most, layout.tp))});
  }
}

void CheckLength(const ModelShape& model, const BatchShape& batch, std::vector<SpecIssue>& issues) {
  const absl::string_view positions = KeysOf(model.family).max_positions;
  if (batch.seq_len < 1) {
    issues.push_back(
        {"training.seq_len", absl::StrCat(batch.seq_len, " is too short; use 1 to model.",
                                          positions, " ", model.max_positions)});
  } else if (batch.seq_len > model.max_positions) {
    issues.push_back({"training.seq_len",
                      absl::StrCat(batch.seq_len, " is more than model.", positions, " ",
                                   model.max_positions, "; use at most ", model.max_positions)});
  }
}

// One factor of the batch equation, as far as it is known.
struct BatchFactor {
  absl::string_view key;
  std::optional<int64_t> value;
};

// Larger batches than anyone trains; the product of three such factors is within int64_t.
constexpr int64_t kMaxBatch = int64_t{1} << 20;

// Returns false if a value is out of the range where it can be multiplied.
bool CheckBatchRanges(absl::Span<const BatchFactor> values, std::vector<SpecIssue>& issues) {
  bool sound = true;
  for (const BatchFactor& factor : values) {
    if (!factor.value || (*factor.value >= 1 && *factor.value <= kMaxBatch)) continue;
    sound = false;
    issues.push_back({std::string{factor.key},
                      absl::StrCat(*factor.value, " is out of range; use 1 to ", kMaxBatch)});
  }
  return sound;
}

// global_batch_size = product of all factors; a multiple of the product of those that are known.
void CheckBatchEquation(int64_t global_batch_size, absl::Span<const BatchFactor> factors,
                        std::vector<SpecIssue>& issues) {
  constexpr absl::string_view kGlobal = "training.global_batch_size";
  int64_t product = 1;
  std::vector<std::string> known;
  absl::string_view known_key;
  for (const BatchFactor& factor : factors) {
    if (!factor.value) continue;
    product *= *factor.value;
    known.push_back(absl::StrCat(factor.key, " ", *factor.value));
    known_key = factor.key;
  }
  const bool all_known = known.size() == factors.size();
  if (all_known ? global_batch_size == product : global_batch_size % product == 0) return;
  if (known.size() == 1) {
    issues.push_back(
        {std::string{known_key},
         absl::StrCat(product, " does not divide ", kGlobal, " ", global_batch_size, "; use ",
                      DivisorsText(global_batch_size, global_batch_size, product))});
    return;
  }
  issues.push_back({std::string{kGlobal},
                    absl::StrCat(global_batch_size, all_known ? " is not " : " is no multiple of ",
                                 absl::StrJoin(known, " x "), " = ", product, "; use ",
                                 all_known ? "" : "a multiple of ", product,
                                 ", or auto for one of the others")});
}

}  // namespace

std::vector<SpecIssue> DegreeIssues(const ModelShape& model, const Cluster& cluster,
                                    const Layout& layout) {
  std::vector<SpecIssue> issues;
  CheckBuilt(layout, issues);
  if (!CheckSlots(cluster, layout, issues)) return issues;
  CheckTensorDegree(model, cluster, layout, issues);
  if (layout.pp > model.num_blocks) {
    issues.push_back({"parallelism.pp",
                      absl::StrCat(layout.pp, " is more than ", KeysOf(model.family).num_blocks,
                                   " ", model.num_blocks, "; use ", UpToText(model.num_blocks))});
  }
  return issues;
}

std::vector<SpecIssue> BatchIssues(const ModelShape& model, const BatchShape& batch,
                                   std::optional<int64_t> dp,
                                   std::optional<int64_t> micro_batch_size,
                                   std::optional<int64_t> gradient_accumulation_steps) {
  std::vector<SpecIssue> issues;
  CheckLength(model, batch, issues);
  const BatchFactor global = {"training.global_batch_size", batch.global_batch_size};
  const BatchFactor factors[] = {
      {"training.micro_batch_size", micro_batch_size},
      {"training.gradient_accumulation_steps", gradient_accumulation_steps},
      {"parallelism.dp", dp}};
  const bool global_is_sound = CheckBatchRanges({&global, 1}, issues);
  const bool factors_are_sound = CheckBatchRanges(factors, issues);
  if (global_is_sound && factors_are_sound) {
    CheckBatchEquation(batch.global_batch_size, factors, issues);
  }
  return issues;
}

absl::Status CheckLayout(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                         const Layout& layout) {
  RETURN_IF_ERROR(FirstIssue(DegreeIssues(model, cluster, layout)));
  return FirstIssue(
      BatchIssues(model, batch, layout.dp, layout.micro_batch_size, layout.num_microbatches));
}

BlockRange StageBlocks(int64_t num_blocks, int stages, int stage) {
  CHECK(stages >= 1 && stage >= 0 && stage < stages);
  const int64_t each = num_blocks / stages;
  const int64_t remainder = num_blocks % stages;
  const int64_t begin = stage * each + std::min<int64_t>(stage, remainder);
  return {begin, begin + each + (stage < remainder ? 1 : 0)};
}

std::string LayoutText(const Layout& layout) {
  std::string text = absl::StrCat("dp=", layout.dp, " tp=", layout.tp, " pp=", layout.pp);
  if (layout.cp != 1) absl::StrAppend(&text, " cp=", layout.cp);
  if (layout.zero_stage != 0) absl::StrAppend(&text, " zero_stage=", layout.zero_stage);
  absl::StrAppend(&text, " ", ScheduleName(layout.schedule),
                  " micro_batch=", layout.micro_batch_size,
                  " microbatches=", layout.num_microbatches);
  return text;
}

absl::string_view ScheduleName(ScheduleKind kind) {
  return kind == ScheduleKind::kGpipe ? "gpipe" : "1f1b";
}

absl::StatusOr<ScheduleKind> ParseSchedule(absl::string_view name) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward}) {
    if (name == ScheduleName(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not a schedule that weft runs; use gpipe or 1f1b"));
}

}  // namespace weft
