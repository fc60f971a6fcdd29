#include "plan/spec/layout_rules.h"

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

// Returns false if a degree is out of the range where it can be multiplied.
bool CheckSlots(const Cluster& cluster, const Layout& layout, std::vector<SpecIssue>& issues) {
  const std::vector<std::pair<absl::string_view, int>> degrees = {
      {"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}};
  const size_t before = issues.size();
  int64_t workers = 1;
  for (const auto& [axis, degree] : degrees) {
    const std::string key = absl::StrCat("parallelism.", axis);
    if (degree < 1) {
      issues.push_back({key, absl::StrCat(degree, " is too few; use 1 or more, or auto")});
    } else if (degree > cluster.slots()) {
      issues.push_back(
          {key, absl::StrCat(degree, " is more than the number of slots ", SlotsText(cluster),
                             "; use at most ", cluster.slots(), ", or more slots")});
    }
    workers *= std::clamp(degree, 1, cluster.slots());
  }
  if (issues.size() > before) return false;
  if (workers > cluster.slots()) {
    const std::string context = layout.cp > 1 ? absl::StrCat(" x cp ", layout.cp) : "";
    issues.push_back(
        {"parallelism",
         absl::StrCat("dp ", layout.dp, " x tp ", layout.tp, " x pp ", layout.pp, context, " = ",
                      workers, " workers are more than the number of slots ", SlotsText(cluster),
                      "; lower a degree or use more slots")});
  }
  return true;
}

void CheckTensorDegree(const ModelShape& model, const Cluster& cluster, const Layout& layout,
                       std::vector<SpecIssue>& issues) {
  const ModelKeys keys = KeysOf(model.architecture);
  const int64_t other_degrees = int64_t{layout.dp} * layout.pp * layout.cp;
  const int64_t most =
      std::min<int64_t>(model.vocab_size, std::max<int64_t>(1, cluster.slots() / other_degrees));
  // Fewer kv heads than tp: each is held by tp / kv_heads ranks.
  const auto keeps_kv = [&](int64_t tp) {
    return model.num_kv_heads % tp == 0 || tp % model.num_kv_heads == 0;
  };
  // Only feed-forwards that are there count; experts may have a degree of their own.
  const bool has_dense = model.num_experts == 0 || model.num_dense_blocks > 0;
  const int64_t ffn_size = std::gcd(has_dense ? model.ffn_size : 0, model.shared_ffn_size);
  int64_t common = std::gcd(model.num_heads, ffn_size);
  for (int64_t tp = 1; tp <= common; ++tp) {
    if (common % tp == 0 && !keeps_kv(tp)) common = std::gcd(common, model.num_kv_heads);
  }
  const std::vector<std::pair<absl::string_view, int64_t>> divided = {
      {keys.num_heads, model.num_heads},
      {keys.num_kv_heads, keeps_kv(layout.tp) ? layout.tp : model.num_kv_heads},
      {keys.ffn_size, has_dense ? model.ffn_size : 0},
      {keys.shared_ffn_size, model.shared_ffn_size}};
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

void CheckExperts(const ModelShape& model, const Layout& layout, std::vector<SpecIssue>& issues) {
  if (layout.etp != 0 && (layout.etp < 0 || model.num_experts == 0)) {
    issues.push_back({"parallelism.etp",
                      absl::StrCat(layout.etp, model.num_experts == 0
                                                   ? " with a model without experts; use 0"
                                                   : " is too few; use 0 for tp, or 1 or more")});
    return;
  }
  const int etp = layout.expert_tp();
  if (layout.tp % etp != 0 || (model.num_experts > 0 && model.expert_ffn_size % etp != 0)) {
    const int64_t common = std::gcd<int64_t, int64_t>(layout.tp, model.expert_ffn_size);
    issues.push_back(
        {"parallelism.etp", absl::StrCat(etp, " does not divide both parallelism.tp ", layout.tp,
                                         " and moe_intermediate_size ", model.expert_ffn_size,
                                         "; use ", DivisorsText(common, common, etp))});
    return;
  }
  if (layout.ep == 1) return;
  constexpr absl::string_view kKey = "parallelism.ep";
  if (layout.ep < 1 || model.num_experts == 0) {
    issues.push_back(
        {std::string{kKey},
         absl::StrCat(layout.ep, model.num_experts == 0 ? " with a model without experts; use 1"
                                                        : " is too few; use 1 or more")});
    return;
  }
  const int64_t ranks = int64_t{layout.dp} * layout.cp * (layout.tp / etp);
  if (model.num_experts % layout.ep != 0 || ranks % layout.ep != 0) {
    const int64_t common = std::gcd<int64_t, int64_t>(model.num_experts, ranks);
    issues.push_back(
        {std::string{kKey}, absl::StrCat(layout.ep, " does not divide both the ", model.num_experts,
                                         " experts and dp x cp x tp / etp = ", ranks, "; use ",
                                         DivisorsText(common, common, layout.ep))});
  }
}

void CheckZero(const Layout& layout, std::vector<SpecIssue>& issues) {
  if (layout.zero_stage < 0 || layout.zero_stage > 3) {
    issues.push_back(
        {"parallelism.zero_stage",
         absl::StrCat(layout.zero_stage, " is not a stage of ZeRO; use 0, 1, 2 or 3")});
  }
  const int group = layout.data_group();
  if (layout.zero_hpz_partition_size < 1) {
    issues.push_back({"parallelism.zero_hpz_partition_size",
                      absl::StrCat(layout.zero_hpz_partition_size, " is too few; use 1 or more")});
  } else if (layout.has_zero_groups() && layout.zero_stage == 0) {
    issues.push_back({"parallelism.zero_hpz_partition_size",
                      absl::StrCat(layout.zero_hpz_partition_size,
                                   " with zero_stage 0, which cuts nothing; use "
                                   "zero_stage 1, 2 or 3, or leave it out")});
  } else if (group % layout.zero_ranks() != 0) {
    issues.push_back(
        {"parallelism.zero_hpz_partition_size",
         absl::StrCat(layout.zero_hpz_partition_size, " does not divide the data group ", group,
                      "; use ", DivisorsText(group, group, layout.zero_hpz_partition_size))});
  }
}

void CheckChunks(const ModelShape& model, const Layout& layout, std::vector<SpecIssue>& issues) {
  constexpr absl::string_view kKey = "parallelism.virtual_stages";
  const bool interleaved = layout.pp_schedule == ScheduleKind::kInterleaved;
  if (!interleaved && layout.virtual_stages != 1) {
    issues.push_back({std::string{kKey}, absl::StrCat(layout.virtual_stages, " with pp_schedule ",
                                                      WordOf(layout.pp_schedule),
                                                      "; use 1, or pp_schedule interleaved_1f1b")});
  } else if (interleaved && (layout.pp < 2 || layout.virtual_stages < 2)) {
    issues.push_back(
        {std::string{kKey}, absl::StrCat(layout.virtual_stages, " with parallelism.pp ", layout.pp,
                                         "; interleaved_1f1b needs both to be 2 or more")});
  } else if (int64_t{layout.virtual_stages} * layout.pp > model.num_blocks) {
    if (layout.virtual_stages == 1) return;  // CheckLayout's rule for pp
    issues.push_back(
        {std::string{kKey},
         absl::StrCat(layout.virtual_stages, " x parallelism.pp ", layout.pp, " is more than ",
                      KeysOf(model.architecture).num_blocks, " ", model.num_blocks,
                      "; use at most ", model.num_blocks / layout.pp)});
  }
}

void CheckStageLists(const ModelShape& model, const Layout& layout,
                     std::vector<SpecIssue>& issues) {
  if (!layout.recompute_per_stage.empty() && std::ssize(layout.recompute_per_stage) != layout.pp) {
    issues.push_back({"activation_checkpointing.per_stage",
                      absl::StrCat("names ", layout.recompute_per_stage.size(),
                                   " stages; name each of parallelism.pp ", layout.pp)});
  }
  if (layout.layers_per_stage.empty()) return;
  constexpr absl::string_view kKey = "parallelism.layers_per_stage";
  int64_t sum = 0;
  bool positive = true;
  const size_t last = layout.layers_per_stage.size() - 1;
  for (size_t stage = 0; stage <= last; ++stage) {
    const int64_t blocks = layout.layers_per_stage[stage];
    // The ends of the network may have a stage to themselves.
    const int64_t least = last > 0 && (stage == 0 || stage == last) ? 0 : 1;
    positive = positive && blocks >= least && blocks <= model.num_blocks;
    sum += blocks;
  }
  if (layout.virtual_stages != 1) {
    issues.push_back({std::string{kKey}, "is set with virtual_stages; leave one of them out"});
  } else if (std::ssize(layout.layers_per_stage) != layout.pp || !positive ||
             sum != model.num_blocks) {
    issues.push_back({std::string{kKey},
                      absl::StrCat(absl::StrJoin(layout.layers_per_stage, ", "), " are not ",
                                   layout.pp, " positive numbers that sum to ",
                                   KeysOf(model.architecture).num_blocks, " ", model.num_blocks)});
  }
}

SpecIssue RaggedRounds(const Layout& layout) {
  return {"parallelism.pp_schedule",
          absl::StrCat("interleaved_1f1b with ", layout.gradient_accumulation_steps,
                       " microbatches, which are not a multiple of parallelism.pp ", layout.pp,
                       "; use 1f1b")};
}

// Checks the rules on the sequence, on the number of microbatches and on the head's chunks.
void CheckSequence(const BatchShape& batch, const Layout& layout, std::vector<SpecIssue>& issues) {
  // Each rank takes one early and one late piece, so that causal work is even (arXiv:2310.01889).
  if (layout.cp > 1 && batch.seq_len % (int64_t{2} * layout.cp) != 0) {
    issues.push_back(
        {"parallelism.cp",
         absl::StrCat(layout.cp, ": twice it does not divide training.seq_len ", batch.seq_len,
                      "; use 1, or a seq_len that is a multiple of ", 2 * layout.cp)});
  }
  if (layout.sequence_parallel && layout.tp == 1) {
    issues.push_back(
        {"parallelism.sequence_parallel",
         "true with tp 1, where nobody shares a sequence; use false, or tp 2 or more"});
  } else if (layout.sequence_parallel && (batch.seq_len / layout.cp) % layout.tp != 0) {
    issues.push_back(
        {"parallelism.sequence_parallel",
         absl::StrCat("true with tp ", layout.tp, ", which does not divide the ",
                      batch.seq_len / layout.cp, " tokens of a sequence on a rank; use false")});
  }
  if (layout.pp_schedule == ScheduleKind::kInterleaved &&
      layout.gradient_accumulation_steps < layout.pp) {
    issues.push_back(RaggedRounds(layout));
  }
  if (layout.head_chunk_tokens < 0) {
    issues.push_back({"training.head_chunk_tokens",
                      absl::StrCat(layout.head_chunk_tokens, " is too few; use 0 or more")});
  }
}

void CheckLength(const ModelShape& model, const BatchShape& batch, std::vector<SpecIssue>& issues) {
  const absl::string_view positions = KeysOf(model.architecture).max_positions;
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
  issues.push_back(
      {std::string{kGlobal},
       absl::StrCat(global_batch_size, all_known ? " is not " : " is not a multiple of ",
                    absl::StrJoin(known, " x "), " = ", product, "; use ",
                    all_known ? "" : "a multiple of ", product,
                    ", or auto for one of the others")});
}

}  // namespace

std::vector<SpecIssue> DegreeIssues(const ModelShape& model, const Cluster& cluster,
                                    const Layout& layout) {
  std::vector<SpecIssue> issues;
  if (!CheckSlots(cluster, layout, issues)) return issues;
  CheckTensorDegree(model, cluster, layout, issues);
  CheckExperts(model, layout, issues);
  CheckZero(layout, issues);
  CheckChunks(model, layout, issues);
  CheckStageLists(model, layout, issues);
  if (layout.pp > model.num_blocks && layout.layers_per_stage.empty()) {
    issues.push_back(
        {"parallelism.pp",
         absl::StrCat(layout.pp, " is more than ", KeysOf(model.architecture).num_blocks, " ",
                      model.num_blocks, "; use ", UpToText(model.num_blocks))});
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
  RETURN_IF_ERROR(FirstIssue(BatchIssues(model, batch, layout.dp, layout.micro_batch_size,
                                         layout.gradient_accumulation_steps)));
  std::vector<SpecIssue> issues;
  CheckSequence(batch, layout, issues);
  return FirstIssue(issues);
}

namespace {

// Calls refuse(key, found, cure) for each thing of the model that the engine cannot do.
template <typename Refuse>
void EachRefused(const ModelShape& model, const Refuse& refuse) {
  if (model.num_experts > 0) {
    refuse("model.num_local_experts", model.num_experts, "a model without experts");
  }
  if (model.is_latent()) {
    refuse("model.kv_lora_rank", model.latent.kv_rank, "a model without it");
  }
  if (model.num_experts == 0 && !model.is_latent() && !IsOfItsArchitecture(model)) {
    refuse("model.model_type", absl::StrCat(ModelTypeOf(model), " with mechanisms of other types"),
           "keys of one type's models alone");
  }
}

// Calls refuse(key, message) for each thing of the layout that it cannot do; message() is the text.
template <typename Refuse>
void EachRefused(const Layout& layout, const Refuse& refuse) {
  if (layout.ep != 1) {
    refuse("parallelism.ep",
           [&] { return absl::StrCat(layout.ep, " is not supported yet; use 1"); });
  }
  if (layout.etp != 0) {
    refuse("parallelism.etp",
           [&] { return absl::StrCat(layout.etp, " is not supported yet; leave it out"); });
  }
  const std::vector<int64_t>& blocks = layout.layers_per_stage;
  if (!blocks.empty() && (blocks.front() == 0 || blocks.back() == 0)) {
    refuse("parallelism.layers_per_stage", [&] {
      return absl::StrCat(absl::StrJoin(blocks, ", "),
                          " has a stage without blocks, which is not supported yet; use 1 or more");
    });
  }
  const bool interleaved = layout.pp_schedule == ScheduleKind::kInterleaved;
  const int64_t microbatches = layout.gradient_accumulation_steps;  // fewer no engine takes
  if (interleaved && microbatches > layout.pp && microbatches % layout.pp != 0) {
    const SpecIssue ragged = RaggedRounds(layout);
    refuse(ragged.key, [&] { return ragged.message; });
  }
}

}  // namespace

std::vector<SpecIssue> EngineIssues(const ModelShape& model) {
  std::vector<SpecIssue> issues;
  EachRefused(model, [&](absl::string_view key, const auto& found, absl::string_view cure) {
    issues.push_back({std::string{key}, absl::StrCat(found, " is not supported yet; use ", cure)});
  });
  return issues;
}

std::vector<SpecIssue> EngineIssues(const ModelShape& model, const Layout& layout) {
  std::vector<SpecIssue> issues = EngineIssues(model);
  EachRefused(layout, [&](absl::string_view key, const auto& message) {
    issues.push_back({std::string{key}, message()});
  });
  return issues;
}

bool EngineRuns(const ModelShape& model) {
  bool runs = true;
  EachRefused(model, [&](const auto&...) { runs = false; });
  return runs;
}

bool EngineRuns(const Layout& layout) {
  bool runs = true;
  EachRefused(layout, [&](const auto&...) { runs = false; });
  return runs;
}

absl::Status CheckRunnable(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                           const Layout& layout) {
  RETURN_IF_ERROR(CheckLayout(model, cluster, batch, layout));
  return FirstIssue(EngineIssues(model, layout));
}

}  // namespace weft
