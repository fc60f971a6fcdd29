#include "plan/memory/inference_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/block/block_buffers.h"
#include "plan/block/block_ops.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/memory/attention_scratch.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

constexpr int64_t kMostLogits = int64_t{1} << 24;

}  // namespace

InferenceExtents GenerationExtents(const ModelShape& model, int64_t prompt, int64_t max_tokens) {
  const int64_t positions = std::min(model.max_positions, prompt + max_tokens - 1);
  return {.batch = 1, .seq_len = prompt, .cached_positions = positions};
}

int64_t LogitRows(const ModelShape& model, const InferenceExtents& extents) {
  if (extents.cached_positions > 0) return 1;  // only the last token's are asked for
  return std::clamp<int64_t>(kMostLogits / model.vocab_size, 1, extents.rows());
}

absl::Status CheckInference(const ModelShape& model) {
  RETURN_IF_ERROR(CheckModel(model));
  if (model.num_experts > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model_type ", ModelTypeOf(model), ": a model of ", model.num_experts,
                     " experts is planned, but not run yet; use a model without experts"));
  }
  return FirstIssue(EngineIssues(model));
}

RankMemory PlanInferenceMemory(const ModelShape& model, const InferenceExtents& extents) {
  CHECK(EngineIssues(model).empty());
  CHECK(extents.cached_positions == 0 || extents.batch == 1);
  RankMemory memory;
  const auto add = [&memory](MemoryKind kind, std::string name, int64_t elements,
                             ElementType type = ElementType::kFp32) {
    memory.buffers.push_back(
        {.kind = kind, .name = std::move(name), .elements = elements, .type = type});
  };
  for (const TensorSpec& tensor : Tensors(model)) {
    add(MemoryKind::kWeights, absl::StrCat("weights/", tensor.name), tensor.elements());
  }
  const int64_t n = extents.rows();
  const int64_t key = model.num_kv_heads * model.head_dim;
  const int64_t cached = extents.cached_positions;
  // [S, K*E] of each block; without a cache one pair [N, K*E] serves them all.
  for (int64_t block = 0; block < (cached > 0 ? model.num_blocks : 1); ++block) {
    const int64_t positions = cached > 0 ? cached : n;
    add(MemoryKind::kActivations, absl::StrCat("cache/k", block), positions * key);
    add(MemoryKind::kActivations, absl::StrCat("cache/v", block), positions * key);
  }
  const auto work = [&](absl::string_view name, int64_t elements) {
    add(MemoryKind::kWorkspace, absl::StrCat("work/", name), elements);
  };
  // [N, columns] of what a block computes
  const BlockOps ops = OpsOf(model, 0);
  for (const BlockBuffer& buffer : PassBuffersOf(ops).buffers) {
    work(buffer.name, n * ops.values[static_cast<size_t>(buffer.value)].cols.count);
  }
  work("scores", AttentionScratchFloats({.key_len = extents.positions(),
                                         .seen_len = extents.positions(),
                                         .run_len = extents.positions(),
                                         .query_len = extents.positions(),
                                         .head_dim = model.head_dim,
                                         .kv_heads = extents.batch * model.num_kv_heads},
                                        extents.threads));
  for (size_t way = 0; way < model.rotations().size(); ++way)
    work(kRotaryTables[way], extents.positions() * model.rotary_dims());  // [S or T, W]
  work("final_norm_out", n * model.hidden_size);                          // [N, D]
  if (model.has_layer_norms()) work("final_norm_mean", n);                // [N, 1]
  work("final_norm_rstd", n);                                             // [N, 1]
  work("logits", LogitRows(model, extents) * model.vocab_size);
  add(MemoryKind::kTokens, "tokens/ids", n, ElementType::kInt32);  // [N, 1]
  // [N, 1] rows of the table of learned positions
  if (model.learned_positions) add(MemoryKind::kTokens, "tokens/positions", n, ElementType::kInt32);
  // [N, 1] the position where each token's document starts
  if (extents.masks_documents) {
    add(MemoryKind::kTokens, "tokens/first_visible", n, ElementType::kInt32);
  }
  // [N, 1] the first position of each token's window
  if (model.slides_over(extents.positions())) {
    add(MemoryKind::kTokens, "tokens/first_in_window", n, ElementType::kInt32);
  }
  if (cached > 0) return memory;
  work("row_max", n);       // [N, 1]
  work("row_sums", 2 * n);  // [2, N] sum of exponentials; logit of the target
  add(MemoryKind::kWorkspace, "work/totals", 1, ElementType::kFp64);   // sum of the losses
  add(MemoryKind::kTokens, "tokens/targets", n, ElementType::kInt32);  // [N, 1]
  return memory;
}

}  // namespace weft
