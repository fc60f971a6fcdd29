// The model as numbers: its shape, and what a named tensor of it is. Which tensors it has follows
// from its blocks' operations (plan/block/tensors). Pure values; safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/spec_issue.h"
#include "plan/spec/words.h"

namespace weft {

// An architecture says whose files a model has: how its config.json spells keys (KeysOf) and what
// its tensors are called there. What it computes is the rest of ModelShape alone.
enum class Architecture {
  kGpt2,
  kLlama,
  kMistral,
  kMixtral,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kPhi3,
  kStarcoder2,
  kGranite,
  kSeedOss,
  kDeepseekV3,
  kDeepseekV2,
  kNemotron,
  kSmollm3,
  kGemma,
  kGemma2,
  kGemma3,
  kGlm,
  kGlm4,
  kGptNeox,
  kOlmo2,
  kOlmo3,
  kMinistral,
  kCohere2,
};

// The function between a feed-forward's matrices; with a gate, of the gate.
enum class Activation {
  kSilu,         // x sigmoid(x)
  kGelu,         // in the tanh form (Hendrycks & Gimpel, arXiv:1606.08415)
  kSquaredRelu,  // max(x, 0)^2
  kErfGelu,      // GELU itself: x times the normal distribution's share below x
};

// How rotary positions are stretched beyond the sequence length of pre-training. Slow turns are
// slowed down by a factor, fast ones are kept, those between are blended; by kLinear all are slowed
// down. worker/model/rotary.h has the formulas.
enum class RopeKind { kLlama3, kLinear, kYarn };
Words WordsOf(RopeKind);  // as Hugging Face's rope_type

struct RopeScaling {
  double factor = 1;                      // 1: none, whatever the others say
  double low_freq_factor = 1;             // kLlama3's
  double high_freq_factor = 4;            // kLlama3's
  int64_t original_max_positions = 8192;  // not kLinear's
  RopeKind kind = RopeKind::kLlama3;
  // The rest is kYarn's (Peng et al., arXiv:2309.00071): from where to where turns are blended, by
  // turns within the original positions, at whole pairs if `truncates`.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncates = true;
  // Queries and keys are multiplied by this; 0: by what follows from the factor and mscale.
  double attention_factor = 0;
  double mscale = 0, mscale_all_dim = 0;  // DeepSeek's; 0: not there
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// A Rotation says by which angles positions turn the first `width` elements of a head.
struct Rotation {
  double theta = 10000;
  RopeScaling scaling = {};
  int64_t width = 0;
  friend bool operator==(const Rotation&, const Rotation&) = default;
};

// Tables of angles are called so, by ModelShape::rotations.
inline constexpr absl::string_view kRotaryTables[] = {"rotary", "rotary_sliding"};

// Queries, keys and values through low ranks (DeepSeek-V2, arXiv:2405.04434, 2.1). A head's query
// and key have a part without position and one with it; of the latter one key serves all heads.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries are made of the residual itself
  int64_t kv_rank = 0;     // 0: attention is plain, whatever the others say
  int64_t nope_dim = 0;    // of a head's query and key, without position
  int64_t rope_dim = 0;    // of them, with position
  int64_t value_dim = 0;   // of a head's value
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

// A span says which of the keys before it a block's query sees.
enum class AttentionSpan {
  kFull,     // all
  kSliding,  // those of ModelShape::window
};
Words WordsOf(AttentionSpan);  // as Hugging Face's layer_types

// Counts and mechanisms of a decoder-only transformer; letters are those of the glossary (README).
// The defaults are what llama does: rotary positions, RMSNorm, SwiGLU, no biases.
struct ModelShape {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;     // V
  int64_t hidden_size = 0;    // D
  int64_t num_blocks = 0;     // L
  int64_t num_heads = 0;      // H
  int64_t num_kv_heads = 0;   // K
  int64_t head_dim = 0;       // E; of queries and keys: latent.nope_dim + latent.rope_dim if latent
  int64_t ffn_size = 0;       // F
  int64_t max_positions = 0;  // longest sequence; rows of a table of learned positions
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  double rope_theta = 10000.0;
  bool tied_embeddings = true;  // head.weight is embed.tokens.weight
  // Mixture of experts in every block but the first `num_dense_blocks`, whose feed-forward is dense
  // and ffn_size wide; num_experts 0: all are dense.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;    // top-k
  int64_t expert_ffn_size = 0;      // F of one expert
  int64_t num_dense_blocks = 0;     // before those with experts
  int64_t shared_ffn_size = 0;      // F of what every token passes beside its experts; 0: nothing
  bool shared_expert_gate = false;  // a weight [1, D] says how much of that is taken
  // Tokens of the fullest rank's experts over the mean: a router's balance, as the planner is told.
  double expert_imbalance = 1;
  RopeScaling rope_scaling = {};
  bool attention_bias = false;  // q, k, v and o have biases
  LatentAttention latent = {};
  bool qk_norms = false;       // RMSNorm over a head's query and key, each [E]
  bool wide_qk_norms = false;  // of qk_norms: over all heads together, [H*E] and [K*E]
  bool layer_norms = false;    // norms take the mean off and have biases
  bool bare_norms = false;     // norms have no biases, whatever layer_norms says
  bool plain_ffn = false;      // two matrices without a gate
  Activation activation = Activation::kSilu;
  bool bare_output = false;        // o has no bias, whatever attention_bias says
  bool ffn_bias = false;           // all matrices of feed-forwards have biases
  bool learned_positions = false;  // a table of positions beside that of tokens; none are rotary
  // Matrices that lead back to the residuals start at 1/sqrt(2 L) of the others' deviation
  // (Radford et al., GPT-2, 2.3).
  bool scaled_residual_init = false;
  // Factors of what the embedding gives, of what a block adds to the residuals, of attention's
  // scores (0: 1/sqrt(E)); logits are divided by the fourth (arXiv:2203.03466; Granite 3) and
  // multiplied by the last one.
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double attention_multiplier = 0;
  double logits_scaling = 1;
  double logit_scale = 1;
  // A query of a sliding block sees so many keys, its own among them (Beltagy et al.,
  // arXiv:2004.05150, 3.1); 0: no block slides.
  int64_t window = 0;
  std::vector<AttentionSpan> spans = {};  // by block; empty: all slide, if there is a window
  // By block, whether rotary positions turn its queries and keys; empty: all do. The others have no
  // positions at all (Yang et al., arXiv:2501.18795).
  std::vector<bool> turns = {};
  // Sliding blocks turn by this base, unstretched (Gemma 3, arXiv:2503.19786, 2); 0: as all do.
  double sliding_rope_theta = 0;
  double rotary_share = 1;            // of a head's elements, the first of which turn
  bool interleaved_rotation = false;  // neighbours are a pair; else elements half a width apart
  bool pre_norms = true;              // what attention and feed-forward read is normed
  bool post_norms = false;            // what they add to the residuals is
  // Both read the block's input and add to it (Black et al., GPT-NeoX-20B, arXiv:2204.06745, 2.1),
  // through a norm each or through one.
  bool parallel_residual = false;
  bool shares_norm = false;
  double norm_offset = 0;          // is added to the weights of norms, which start at 1 less
  bool scaled_embeddings = false;  // times the root of D, in the type of activations
  // Scores are divided by its root; 0: by the root of E, or attention_multiplier says it.
  double query_scalar = 0;
  // Scores, and logits, x become cap tanh(x / cap) (Gemma 2, arXiv:2408.00118, 2); 0: they stay.
  double attention_cap = 0;
  double logit_cap = 0;

