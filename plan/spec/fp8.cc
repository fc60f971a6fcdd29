#include "plan/spec/fp8.h"

#include <algorithm>

namespace weft {

Fp8Layers Fp8LayersOf(const ModelShape& model, const BatchShape& batch, const Layout& layout) {
  const int64_t tokens = layout.micro_batch_size * batch.seq_len / layout.cp;
  if (model.hidden_size % kFp8SizeUnit != 0 || tokens % kFp8SizeUnit != 0) return {};
  // tp cuts `count` units of `size`.
  const auto fits = [&](int64_t count, int64_t size) {
    return count % layout.tp == 0 && count / layout.tp * size % kFp8SizeUnit == 0;
  };
  // Beyond its number, key heads are there more than once (plan/shards/shard.h).
  const bool one_key_head = layout.tp > model.num_kv_heads;
  return {.query = fits(model.num_heads, model.head_dim),
          .key = one_key_head ? model.head_dim % kFp8SizeUnit == 0
                              : fits(model.num_kv_heads, model.head_dim),
          .mlp = model.num_experts == 0 && fits(model.ffn_size, 1)};
}

namespace {

// Calls visit(in, out) for each of the layers whose products are in 8 bits.
template <typename Visit>
void EachFp8Weight(const Fp8BlockShape& block, const Visit& visit) {
  const bool is_qkv_one = block.is_qkv_one && block.layers.query && block.layers.key;
  if (is_qkv_one) visit(block.hidden, block.query + 2 * block.key);
  if (block.layers.query && !is_qkv_one) visit(block.hidden, block.query);
  if (block.layers.query) visit(block.query, block.hidden);
  for (int i = 0; i < 2 && block.layers.key && !is_qkv_one; ++i) visit(block.hidden, block.key);
  if (!block.layers.mlp) return;
  const int firsts = block.has_gate ? 2 : 1;
  const int products = block.is_gate_up_one ? 1 : firsts;
  for (int i = 0; i < products; ++i) visit(block.hidden, firsts / products * block.ffn);
  visit(block.ffn, block.hidden);
}

}  // namespace

Fp8Scratch Fp8ScratchOf(const Fp8BlockShape& block, bool keeps_weights) {
  Fp8Scratch scratch;
  EachFp8Weight(block, [&](int64_t in, int64_t out) {
    scratch.input = std::max(scratch.input, block.tokens * in);
    scratch.gradient = std::max(scratch.gradient, block.tokens * out);
    if (!keeps_weights) scratch.weight = std::max(scratch.weight, in * out);
    scratch.scales = keeps_weights ? 2 : 3;
  });
  return scratch;
}

Fp8Weights Fp8WeightsOf(const Fp8BlockShape& block) {
  Fp8Weights weights;
  EachFp8Weight(block, [&](int64_t in, int64_t out) {
    weights.elements += in * out;
    ++weights.count;
  });
  return weights;
}

}  // namespace weft
