#include "worker/model/embedding.h"

#include "plan/errors.h"

namespace weft {

Embedding::Embedding(const ModelShape& model, const Parameters& parameters, TokenCut& tokens,
                     Device& device, RankGroups& groups)
    : device_(device), tokens_(tokens), groups_(groups), multiplier_(model.embedding_multiplier) {
  const Parameter& table = parameters.Get(kTokenEmbeddingName);
  first_id_ = table.shard.begin[0];
  bucket_ = table.bucket;
  table_ = table.weight;
  table_gradient_ = table.gradient;
  const Parameter* const positions = parameters.Find("embed.positions.weight");
  if (positions == nullptr) return;
  positions_ = positions->weight;
  positions_gradient_ = positions->gradient;
}

absl::Status Embedding::Forward(View ids, View position_ids, View out) {
  const View positions = groups_.at().tp == 0 ? positions_ : View();
  device_.Embed(ids, table_, first_id_, positions, position_ids, tokens_.Partial(out));
  RETURN_IF_ERROR(tokens_.Sum(out));
  if (multiplier_ != 1) device_.Scale(out, multiplier_);
  return absl::OkStatus();
}

absl::Status Embedding::Backward(View ids, View position_ids, View dout) {
  if (multiplier_ != 1) device_.Scale(dout, multiplier_);
  ASSIGN_OR_RETURN(const View whole, tokens_.Gather(dout));
  device_.EmbedGradient(ids, whole, first_id_, position_ids, table_gradient_, positions_gradient_);
  return absl::OkStatus();
}

}  // namespace weft
