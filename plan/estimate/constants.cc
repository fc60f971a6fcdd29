// Found by bench/fit_constants (docs/estimates.md says how); three digits are more than they are
// worth. What no published run tells apart keeps the default of its struct.
#include "plan/estimate/constants.h"

#include <initializer_list>

namespace weft {
namespace {

MatmulHabits Matmul() {
  MatmulHabits habits;
  habits.half_rate_inner = 20;
  habits.wave_loss = 0.972;
  habits.small_tile_loss = 0.246;
  habits.odd_size_rate = 0.0419;
  return habits;
}

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.769;
  constants.attention = 0.37;
  constants.streaming = 0.92;
  constants.intra_node = 1;
  constants.intra_latency_s = 1.48e-05;
  constants.inter_latency_s = 5e-06;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.726;
  constants.matmul_fp8 = 0.667;
  constants.attention = 0.28;
  constants.streaming = 0.75;
  constants.intra_node = 0.65;
  constants.intra_latency_s = 2.34e-06;
  constants.inter_latency_s = 1.4e-05;
  return constants;
}

// 12-layer runs on one node of B200 only: bf16, no network.
GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.45;
  constants.attention = 0.438;
  constants.streaming = 0.75;
  constants.intra_node = 0.65;
  constants.intra_latency_s = 1.43e-05;
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
// (worker/zero.h; plan/estimate/data_comm.h); everything else is waited for. None of it is fitted.
TimeHabits Weft() {
  TimeHabits habits;
  habits.fused_epilogues = true;
  habits.reduce_window = 0.9;
  habits.by_buckets = true;
  habits.gathers_keys = true;
  habits.casts_operands_to_fp8 = true;
  return habits;
}

TimeHabits Megatron() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0.0893;
  habits.tensor_hidden_backward = 0.967;
  habits.pipeline_hidden = 1;
  habits.reduce_window = 0.95;
  habits.gather_window = 1;
  habits.bucket_bytes = 2.1e+08;
  habits.gradient_bytes = 4;
  habits.forward_ops = 256;
  habits.backward_ops = 365;
  habits.collective_ops = 0;
  habits.transfer_ops = 121;
  habits.microbatch_ops = 2060;
  habits.step_ops = 5360;
  habits.streaming_forward = 1;
  habits.streaming_backward = 1.5;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 33.4;
  habits.straggler_sigma = 0;
  return habits;
}

TimeHabits MegatronDeepspeed() {
  TimeHabits habits;
  habits.fused_attention = false;
  habits.zero_all_reduces = true;
  habits.tensor_hidden_forward = 0.5;
  habits.tensor_hidden_backward = 0.15;
  habits.pipeline_hidden = 0;
  habits.bucket_bytes = 2e+09;
  habits.gradient_bytes = 2;
  habits.forward_ops = 473;
  habits.backward_ops = 313;
  habits.collective_ops = 18.3;
  habits.transfer_ops = 79.6;
  habits.microbatch_ops = 1.29;
  habits.step_ops = 804;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 17.6;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0.004;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0;
  habits.tensor_hidden_backward = 0;
  habits.pipeline_hidden = 0.001;
  habits.reduce_window = 0.027;
  habits.gather_window = 0.0142;
  habits.bucket_bytes = 8e+08;
  habits.gradient_bytes = 2;
  habits.forward_ops = 572;
  habits.backward_ops = 306;
  habits.collective_ops = 11.8;
  habits.transfer_ops = 529;
  habits.microbatch_ops = 1060;
  habits.step_ops = 11700;
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
