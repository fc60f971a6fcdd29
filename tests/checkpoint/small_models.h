// A model of each family with few elements, for tests of how their tensors lie in files.
#pragma once
#include "plan/spec/model.h"

namespace weft {

inline ModelShape Gpt2() {
  ModelShape model = {.vocab_size = 11,
                      .hidden_size = 4,
                      .num_blocks = 2,
                      .num_heads = 2,
                      .num_kv_heads = 2,
                      .head_dim = 2,
                      .ffn_size = 6,
                      .max_positions = 5};
  SetArchitecture(Architecture::kGpt2, model);
  return model;
}

inline ModelShape GptNeox() {
  ModelShape model = {.vocab_size = 11,
                      .hidden_size = 8,
                      .num_blocks = 2,
                      .num_heads = 2,
                      .num_kv_heads = 2,
                      .head_dim = 4,
                      .ffn_size = 6,
                      .max_positions = 5,
                      .tied_embeddings = false,
                      .attention_bias = true,
                      .rotary_share = 0.5,
                      .parallel_residual = true};
  SetArchitecture(Architecture::kGptNeox, model);
  return model;
}

inline ModelShape Llama() {
  return {.architecture = Architecture::kLlama,
          .vocab_size = 11,
          .hidden_size = 6,
          .num_blocks = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 4,
          .ffn_size = 10,
          .max_positions = 64,
          .norm_eps = 1e-6,
          .tied_embeddings = false,
          .rope_scaling = {.factor = 8, .original_max_positions = 16},
          .attention_bias = true};
}

}  // namespace weft
