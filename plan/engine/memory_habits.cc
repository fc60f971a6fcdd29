#include "plan/engine/memory_habits.h"

namespace weft {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

}  // namespace

// Its worker's own list of buffers (plan/memory/memory.h); what it cannot run yet is modelled after
// it.
MemoryHabits WeftMemory() {
  MemoryHabits habits;
  habits.arena = true;
  habits.host_updates = false;
  habits.accumulates_in_place = true;
  habits.logit_bytes = 4;
  habits.boundary_tensors = 2;
  return habits;
}

// Megatron-LM core with Transformer Engine, as its functional tests run it: bf16 weight, fp32
// gradient, fp32 master and moments; fp16 gradients copied by the update; logits in bf16, softmax
// in fp32 in place, gradient in bf16 (arXiv:2205.05198, 4.3, without the fp32 copy of logits).
//
// torch's cuBLAS workspace is held twice (compute and backward threads' handles), 32 MiB on Hopper;
// Transformer Engine adds its own, 32 MiB there, and for grouped products one for each of four
// streams (transformer_engine/pytorch/module/base.py, get_multi_stream_cublas_workspace). Experts
// multiply by a token's share before their second layer, so that their outputs need not be kept
// (megatron/core/transformer/moe/token_dispatcher.py hands the shares on to them).
MemoryHabits MegatronMemory() {
  MemoryHabits habits;
  habits.fp16_gradient_bytes = 2;
  habits.copies_fp16_gradients = true;
  habits.fp8_cache_bytes = 1;
  habits.vocabulary_multiple = 128;
  habits.selective_drops_wide = false;
  habits.logit_bytes = 6;
  habits.fused_logit_bytes = 4;
  habits.gathered_layers = 2;
  habits.boundary_tensors = 3;
  habits.resting_chunk_tensors = 2;
  habits.workspace_bytes = (2 * 32 + 32) * kMiB;
  habits.grouped_workspace_bytes = 4 * 32 * kMiB;
  habits.keeps_expert_outputs = false;
  return habits;
}

// Megatron-LM of 2021-22: layers are its own, without Transformer Engine; cuBLAS's workspace on
// Ampere is 8.1 MiB.
MemoryHabits MegatronLmMemory() {
  MemoryHabits habits = MegatronMemory();
  habits.keeps_score_buffer = true;
  habits.workspace_bytes = 2 * 8.125 * kMiB;
  habits.grouped_workspace_bytes = 0;
  habits.keeps_expert_outputs = true;
  habits.fused_attention = false;
  return habits;
}

// Megatron-DeepSpeed of 2021-22 with ZeRO-1: 16-bit weights and gradients; fp32 gradient, master
// and moments of the rank's shard. The context is what nvidia-smi sees beyond tensors: all modules
// of CUDA loaded, communicators, DeepSpeed's buckets and the allocator's fragments (fitted to
// bigscience's runs on A100, which also give back 4.4 + 16.4 / n bytes per parameter).
MemoryHabits MegatronDeepspeedMemory() {
  MemoryHabits habits = MegatronLmMemory();
  habits.gradient_bytes = 6;  // bf16, and the fp32 sum over microbatches
  habits.gradient_copies_stay = true;
  habits.context_bytes = 9 * kGiB;
  habits.guard_share = 0.15;
  return habits;
}

// PyTorch modules without a compiler, as nanotron and FSDP run them: a sequence-parallel linear
// layer keeps its gathered input, logits exist in 16 and several times in 32 bits. What the
// activation of the feed-forward keeps, the bytes per logit and the context are fitted to
// nanotron's published peaks without pipelines, to the upper of their two modes (some runs hold a
// third less, for which the study names no reason); 4.6 % mean error there, 9.5 % at the 90th
// percentile. nanotron's runs that peaked above 70 of 80 GiB took a second a microbatch more than
// others (docs/estimates.md has the table): the last 12 % are not offered.
MemoryHabits PytorchEagerMemory() {
  MemoryHabits habits;
  habits.shards_are_master = true;
  habits.saves_gathered_inputs = true;
  habits.unfused_ffn_bytes = 2.3;
  habits.logit_bytes = 14;
  habits.fused_logit_bytes = 4;
  habits.gathered_layers = 2;
  habits.workspace_bytes = 64 * kMiB;
  habits.context_bytes = 390 * kMiB;
  habits.guard_share = 0.2;
  habits.spare_share = 0.12;
  return habits;
}

}  // namespace weft
