// Found by `fit_constants FILE.csv --start middle` (bench/fit_constants.cc), to three digits, which
// are more than they are worth; bench/README.md has the errors. What no published run tells apart
// keeps the default of its struct.
#include "plan/engine/constants.h"

#include <initializer_list>

namespace weft {
namespace {

MatmulHabits Matmul() {
  MatmulHabits habits;
  habits.half_rate_inner = 148;
  habits.wave_loss = 0.921;
  habits.small_tile_loss = 0.215;
  habits.odd_size_rate = 0.0695;
  return habits;
}

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.747;
  constants.attention = 0.367;
  constants.streaming = 0.92;
  constants.intra_node = 0.7;
  constants.intra_latency_s = 1e-05;
  constants.inter_latency_s = 5e-06;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.747;
  constants.matmul_fp8 = 0.64;
  constants.attention = 0.374;
  constants.streaming = 0.75;
  constants.intra_node = 0.85;
  constants.intra_latency_s = 2e-06;
  constants.inter_latency_s = 1.5e-05;
  return constants;
}

// 12-layer runs on one node of B200 only: bf16, no network.
GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.456;
  constants.attention = 0.44;
  constants.streaming = 0.75;
  constants.intra_node = 0.815;
  constants.intra_latency_s = 2e-06;
  return constants;
}

// No published runs: Ampere's kernels, PCIe.
GenerationConstants Ada() {
  GenerationConstants constants = Ampere();
  constants.intra_node = 0.6;
  return constants;
}

// One kernel per operation of worker/backend/device.h; of a linear layer on GPUs in 16 bits one
// with all that surrounds its product. What moves over the data axis moves beside passes
// (worker/state/zero.h; plan/estimate/data_comm.h); everything else is waited for. None of it is
// fitted.
TimeHabits Weft() {
  TimeHabits habits;
  habits.fused_epilogues = true;
  habits.reduce_window = 0.9;
  habits.gather_window = 0.9;
  habits.by_buckets = true;
  habits.gathers_keys = true;
  habits.casts_operands_to_fp8 = true;
  return habits;
}

// Megatron Bridge's recipes overlap reduce-scatter and gather of the distributed optimizer
// (overlap_grad_reduce, overlap_param_gather), in buckets of 40 M parameters
// (DistributedDataParallelConfig.bucket_size), and transfers of interleaved chunks alone
// (overlap_p2p_comm). Its products take their operands from other ranks a piece at a time
// (tp_comm_overlap): how much that hides is in no documentation, so it is fitted.
TimeHabits Megatron() {
  TimeHabits habits;
  habits.chunks_hide_transfers = true;
  habits.reduce_window = 1;
  habits.gather_window = 1;
  habits.bucket_bytes = 1.6e8;
  habits.gradient_bytes = 4;
  habits.tensor_hidden_forward = 0.45;
  habits.tensor_hidden_backward = 0.545;
  habits.forward_ops = 176;
  habits.backward_ops = 405;
  habits.collective_ops = 40;
  habits.transfer_ops = 0;
  habits.microbatch_ops = 2070;
  habits.streaming_forward = 1;
  habits.streaming_backward = 1.76;
  habits.logit_passes = 13.3;
  habits.optimizer_bytes = 28;
  habits.overlap_slowdown = 0.0474;
  habits.collective_start_s = 8.99e-05;
  return habits;
}

// DeepSpeed's pipeline engine reduces after the last pass (_exec_reduce_grads), fp16 gradients in
// buckets of 5e8 (reduce_bucket_size). All-reduces of tp are waited for: the overlap of Megatron-LM
// v2.6 is not in this fork (bigscience's megatron/mpu/layers.py, ColumnParallelLinear.forward).
TimeHabits MegatronDeepspeed() {
  TimeHabits habits;
  habits.fused_attention = false;
  habits.zero_all_reduces = true;
  habits.scatters_transfers = true;
  habits.gradient_bytes = 2;
  habits.bucket_bytes = 1e9;
  habits.forward_ops = 435;
  habits.backward_ops = 335;
  habits.collective_ops = 15.6;
  habits.transfer_ops = 189;
  habits.microbatch_ops = 497;
  habits.step_ops = 0;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 12.1;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0.004;
  habits.collective_start_s = 8.3e-05;
  return habits;
}

