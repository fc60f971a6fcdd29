#include "plan/estimate/block_share.h"

#include <algorithm>

#include "plan/shards/shard.h"

namespace weft {
namespace {

// Columns of [begin, end) that index 0 of `parts` holds, in `unit`s.
double FirstShare(int64_t extent, int64_t unit, int parts) {
  if (extent == 0) return 0;
  return static_cast<double>(SplitRange(extent, unit, parts, 0).size());
}

}  // namespace

BlockShare ShareOf(const ModelShape& model, const Layout& layout) {
  const bool gated = model.is_gated();
  const int tp = layout.tp;
  const auto halves = gated ? 2.0 : 1.0;
  BlockShare share;
  share.width = static_cast<double>(model.hidden_size);
  share.query = FirstShare(model.num_heads * model.head_dim, model.head_dim, tp);
  share.heads = share.query / static_cast<double>(model.head_dim);
  // Fewer kv heads than tp: each is held by several ranks.
  share.key_value =
      static_cast<double>(model.head_dim) * std::max(1.0, FirstShare(model.num_kv_heads, 1, tp));
  share.value = share.heads * static_cast<double>(model.value_dim());
  if (model.is_latent()) {
    const LatentAttention& latent = model.latent;
    share.query_rank = static_cast<double>(latent.query_rank);
    share.kv_rank = static_cast<double>(latent.kv_rank);
    share.kv_down = share.kv_rank + static_cast<double>(latent.rope_dim);
    share.kv_up = share.heads * static_cast<double>(latent.nope_dim + latent.value_dim);
  }
  share.inner = FirstShare(model.num_experts == 0 ? model.ffn_size : model.shared_ffn_size, 1, tp);
  share.up = halves * share.inner;
  if (model.parallel_residual) share.summed = 1;
  if (model.shares_norm) share.gathered = 1;
  if (model.num_experts == 0) return share;
  share.experts = static_cast<double>(model.num_experts) / layout.ep;
  share.copies = static_cast<double>(model.experts_per_token) * model.expert_imbalance *
                 layout.expert_tp() / tp;
  share.expert_inner = FirstShare(model.expert_ffn_size, 1, layout.expert_tp());
  share.expert_up = halves * share.expert_inner;
  return share;
}

}  // namespace weft
