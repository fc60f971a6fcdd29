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

Fp8Scratch Fp8ScratchOf(const Fp8Layers& layers, int64_t tokens, int64_t hidden, int64_t query,
                        int64_t key, int64_t ffn) {
  Fp8Scratch scratch;
  const auto take = [&](int64_t in, int64_t out) {
    scratch.input = std::max(scratch.input, tokens * in);
    scratch.gradient = std::max(scratch.gradient, tokens * out);
    scratch.weight = std::max(scratch.weight, in * out);
    scratch.scales = 3;
  };
  if (layers.query) {
    take(hidden, query);
    take(query, hidden);
  }
  if (layers.key) take(hidden, key);
  if (layers.mlp) {
    take(hidden, ffn);
    take(ffn, hidden);
  }
  return scratch;
}

}  // namespace weft
