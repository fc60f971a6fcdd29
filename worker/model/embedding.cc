#include "worker/model/embedding.h"

#include "plan/errors.h"

namespace weft {

Embedding::Embedding(const Parameters& parameters, TokenCut& tokens, Device& device,
                     RankGroups& groups)
    : device_(device), tokens_(tokens), groups_(groups) {
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
  return tokens_.Sum(out);
}

absl::Status Embedding::Backward(View ids, View position_ids, View dout) {
  ASSIGN_OR_RETURN(const View whole, tokens_.Gather(dout));
  device_.EmbedGradient(ids, whole, first_id_, position_ids, table_gradient_, positions_gradient_);
  return absl::OkStatus();
}

}  // namespace weft