// A unit's weights are gathered under the unit before in both passes, its gradients reduced under
// the next (docs.pytorch.org, FSDP notes: implicit prefetching, BACKWARD_PRE), in fp32
// (torchtitan's training.mixed_precision_reduce, Composer's default); units are blocks. Operators
// that `selective` keeps: attention and every second product (_apply_ac_to_transformer_block in
// torchtitan).
TimeHabits PytorchFsdp() {
  TimeHabits habits;
  habits.reduce_window = 1;
  habits.by_blocks = true;
  habits.selective_products = 0.5;
  habits.gradient_bytes = 4;
  habits.old_attention_rate = 0.513;
  habits.forward_ops = 405;
  habits.backward_ops = 405;
  habits.microbatch_ops = 3000;
  habits.step_ops = 7450;
  habits.streaming_forward = 1;
  habits.streaming_backward = 1.5;
  habits.logit_passes = 5.25;
  habits.optimizer_bytes = 60;
  habits.straggler_sigma = 0;
  habits.overlap_slowdown = 0.3;
  habits.collective_start_s = 0.000753;
  habits.row_streaming_forward = 1;
  habits.row_streaming_backward = 1.58;
  return habits;
}

// InternEvo reduces under the last backward pass, bf16 in buckets of 512 MiB (overlap_sync_grad,
// reduce_bucket_size), and waits for its gathers (overlap_sync_param is off); nanotron reduces by
// hooks of DistributedDataParallel under the pass as well. Tensor-parallel collectives are waited
// for.
TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.reduce_window = 1;
  habits.bucket_bytes = 5.37e8;
  habits.gradient_bytes = 2;
  habits.old_attention_rate = 0.48;
  habits.forward_ops = 92.3;
  habits.backward_ops = 437;
  habits.collective_ops = 51.9;
  habits.transfer_ops = 0;
  habits.microbatch_ops = 217;
  habits.step_ops = 16000;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 60;
  habits.straggler_sigma = 0;
  habits.overlap_slowdown = 0.291;
  habits.collective_start_s = 7.91e-05;
  habits.row_streaming_forward = 2.5;
  habits.row_streaming_backward = 3;
  return habits;
}

}  // namespace

TimeConstants FittedTimeConstants() {
  TimeConstants constants;
  constants.ampere = Ampere();
  constants.hopper = Hopper();
  constants.blackwell = Blackwell();
  constants.ada = Ada();
  constants.matmul = Matmul();
  constants.ethernet_latency_s = 0.000264;
  constants.weft = Weft();
  constants.megatron = Megatron();
  constants.megatron_deepspeed = MegatronDeepspeed();
  constants.pytorch_fsdp = PytorchFsdp();
  constants.pytorch_eager = PytorchEager();
  for (TimeHabits* habits : {&constants.weft, &constants.megatron, &constants.megatron_deepspeed,
                             &constants.pytorch_fsdp, &constants.pytorch_eager}) {
    habits->matmul = constants.matmul;
  }
  return constants;
}

// arXiv:2104.04473, 4.1 and 4.2: transfers are scattered, bias, dropout and GELU are fused, softmax
// is fused with its mask. Gradients are reduced after the last pass, fp16 and in one piece.
// All-reduces of tp are waited for in the forward pass; in the backward pass they run beside the
// products of weight gradients (--no-async-tensor-model-parallel-allreduce turns that off).
TimeHabits MegatronLmHabits(const TimeConstants& constants) {
  TimeHabits habits = constants.megatron;
  habits.fused_attention = false;
  habits.score_passes_forward = constants.megatron_deepspeed.score_passes_forward;
  habits.score_passes_backward = constants.megatron_deepspeed.score_passes_backward;
  habits.scatters_transfers = true;
  habits.chunks_hide_transfers = false;
  habits.tensor_hidden_forward = 0;
  habits.tensor_hidden_backward = 1;
  habits.reduce_window = 0;
  habits.gather_window = 0;
  habits.bucket_bytes = 1e15;
  habits.gradient_bytes = 2;
  return habits;
}

}  // namespace weft
