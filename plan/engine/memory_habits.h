// MemoryHabits says what an engine keeps in memory, at which width, and what its backward pass
// needs at once. Every constant of the memory estimate is a field here, with its meaning;
// memory_habits.cc has the values of each engine and where they come from. None depends on a model,
// a layout or a run. Pure values.
#pragma once
#include <cstdint>

namespace weft {

struct MemoryHabits {
  // Every buffer is laid out before step 1 and reused: the activations' and head's gradients are
  // made in place, nothing is freed, one layout of memory serves the whole step. Otherwise the
  // largest of several moments of a step counts.
  bool arena = false;

  // Model states of a trained parameter where products are in 16 or 8 bits; in fp32 weight and
  // gradient have 4 bytes and there is no master copy.
  double weight_bytes = 2;
  double gradient_bytes = 4;       // accumulated over microbatches, bf16 products
  double fp16_gradient_bytes = 4;  // the same, fp16 products
  // Gradients of 2 bytes are copied to fp32 by the update. The copies stay until the next step's
  // gradients are cleared: they count between steps, not beside activations.
  bool copies_fp16_gradients = false;
  bool gradient_copies_stay = false;  // all the time
  bool master_weights = true;         // fp32, beside 16-bit weights
  double moment_bytes = 4;            // of each of the optimizer's states that is not in 8 bits
  // Offloaded states are updated on the host, which holds fp32 weights and a gradient for that too
  // (ZeRO-Offload, arXiv:2101.06840, 4.2). false: they come to the device, a stretch at a time.
  bool host_updates = true;
  // Under ZeRO-3 the shards are the fp32 master; 16-bit weights exist while gathered only (FSDP).
  bool shards_are_master = false;
  double fp8_cache_bytes = 0;       // per weight of a linear layer, beside the 16-bit one
  int64_t vocabulary_multiple = 1;  // rows of each rank's vocabulary are a multiple of this

  // These say what is saved for backward.
  bool fused_attention = true;               // no [T, T] matrix is stored
  bool keeps_two_attention_outputs = false;  // its kernel and the engine differ in their order of
                                             // batch and sequence: a copy where both exceed 1
  bool dropout = false;                      // on residuals and attention, masks of 1 byte
  bool selective_drops_wide = true;    // selective recompute drops norm and activation outputs too,
                                       // not the attention core alone
  bool selective_drops_up = false;     // and queries, keys and values that latents are made into
  bool saves_gathered_inputs = false;  // sequence parallel: inputs of linear layers are kept whole
  double unfused_ffn_bytes = 0;  // per token and element of the feed-forward, for its activation
  // Experts' outputs are kept for the gradient of their shares; false: they were multiplied by it
  // within the expert.
  bool keeps_expert_outputs = true;

  // The head: logits, softmax, their gradients at once, per logit of a microbatch.
  double logit_bytes = 6;
  double fused_logit_bytes = 4;
  bool fused_loss = false;

  // Transients of backward.
  bool accumulates_in_place = false;  // products add to the gradient: no weight gradient of its own
  // A 16-bit gradient for each shape of a weight stays allocated, for automatic differentiation to
  // hand on: experts share one.
  bool keeps_placeholder_gradients = false;
  double gathered_layers = 2;        // ZeRO-3: blocks whose weights are gathered at once;
                                     // an arena has room for its largest bucket
  double boundary_tensors = 3;       // [N, D] at a stage's border, pp > 1
  double resting_chunk_tensors = 0;  // of them per chunk that stay between steps, interleaved
  bool loader_mask = false;         // the data loader makes a [T, T] mask per sequence, a byte each
  bool keeps_score_buffer = false;  // one microbatch's scores, where attention is not fused

  double workspace_bytes = 0;          // of matrix products
  double grouped_workspace_bytes = 0;  // of the grouped products of experts, beside it
  double context_bytes = 0;            // beside what the device's profile names: communicators
  double guard_share = 0.02;           // of an estimate: what it was seen to fall short by, at most
  double allocator_slack = 1.0;        // reserved over allocated bytes
  // A caching allocator has to find this share of a device's memory free, or it gives blocks back
  // to the driver and asks for them again in every microbatch.
  double spare_share = 0;
};

MemoryHabits WeftMemory();
MemoryHabits MegatronMemory();
MemoryHabits MegatronLmMemory();
MemoryHabits MegatronDeepspeedMemory();
MemoryHabits PytorchEagerMemory();

}  // namespace weft