  // Keys that a query of the block sees, its own among them; 0: all before it.
  int64_t window_of(int64_t block) const {
    const bool is_full =
        !spans.empty() && spans[static_cast<size_t>(block)] == AttentionSpan::kFull;
    return is_full ? 0 : window;
  }
  bool turns_in(int64_t block) const {
    return !learned_positions && (turns.empty() || turns[static_cast<size_t>(block)]);
  }
  // Counts the elements of a head that turn.
  int64_t rotary_dims() const;
  // Returns the ways in which positions turn: that of blocks that see all before, that of sliding
  // ones if it is another. Empty: positions are learned.
  std::vector<Rotation> rotations() const;
  // Returns the index of the block's own.
  int rotation_of(int64_t block) const {
    return sliding_rope_theta > 0 && window_of(block) > 0 ? 1 : 0;
  }
  // Returns what attention's scores are multiplied by; 0: 1/sqrt(E).
  double attention_scale() const;
  // Whether some block sees fewer keys than a sequence of `positions` has.
  bool slides_over(int64_t positions) const;
  bool is_latent() const { return latent.kv_rank > 0; }
  // Whether the feed-forward has a gate: three matrices instead of two.
  bool is_gated() const { return !plain_ffn; }
  bool has_layer_norms() const { return layer_norms; }
  bool has_norm_biases() const { return layer_norms && !bare_norms; }
  // Counts what norms of residuals keep of a row, and vectors that they have.
  int norm_statistics() const { return layer_norms ? 2 : 1; }
  int norm_vectors() const { return has_norm_biases() ? 2 : 1; }
  // Counts a block's norms of residuals and branches.
  int norms_of_block() const {
    return (pre_norms ? (shares_norm ? 1 : 2) : 0) + (post_norms ? 2 : 0);
  }
  bool has_output_bias() const { return attention_bias && !bare_output; }
  bool has_experts(int64_t block) const { return num_experts > 0 && block >= num_dense_blocks; }
  int64_t value_dim() const { return is_latent() ? latent.value_dim : head_dim; }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Gives `model` the mechanisms that all models of an architecture have. What such a model's
// config.json may say otherwise stays as it is.
void SetArchitecture(Architecture architecture, ModelShape& model);

// Empties ModelShape::spans and turns where they say of all blocks what empty ones say, and takes a
// window away that no block has.
void SettleSpans(ModelShape& model);

// Says whether all models of an architecture have ModelShape::attention_bias.
bool AreBiasesAlwaysThere(Architecture architecture);

// Says whether two models do the same with tensors of other sizes.
bool ComputeAlike(const ModelShape& a, const ModelShape& b);

// The one tensor that others ask for by name: a tied head shares it across pipeline stages.
inline constexpr absl::string_view kTokenEmbeddingName = "embed.tokens.weight";

// A tensor's part of the network decides its pipeline stage.
enum class ModelPart { kEmbedding, kBlock, kHead };

enum class InitialValue { kZero, kOne, kNormal };

// A GradientSum says why gradients of a tensor that tp does not cut have to be summed over tp.
enum class GradientSum {
  kNone,       // each tp rank has the whole gradient: it has seen the same values
  kOwnTokens,  // it has seen its part of the tokens, under sequence parallelism
  kOwnHeads,   // it has seen its own heads
};

// One named tensor of the whole, unsharded model. Linear weights are [out, in].
struct TensorSpec {
  std::string name;           // "blocks.3.attn.q.weight"
  std::vector<int64_t> dims;  // 1 or 2 of them
  int split_dim = -1;         // the dim that tensor parallelism cuts; -1: each tp rank holds it all
  int64_t split_unit = 1;     // the cut falls on multiples of this (head_dim for q, k, v, o)
  ModelPart part = ModelPart::kBlock;
  int64_t block = -1;  // index of the block for kBlock, else -1
  InitialValue initial = InitialValue::kNormal;
  double initial_std = 0;  // for kNormal
  GradientSum sum = GradientSum::kNone;

