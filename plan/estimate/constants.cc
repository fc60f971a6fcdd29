// Found by bench/fit_constants (docs/estimates.md says how); three digits are more than they are
// worth. What no published run tells apart keeps the default of its struct.
#include "plan/estimate/constants.h"

#include <initializer_list>

namespace weft {
namespace {

MatmulHabits Matmul() {
  MatmulHabits habits;
  habits.half_rate_inner = 20;
  habits.wave_loss = 0.949;
  habits.small_tile_loss = 0.228;
  habits.odd_size_rate = 0.0823;
  return habits;
}

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.791;
  constants.attention = 0.365;
  constants.streaming = 0.92;
  constants.op_overhead_s = 1.13e-05;
  constants.intra_node = 1;
  constants.inter_node = 0.372;
  constants.intra_latency_s = 5.46e-06;
  constants.inter_latency_s = 5e-06;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.706;
  constants.matmul_fp8 = 0.63;
  constants.attention = 0.3;
  constants.streaming = 0.75;
  constants.op_overhead_s = 1.5e-05;
  constants.intra_node = 0.725;
  constants.inter_node = 0.628;
  constants.intra_latency_s = 1.08e-05;
  constants.inter_latency_s = 5e-05;
  return constants;
}

// 12-layer runs on one node of B200 only: bf16, no network.
GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.45;
  constants.attention = 0.437;
  constants.streaming = 0.75;
  constants.op_overhead_s = 1.5e-05;
  constants.intra_node = 0.501;
  constants.intra_latency_s = 1.39e-05;
  return constants;
}

// No published runs: Ampere's kernels, PCIe.
GenerationConstants Ada() {
  GenerationConstants constants = Ampere();
  constants.intra_node = 0.6;
  return constants;
}

// One kernel per operation of worker/backend/device.h, nothing overlapped, fp32 throughout.
TimeHabits Weft() {
  TimeHabits habits;
  habits.parameter_bytes = 4;
  return habits;
}

TimeHabits Megatron() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0.215;
  habits.tensor_hidden_backward = 0.978;
  habits.pipeline_hidden = 1;
  habits.reduce_window = 0.579;
  habits.gather_window = 0.59;
  habits.overlap_slowdown = 0;
  habits.gradient_bytes = 4;
  habits.forward_ops = 25;
  habits.backward_ops = 40;
  habits.collective_ops = 0;
  habits.transfer_ops = 11.7;
  habits.microbatch_ops = 566;
  habits.step_ops = 1500;
  habits.streaming_forward = 1;
  habits.streaming_backward = 1.5;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0;
  return habits;
}

TimeHabits MegatronDeepspeed() {
  TimeHabits habits;
  habits.fused_attention = false;
  habits.zero_all_reduces = true;
  habits.tensor_hidden_forward = 0.5;
  habits.tensor_hidden_backward = 0;
  habits.pipeline_hidden = 0.382;
  habits.reduce_window = 0;
  habits.gather_window = 0;
  habits.overlap_slowdown = 0;
  habits.gradient_bytes = 2;
  habits.forward_ops = 166;
  habits.backward_ops = 111;
  habits.collective_ops = 7.01;
  habits.transfer_ops = 14.9;
  habits.microbatch_ops = 0;
  habits.step_ops = 420;
  habits.streaming_forward = 1;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 18;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0.004;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0.0748;
  habits.tensor_hidden_backward = 0;
  habits.pipeline_hidden = 0;
  habits.reduce_window = 1;
  habits.gather_window = 0;
  habits.overlap_slowdown = 0;
  habits.gradient_bytes = 2;
  habits.forward_ops = 124;
  habits.backward_ops = 40.5;
  habits.collective_ops = 6.61;
  habits.transfer_ops = 117;
  habits.microbatch_ops = 485;
  habits.step_ops = 6270;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 1.51;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 60;
  habits.straggler_sigma = 0.004;
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
  constants.weft = Weft();
  constants.megatron = Megatron();
  constants.megatron_deepspeed = MegatronDeepspeed();
  constants.pytorch_eager = PytorchEager();
  for (TimeHabits* habits : {&constants.weft, &constants.megatron, &constants.megatron_deepspeed,
                             &constants.pytorch_eager}) {
    habits->matmul = constants.matmul;
  }
  return constants;
}

}  // namespace weft
