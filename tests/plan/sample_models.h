// Models that tests of plan/ ask about: shapes alone.
#pragma once
#include <cstdint>

#include "plan/spec/model.h"

namespace weft {

inline ModelShape Gpt2Of(int64_t blocks, int64_t width, int64_t heads, int64_t vocabulary,
                         int64_t positions) {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = vocabulary;
  model.hidden_size = width;
  model.num_blocks = blocks;
  model.num_heads = heads;
  model.num_kv_heads = heads;
  model.head_dim = width / heads;
  model.ffn_size = 4 * width;
  model.max_positions = positions;
  return model;
}

inline ModelShape LlamaOf(int64_t blocks, int64_t width, int64_t heads, int64_t kv_heads,
                          int64_t ffn, int64_t vocabulary) {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
  model.vocab_size = vocabulary;
  model.hidden_size = width;
  model.num_blocks = blocks;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = width / heads;
  model.ffn_size = ffn;
  model.max_positions = 8192;
  model.tied_embeddings = false;
  return model;
}

inline ModelShape WithExperts(ModelShape model, int64_t experts, int64_t per_token) {
  model.num_experts = experts;
  model.experts_per_token = per_token;
  model.expert_ffn_size = model.ffn_size;
  return model;
}

// Latent attention, a dense block first, a shared expert with a gate.
inline ModelShape SmallLatent() {
  ModelShape model = WithExperts(LlamaOf(3, 64, 8, 8, 176, 300), 4, 2);
  model.expert_ffn_size = 48;
  model.num_dense_blocks = 1;
  model.shared_ffn_size = 96;
  model.shared_expert_gate = true;
  model.latent = {.query_rank = 24, .kv_rank = 16, .nope_dim = 8, .rope_dim = 4, .value_dim = 6};
  model.head_dim = 12;
  return model;
}

// A feed-forward without a gate, LayerNorm, grouped heads, norms of queries and keys.
inline ModelShape SmallPlain() {
  ModelShape model = LlamaOf(3, 64, 8, 2, 176, 300);
  SetArchitecture(Architecture::kNemotron, model);
  model.qk_norms = true;
  return model;
}

}  // namespace weft
