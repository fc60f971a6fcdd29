#include "plan/estimate/activation_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/memory/memory.h"
#include "plan/schedule/schedule.h"

namespace weft {
namespace {

// One microbatch's sizes on one rank; letters are the glossary's.
struct Sizes {
  double element = 4;   // bytes of an activation
  double linear = 4;    // bytes of a saved input of a linear layer
  double tokens = 0;    // N = B * T / cp
  double residual = 0;  // tokens of norms and residuals: N / tp where sequence parallel
  double hidden = 0;    // D
  double query = 0;     // H * E of this rank
  double key = 0;       // K * E of this rank
  double values = 0;    // elements of a token's values of this rank
  double output = 0;    // of what attention makes of them
  double heads = 0;     // H of this rank
  double kv_heads = 0;  // K of this rank
  double ranks = 0;     // of latent attention: what a token's queries, keys and values are made of
  double scores = 0;    // elements of [B, H, T / cp, T] on this rank
  double ffn_in = 0;   // elements of the feed-forward's inner tensors, gate and up, all its experts
  double ffn_out = 0;  // elements of what goes into its last matrix
  double routed = 0;   // elements of the tokens' copies that this rank's experts get
  double gated = 1;
  double norms = 2;  // before attention and feed-forward
};

void AddFeedForward(const Question& question, const Layout& layout, Sizes& sizes) {
  const ModelShape& model = question.model;
  const auto tp = static_cast<double>(layout.tp);
  if (model.num_experts == 0) {
    sizes.ffn_out = sizes.tokens * static_cast<double>(model.ffn_size) / tp;
  } else {
    const double etp = layout.expert_tp();
    const double copies = sizes.tokens * static_cast<double>(model.experts_per_token) *
                          model.expert_imbalance * etp / tp;
    sizes.routed = copies * sizes.hidden;
    sizes.ffn_out = copies * static_cast<double>(model.expert_ffn_size) / etp +
                    sizes.tokens * static_cast<double>(model.shared_ffn_size) / tp;
  }
  sizes.ffn_in = sizes.gated * sizes.ffn_out;
}

Sizes SizesOf(const Question& question, const Layout& layout) {
  const ModelShape& model = question.model;
  const auto tp = static_cast<double>(layout.tp);
  const auto head_dim = static_cast<double>(model.head_dim);
  Sizes sizes;
  sizes.element = ActivationBytes(question.numerics.precision);
  // An arena keeps what it computed and casts it when a product takes it.
  const bool keeps_codes =
      question.numerics.precision == Precision::kFp8 && !question.engine.memory.arena;
  sizes.linear = keeps_codes ? 1 : sizes.element;
  sizes.tokens = LocalTokens(question, layout);
  sizes.residual = layout.sequence_parallel ? sizes.tokens / tp : sizes.tokens;
  sizes.hidden = static_cast<double>(model.hidden_size);
  sizes.heads = static_cast<double>(model.num_heads) / tp;
  sizes.query = sizes.heads * head_dim;
  sizes.kv_heads = std::max(static_cast<double>(model.num_kv_heads) / tp, 1.0);
  sizes.key = sizes.kv_heads * head_dim;
  sizes.values = sizes.kv_heads * static_cast<double>(model.value_dim());
  sizes.output = sizes.heads * static_cast<double>(model.value_dim());
  if (model.is_latent()) {
    const LatentAttention& latent = model.latent;
    sizes.ranks = static_cast<double>(2 * latent.query_rank + 2 * latent.kv_rank + latent.rope_dim);
  }
  sizes.scores = sizes.heads * sizes.tokens * static_cast<double>(question.batch.seq_len);
  sizes.gated = model.is_gated() ? 2 : 1;
  sizes.norms = model.norms_of_block() - (model.post_norms ? 2 : 0);
  AddFeedForward(question, layout, sizes);
  return sizes;
}

// Scores of all pairs: softmax, and with dropout its mask and its dropped copy.
double ScoreBytes(const Question& question, const Sizes& sizes) {
  const MemoryHabits& habits = question.engine.memory;
  if (habits.fused_attention) return 0;
  return sizes.scores * (habits.dropout ? 2 * sizes.element + 1 : sizes.element);
}

// Returns the bytes that selective recompute leaves out besides scores.
double WideBytes(const Question& question, const Sizes& sizes) {
  const MemoryHabits& habits = question.engine.memory;
  if (!habits.selective_drops_wide) return 0;
  const bool has_latents = sizes.ranks > 0;
  const double up = habits.selective_drops_up && has_latents
                        ? sizes.element * sizes.tokens * (sizes.query + sizes.key + sizes.values)
                        : 0;
  return up + sizes.norms * sizes.linear * sizes.residual * sizes.hidden +
         sizes.linear * sizes.ffn_out + habits.unfused_ffn_bytes * sizes.ffn_in;
}

double SavedWithoutRecompute(const Question& question, const Sizes& sizes) {
  const MemoryHabits& habits = question.engine.memory;
  const ModelShape& model = question.model;
  const double residual = sizes.residual * sizes.hidden;
  const double inputs = habits.saves_gathered_inputs ? sizes.tokens * sizes.hidden : residual;
  const double norm_statistics = 2 * model.norm_statistics();
  // Inputs of the norms, or of products where there are none before; then their outputs, and mean
  // and inverse deviation, fp32.
  double bytes = (model.parallel_residual ? 1 : 2) * sizes.element * residual;
  bytes += sizes.norms * sizes.linear * inputs;
  bytes += sizes.norms * norm_statistics * 2 * sizes.residual;
  // Norms after the branches keep their inputs; their outputs are terms of sums.
  if (model.post_norms)
    bytes += 2 * sizes.element * residual + 4 * norm_statistics * sizes.residual;
  if (habits.dropout) bytes += 2 * residual;  // masks
  bytes += sizes.element * sizes.tokens * (sizes.query + sizes.key + sizes.values);
  if (model.qk_norms) {  // their inputs, and an inverse deviation a head, or one
    const double rows = model.wide_qk_norms ? 2 : sizes.heads + sizes.kv_heads;
    bytes += sizes.element * sizes.tokens * (sizes.query + sizes.key) +
             2 * norm_statistics * sizes.tokens * rows;
  }
  // The low-rank norms' inputs and outputs, the key with position, two inverse deviations.
  if (model.is_latent()) bytes += sizes.residual * (sizes.element * sizes.ranks + 8);
  const bool twice = habits.fused_attention && habits.keeps_two_attention_outputs &&
                     sizes.tokens > static_cast<double>(question.batch.seq_len);
  const double output = sizes.tokens * sizes.output;
  bytes += sizes.linear * output + (twice ? sizes.element * output : 0);
  bytes += habits.fused_attention ? 4 * sizes.tokens * sizes.heads : ScoreBytes(question, sizes);
  bytes += sizes.element * sizes.ffn_in + sizes.linear * sizes.ffn_out;
  if (model.num_experts > 0) {
    // Tokens to the experts, and what comes back unless it was weighed before.
    bytes += (habits.keeps_expert_outputs ? 2 : 1) * sizes.element * sizes.routed;
    // The router's logits and shares, and the share of each copy.
    bytes += 8 * sizes.residual * static_cast<double>(model.num_experts) +
             4 * sizes.routed / sizes.hidden;
  }
  return bytes + habits.unfused_ffn_bytes * sizes.ffn_in;
}

// The larger of what the feed-forward's and the attention's backward hold at once.
double BackwardBytes(const Question& question, const Layout& layout, const Sizes& sizes) {
  const MemoryHabits& habits = question.engine.memory;
  const double whole = sizes.element * sizes.tokens * sizes.hidden;
  const double gathered = layout.sequence_parallel ? 2 * whole : whole;
  const double feed_forward = sizes.element * (sizes.ffn_in + sizes.routed) + gathered;
  // Gradients of q, k and v, that of q in fp32 while it is summed (arXiv:2307.08691, 3.1).
  double attention = sizes.element * sizes.tokens * (sizes.query + sizes.key + sizes.values) +
                     4 * sizes.tokens * sizes.query + gathered;
  if (!habits.fused_attention) attention += 2 * sizes.element * sizes.scores;
  double bytes = std::max(feed_forward, attention);
  const bool dequantizes = question.adapters && question.adapters->frozen != FrozenFormat::kBf16;
  if (dequantizes || (!habits.accumulates_in_place && !question.adapters)) {
    const ModelShape& model = question.model;
    double widest = static_cast<double>(model.ffn_size) / layout.tp;
    // A grouped product makes the gradients of all experts at once.
    if (model.num_experts > 0) {
      widest = std::ceil(static_cast<double>(model.num_experts) / layout.ep) *
               static_cast<double>(model.expert_ffn_size) / layout.expert_tp();
    }
    bytes += sizes.element * sizes.gated * sizes.hidden * widest;
  }
  return bytes;
}

}  // namespace

double LocalTokens(const Question& question, const Layout& layout) {
  return static_cast<double>(layout.micro_batch_size) *
         static_cast<double>(question.batch.seq_len) / layout.cp;
}

double BoundaryBytes(const Question& question, const Layout& layout) {
  const double tokens = LocalTokens(question, layout);
  return ActivationBytes(question.numerics.precision) *
         static_cast<double>(question.model.hidden_size) *
         (layout.sequence_parallel ? tokens / layout.tp : tokens);
}

BlockFootprint BlockActivationBytes(const Question& question, const Layout& layout,
                                    Recompute recompute) {
  const Sizes sizes = SizesOf(question, layout);
  const double all = SavedWithoutRecompute(question, sizes);
  BlockFootprint block;
  block.saved = all;
  if (recompute == Recompute::kSelective) {
    block.saved = all - ScoreBytes(question, sizes) - WideBytes(question, sizes);
  } else if (recompute == Recompute::kFull) {
    block.saved = BoundaryBytes(question, layout);
  }
  block.recomputed = all - block.saved;
  block.backward = BackwardBytes(question, layout, sizes);
  // Inputs and output gradients of its linear layers (Qi et al., arXiv:2401.10241, 2.2).
  const double inputs = 2 * sizes.residual * sizes.hidden + sizes.tokens * sizes.output +
                        sizes.ffn_out + sizes.routed;
  const double gradients = sizes.tokens * (sizes.query + sizes.key + sizes.values) + sizes.ffn_in +
                           2 * sizes.residual * sizes.hidden;
  block.pending = sizes.linear * inputs + sizes.element * gradients;
  return block;
}

HeadActivations HeadActivationBytes(const Question& question, const Layout& layout) {
  const MemoryHabits& habits = question.engine.memory;
  const auto tp = static_cast<double>(layout.tp);
  const double tokens = LocalTokens(question, layout);
  double vocabulary = std::ceil(static_cast<double>(question.model.vocab_size) /
                                (static_cast<double>(habits.vocabulary_multiple) * tp)) *
                      static_cast<double>(habits.vocabulary_multiple);
  if (habits.arena) {
    vocabulary = static_cast<double>(LogitStride(static_cast<int64_t>(vocabulary)));
  }
  HeadActivations head;
  head.saved = 2 * BoundaryBytes(question, layout);
  // An arena's logits become their gradient in place: as wide as any activation.
  const double wide = question.numerics.precision == Precision::kFp32 && !habits.arena ? 2
                      : habits.arena ? ActivationBytes(question.numerics.precision) / 4.0
                                     : 1;
  head.logits = wide * (habits.fused_loss ? habits.fused_logit_bytes : habits.logit_bytes) *
                tokens * vocabulary / layout.head_chunks(question.batch.seq_len);
  return head;
}

double EmbeddingActivationBytes(const Question& question, const Layout& layout) {
  if (!question.engine.memory.dropout) return 0;
  return BoundaryBytes(question, layout) / ActivationBytes(question.numerics.precision);
}

InFlight InFlightOf(const Question& question, const Layout& layout, int stage) {
  const int64_t stage_blocks = StageBlockCount(layout, question.model.num_blocks, stage);
  const auto blocks = static_cast<double>(stage_blocks);
  const auto microbatches = static_cast<double>(layout.gradient_accumulation_steps);
  const double depth = layout.pp - stage;
  InFlight held;
  held.chunk_blocks = blocks;
  switch (layout.pp_schedule) {
    case ScheduleKind::kGpipe:
      held.microbatches = microbatches;
      break;
    case ScheduleKind::kOneForwardOneBackward:
      held.microbatches = std::min(microbatches, depth);
      break;
    case ScheduleKind::kZeroBubbleH1:
      // It holds what 1F1B does, and puts off `stage` weight gradients (plan/schedule/schedule.h).
      held.microbatches = std::min(microbatches, depth);
      held.pending =
          blocks * (std::min(microbatches, static_cast<double>(layout.pp)) - held.microbatches);
      break;
    case ScheduleKind::kInterleaved: {
      // Warm-up and the pass that follows it (Narayanan et al., SC'21, 2.2.2).
      const double chunks = layout.virtual_stages;
      const double most =
          std::min(microbatches * chunks, 2 * (depth - 1) + (chunks - 1) * layout.pp + 1);
      held.chunk_blocks = std::ceil(blocks / chunks);
      held.block_passes =
          static_cast<double>(PeakLiveBlocks(layout, question.model.num_blocks, stage));
      held.microbatches = most / chunks;
      return held;
    }
  }
  held.block_passes = held.microbatches * blocks;
  return held;
}

}  // namespace weft
