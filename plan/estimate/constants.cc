// Found by bench/fit_constants (docs/estimates.md says how); three digits are more than they are
// worth. What no published run tells apart keeps the default of its struct.
#include "plan/estimate/constants.h"

#include <initializer_list>

namespace weft {
namespace {

MatmulHabits Matmul() {
  MatmulHabits habits;
  habits.half_rate_inner = 20;
  habits.wave_loss = 1;
  habits.small_tile_loss = 0.293;
  habits.odd_size_rate = 0.0759;
  return habits;
}

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.783;
  constants.attention = 0.366;
  constants.streaming = 0.92;
  constants.op_overhead_s = 1.13e-05;
  constants.intra_node = 1;
  // Not fitted, but a prior: what InfiniBand gives of its rate in large collectives.
  constants.inter_node = 0.7;
  constants.intra_latency_s = 1.44e-05;
  constants.inter_latency_s = 5e-06;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.772;
  constants.matmul_fp8 = 0.744;
  constants.attention = 0.25;
  constants.streaming = 0.75;
  constants.op_overhead_s = 1.46e-05;
  constants.intra_node = 0.5;
  constants.inter_node = 0.488;
  constants.intra_latency_s = 2e-06;
  constants.inter_latency_s = 5e-06;
  return constants;
}

// 12-layer runs on one node of B200 only: bf16, no network.
GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.45;
  constants.attention = 0.438;
  constants.streaming = 0.75;
  constants.op_overhead_s = 1.5e-05;
  constants.intra_node = 0.5;
  constants.intra_latency_s = 1.5e-05;
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
  habits.tensor_hidden_forward = 0.141;
  habits.tensor_hidden_backward = 0.958;
  habits.pipeline_hidden = 1;
  habits.reduce_window = 1;
  habits.gather_window = 1;
  habits.bucket_bytes = 4.7e+07;
  habits.gradient_bytes = 4;
  habits.forward_ops = 70;
  habits.backward_ops = 100;
  habits.collective_ops = 0;
  habits.transfer_ops = 46;
  habits.microbatch_ops = 502;
  habits.step_ops = 1510;
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
  habits.tensor_hidden_backward = 0.194;
  habits.pipeline_hidden = 0;
  habits.bucket_bytes = 2e+09;
  habits.gradient_bytes = 2;
  habits.forward_ops = 168;
  habits.backward_ops = 110;
  habits.collective_ops = 6.5;
  habits.transfer_ops = 30.7;
  habits.microbatch_ops = 18.1;
  habits.step_ops = 261;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 15.3;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0.004;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0.0585;
  habits.tensor_hidden_backward = 0.349;
  habits.pipeline_hidden = 0;
  habits.reduce_window = 0.035;
  habits.gather_window = 0.000125;
  habits.bucket_bytes = 2.76e+08;
  habits.gradient_bytes = 2;
  habits.forward_ops = 151;
  habits.backward_ops = 71;
  habits.collective_ops = 5.97;
  habits.transfer_ops = 194;
  habits.microbatch_ops = 268;
  habits.step_ops = 4390;
  habits.streaming_forward = 1;
  habits.streaming_backward = 3;
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
