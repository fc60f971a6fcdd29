// Questions that the tests of the memory estimate share: published shapes, a machine that holds
// whatever is asked.
#pragma once
#include <string>

#include "plan/estimate/question.h"
#include "tests/plan/sample_models.h"

namespace weft {

inline ModelShape Llama70b() {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
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

// Latent attention, three dense blocks, a shared expert (arXiv:2412.19437, 4.2).
inline ModelShape DeepseekV3() {
  ModelShape model = Llama70b();
  model.vocab_size = 129280;
  model.hidden_size = 7168;
  model.num_blocks = 61;
  model.num_heads = model.num_kv_heads = 128;
  model.head_dim = 192;
  model.latent = {
      .query_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  model.ffn_size = 18432;
  model.num_experts = 256;
  model.experts_per_token = 8;
  model.expert_ffn_size = 2048;
  model.num_dense_blocks = 3;
  model.shared_ffn_size = 2048;
  return model;
}

// Two matrices without a gate, LayerNorm, grouped heads (arXiv:2406.11704, table 1).
inline ModelShape Nemotron340b() {
  ModelShape model = Llama70b();
  model.vocab_size = 256000;
  model.hidden_size = 18432;
  model.num_blocks = 96;
  model.num_heads = 96;
  model.head_dim = 192;
  model.ffn_size = 73728;
  SetArchitecture(Architecture::kNemotron, model);
  return model;
}

// Norms of queries and keys (arXiv:2505.09388, table 2).
inline ModelShape Qwen30bA3b() {
  ModelShape model = Mixtral();
  model.vocab_size = 151936;
  model.hidden_size = 2048;
  model.num_blocks = 48;
  model.num_kv_heads = 4;
  model.ffn_size = 6144;
  model.num_experts = 128;
  model.experts_per_token = 8;
  model.expert_ffn_size = 768;
  model.qk_norms = true;
  return model;
}

// Norms behind branches and of heads (arXiv:2503.19786, table 1).
inline ModelShape Gemma3Of27b() {
  ModelShape model;
  SetArchitecture(Architecture::kGemma3, model);
  model.vocab_size = 262208;
  model.hidden_size = 5376;
  model.num_blocks = 62;
  model.num_heads = 32;
  model.num_kv_heads = 16;
  model.head_dim = 128;
  model.ffn_size = 21504;
  model.max_positions = 131072;
  model.sliding_rope_theta = 10000;
  model.query_scalar = 168;
  model.window = 1024;
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    model.spans.push_back((block + 1) % 6 == 0 ? AttentionSpan::kFull : AttentionSpan::kSliding);
  }
  return model;
}

// Both branches at once (arXiv:2204.06745, table 1).
inline ModelShape GptNeox20b() {
  ModelShape model;
  SetArchitecture(Architecture::kGptNeox, model);
  model.vocab_size = 50432;
  model.hidden_size = 6144;
  model.num_blocks = 44;
  model.num_heads = 64;
  model.num_kv_heads = 64;
  model.head_dim = 96;
  model.ffn_size = 24576;
  model.max_positions = 2048;
  model.tied_embeddings = false;
  model.attention_bias = true;
  model.rotary_share = 0.25;
  model.parallel_residual = true;
  return model;
}

// Norms behind branches alone, and of all heads together (arXiv:2501.00656, table 3).
inline ModelShape Olmo2Of32b() {
  ModelShape model = Llama70b();
  SetArchitecture(Architecture::kOlmo2, model);
  model.vocab_size = 100352;
  model.hidden_size = 5120;
  model.num_blocks = 64;
  model.num_heads = 40;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.ffn_size = 27648;
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
