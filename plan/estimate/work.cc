#include "plan/estimate/work.h"

#include <algorithm>

#include "plan/shard.h"

namespace weft {
namespace {

// Columns of [begin, end) that index 0 of `parts` holds, in `unit`s.
double FirstShare(int64_t extent, int64_t unit, int parts) {
  if (extent == 0) return 0;
  return static_cast<double>(SplitRange(extent, unit, parts, 0).size());
}

}  // namespace

BlockShare ShareOf(const ModelShape& model, const Layout& layout) {
  const bool gated = model.family != ModelFamily::kGpt2;
  const int tp = layout.tp;
  const auto halves = gated ? 2.0 : 1.0;
  BlockShare share;
  share.width = static_cast<double>(model.hidden_size);
  share.query = FirstShare(model.num_heads * model.head_dim, model.head_dim, tp);
  share.heads = share.query / static_cast<double>(model.head_dim);
  // Fewer kv heads than tp: each is held by several ranks.
  share.key_value =
      static_cast<double>(model.head_dim) * std::max(1.0, FirstShare(model.num_kv_heads, 1, tp));
  const bool dense = model.num_experts == 0;
  const int64_t inner = dense ? model.ffn_size : model.shared_ffn_size;
  share.inner = FirstShare(inner, 1, tp);
  share.up = halves * share.inner;
  if (!dense) {
    share.experts = static_cast<double>(model.num_experts) / layout.ep;
    share.top_k = static_cast<double>(model.experts_per_token);
    share.expert_inner = FirstShare(model.expert_ffn_size, 1, tp);
    share.expert_up = halves * share.expert_inner;
  }
  return share;
}

ParameterShare ParametersOf(const ModelShape& model, const Layout& layout) {
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  const BlockShare share = ShareOf(model, layout);
  const double width = share.width;
  const double norm = gpt2 ? 2 * width : width;
  const double qkv = share.query + 2 * share.key_value;
  ParameterShare parameters;
  parameters.block = width * (qkv + share.query) + width * (share.up + share.inner) + 2 * norm;
  if (gpt2) parameters.block += qkv + width + share.up + width;
  if (!gpt2 && model.attention_bias) parameters.block += qkv + width;
  if (model.num_experts > 0) {
    parameters.block += width * static_cast<double>(model.num_experts);  // the router
    parameters.block_experts = share.experts * width * (share.expert_up + share.expert_inner);
  }
  const double table = width * FirstShare(model.vocab_size, 1, layout.tp);
  parameters.embedding = table;
  if (gpt2) parameters.embedding += width * static_cast<double>(model.max_positions);
  parameters.head = norm + (model.tied_embeddings ? 0 : table);
  parameters.tied_copy = model.tied_embeddings && layout.pp > 1 ? table : 0;
  return parameters;
}

ReducedParameters ReducedParametersOf(const ParameterShare& share, const ModelShape& model,
                                      const Layout& layout, int stage) {
  const auto blocks = static_cast<double>(StageBlockCount(layout, model.num_blocks, stage));
  ReducedParameters parameters;
  parameters.dense = blocks * share.block;
  parameters.experts = blocks * share.block_experts;
  if (stage == 0) parameters.dense += share.embedding;
  if (stage == layout.pp - 1) parameters.dense += share.head + share.tied_copy;
  return parameters;
}

double AdapterParametersOf(const LowRankAdapters& adapters, const ModelShape& model,
                           const Layout& layout, int stage) {
  const BlockShare share = ShareOf(model, layout);
  double sides = 0;  // rows and columns of the adapted weights
  if (adapters.on_attention_qv) sides += 2 * share.width + share.query + share.key_value;
  if (adapters.on_attention_ko) sides += 2 * share.width + share.query + share.key_value;
  if (adapters.on_mlp) {
    const double halves = model.family == ModelFamily::kGpt2 ? 1 : 2;
    sides += halves * share.width + share.up + share.width + share.inner;
  }
  const auto blocks = static_cast<double>(StageBlockCount(layout, model.num_blocks, stage));
  return blocks * static_cast<double>(adapters.rank) * sides;
}

}  // namespace weft
