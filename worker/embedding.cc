#include "worker/embedding.h"

#include "plan/errors.h"

namespace weft {
namespace {

// Rows [0, rows) of `whole`: positions beyond the sequence length take no part.
View FirstRows(View whole, int64_t rows) {
  CHECK(rows <= whole.rows);
  return whole.RowRange(0, rows);
}

}  // namespace

Embedding::Embedding(const Parameters& parameters, int64_t seq_len, TokenCut& tokens,
                     Device& device, RankGroups& groups)
    : device_(device), tokens_(tokens), groups_(groups), seq_len_(seq_len) {
  const Parameter& table = parameters.Get(kTokenEmbeddingName);
  const Parameter* const positions = parameters.Find("embed.positions.weight");
  first_id_ = table.shard.begin[0];
  bucket_ = table.bucket;
  table_ = table.weight;
  table_gradient_ = table.gradient;
  if (positions == nullptr) return;
  positions_ = FirstRows(positions->weight, seq_len);
  positions_gradient_ = FirstRows(positions->gradient, seq_len);
}

absl::Status Embedding::Forward(View ids, View out) {
  const bool adds_positions = positions_.data != nullptr && groups_.at().tp == 0;
  device_.Embed(ids, table_, first_id_, adds_positions ? &positions_ : nullptr, seq_len_,
                tokens_.Partial(out));
  return tokens_.Sum(out);
}

absl::Status Embedding::Backward(View ids, View dout) {
  ASSIGN_OR_RETURN(const View whole, tokens_.Gather(dout));
  device_.EmbedGradient(ids, whole, first_id_, seq_len_, table_gradient_,
                        positions_.data == nullptr ? nullptr : &positions_gradient_);
  return absl::OkStatus();
}

}  // namespace weft
