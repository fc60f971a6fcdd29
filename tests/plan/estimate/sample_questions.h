// Questions that the tests of the memory estimate share: published shapes, a machine that holds
// whatever is asked.
#pragma once
#include <string>

#include "plan/estimate/question.h"

namespace weft {

inline ModelShape Gpt(int64_t blocks, int64_t hidden, int64_t heads, int64_t vocabulary,
                      int64_t positions) {
  ModelShape model;
  model.family = ModelFamily::kGpt2;
  model.vocab_size = vocabulary;
  model.hidden_size = hidden;
  model.num_blocks = blocks;
  model.num_heads = heads;
  model.num_kv_heads = heads;
  model.head_dim = hidden / heads;
  model.ffn_size = 4 * hidden;
  model.max_positions = positions;
  return model;
}

inline ModelShape Llama70b() {
  ModelShape model;
  model.family = ModelFamily::kLlama;
  model.vocab_size = 128256;
  model.hidden_size = 8192;
  model.num_blocks = 80;
  model.num_heads = 64;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.ffn_size = 28672;
  model.max_positions = int64_t{1} << 20;
  model.tied_embeddings = false;
  return model;
}

inline ModelShape Mixtral() {
  ModelShape model = Llama70b();
  model.vocab_size = 32000;
  model.hidden_size = 4096;
  model.num_blocks = 32;
  model.num_heads = 32;
  model.ffn_size = 14336;
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_size = 14336;
  return model;
}

inline Question QuestionAbout(const ModelShape& model, int64_t seq_len, const std::string& engine,
                              Precision precision) {
  Question question;
  question.model = model;
  question.cluster.nodes = 1 << 17;
  question.cluster.slots_per_node = 8;
  question.cluster.device.memory_bytes = int64_t{80} << 30;
  question.batch = {.global_batch_size = 1, .seq_len = seq_len};
  question.numerics.precision = precision;
  question.engine = EngineProfileNamed(engine).value();
  return question;
}

}  // namespace weft