  int64_t elements() const;
  bool is_matrix() const { return dims.size() == 2; }
};

// ModelKeys holds an architecture's spelling of each field in Hugging Face's config.json. Empty
// where it has no such key.
struct ModelKeys {
  absl::string_view vocab_size;
  absl::string_view hidden_size;
  absl::string_view num_blocks;
  absl::string_view num_heads;
  absl::string_view num_kv_heads;
  absl::string_view head_dim;
  absl::string_view ffn_size;
  absl::string_view max_positions;
  absl::string_view norm_eps;
  absl::string_view initializer_range = "initializer_range";
  absl::string_view tied_embeddings = "tie_word_embeddings";
  // gpt2 has none of the rest.
  absl::string_view rope_theta = "";
  absl::string_view attention_bias = "";
  absl::string_view rope_scaling = "";
  absl::string_view num_experts = "";
  absl::string_view experts_per_token = "";
  absl::string_view expert_ffn_size = "";
  absl::string_view num_dense_blocks = "";
  absl::string_view shared_ffn_size = "";
  absl::string_view shared_expert_gate = "";
  absl::string_view expert_imbalance = "";
  absl::string_view query_rank = "";
  absl::string_view kv_rank = "";
  absl::string_view nope_dim = "";
  absl::string_view rope_dim = "";
  absl::string_view value_dim = "";
  absl::string_view qk_norms = "";
  absl::string_view layer_norms = "";
  absl::string_view plain_ffn = "";
  absl::string_view embedding_multiplier = "";
  absl::string_view residual_multiplier = "";
  absl::string_view attention_multiplier = "";
  absl::string_view logits_scaling = "";
  absl::string_view logit_scale = "";
  absl::string_view window = "";
  absl::string_view spans = "";
  absl::string_view turns = "";
  absl::string_view sliding_rope_theta = "";
  absl::string_view parallel_residual = "";
  absl::string_view rotary_share = "";
  absl::string_view query_scalar = "";
  absl::string_view attention_cap = "";
  absl::string_view logit_cap = "";
};
ModelKeys KeysOf(Architecture architecture);

// Every rule that `model` breaks, keys as "model.n_head".
std::vector<SpecIssue> ModelIssues(const ModelShape& model);

// Returns the first of ModelIssues (InvalidArgument), or OK.
absl::Status CheckModel(const ModelShape& model);

// Returns the model whose blocks are all like the first `num_dense_blocks` of `model`.
ModelShape OfDenseBlocks(const ModelShape& model);

Words WordsOf(Architecture);  // as Hugging Face's model_type
Words WordsOf(Activation);    // as Hugging Face's hidden_act

// Returns the architecture whose models compute what `model` does: its own, if that is one of them;
// its own, too, if there is none.
Architecture ArchitectureOf(const ModelShape& model);
// Says whether there is one. Files of other models would say that they were something else.
bool IsOfItsArchitecture(const ModelShape& model);
// The word of ArchitectureOf.
absl::string_view ModelTypeOf(const ModelShape& model);

}  // namespace weft
