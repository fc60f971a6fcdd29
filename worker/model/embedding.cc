#include "worker/model/embedding.h"

#include <cmath>

#include "plan/errors.h"

namespace weft {
namespace {

// Returns the nearest number that has the significant bits of `type`.
double RoundedTo(DType type, double value) {
  const int bits = type == DType::kBf16 ? 8 : type == DType::kF16 ? 11 : 24;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

}  // namespace

Embedding::Embedding(const ModelShape& model, const Parameters& parameters, TokenCut& tokens,
                     Device& device, RankGroups& groups)
    : device_(device), tokens_(tokens), groups_(groups) {
  const Parameter& table = parameters.Get(kTokenEmbeddingName);
  first_id_ = table.shard.begin[0];
  bucket_ = table.bucket;
  table_ = table.weight;
  factor_ = EmbeddingFactor(model, table_.dtype);
  table_gradient_ = table.gradient;
  const Parameter* const positions = parameters.Find("embed.positions.weight");
  if (positions == nullptr) return;
  positions_ = positions->weight;
  positions_gradient_ = positions->gradient;
}

double EmbeddingFactor(const ModelShape& model, DType type) {
  if (!model.scaled_embeddings) return model.embedding_multiplier;
  return RoundedTo(type, std::sqrt(static_cast<double>(model.hidden_size)));
}

absl::Status Embedding::Forward(View ids, View position_ids, View out) {
  const View positions = groups_.at().tp == 0 ? positions_ : View();
  device_.Embed(ids, table_, first_id_, positions, position_ids, tokens_.Partial(out));
  RETURN_IF_ERROR(tokens_.Sum(out));
  if (factor_ != 1) device_.Scale(out, factor_);
  return absl::OkStatus();
}

absl::Status Embedding::Backward(View ids, View position_ids, View dout) {
  if (factor_ != 1) device_.Scale(dout, factor_);
  ASSIGN_OR_RETURN(const View whole, tokens_.Gather(dout));
  device_.EmbedGradient(ids, whole, first_id_, position_ids, table_gradient_, positions_gradient_);
  return absl::OkStatus();
}

}  // namespace weft
