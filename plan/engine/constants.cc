// Found by `fit_constants FILE.csv --start middle` (bench/fit_constants.cc), to three digits, which
// are more than they are worth; bench/README.md has the errors. What no published run tells apart
// keeps the default of its struct.
#include "plan/engine/constants.h"

#include <initializer_list>

namespace weft {
namespace {

MatmulHabits Matmul() {
  MatmulHabits habits;
  habits.half_rate_inner = 156;
  habits.wave_loss = 1;
  habits.small_tile_loss = 0.249;
  habits.odd_size_rate = 0.0677;
  return habits;
}

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.798;
  constants.attention = 0.37;
  constants.streaming = 0.92;
  constants.intra_node = 1;
  constants.intra_latency_s = 1.5e-05;
  constants.inter_latency_s = 5e-06;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.73;
  constants.matmul_fp8 = 0.658;
  constants.attention = 0.28;
  constants.streaming = 0.75;
  constants.intra_node = 0.676;
  constants.intra_latency_s = 2e-06;
  constants.inter_latency_s = 1.1e-05;
  return constants;
}

// 12-layer runs on one node of B200 only: bf16, no network.
GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.45;
  constants.attention = 0.439;
  constants.streaming = 0.75;
  constants.intra_node = 0.65;
  constants.intra_latency_s = 1.5e-05;
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
  habits.by_buckets = true;
  habits.gathers_keys = true;
  habits.casts_operands_to_fp8 = true;
  return habits;
}

TimeHabits Megatron() {
  TimeHabits habits;
  habits.tensor_hidden_forward = 0.304;
  habits.tensor_hidden_backward = 0.992;
  habits.pipeline_hidden = 1;
  habits.reduce_window = 1;
  habits.gather_window = 1;
  habits.bucket_bytes = 6.92e+07;
  habits.gradient_bytes = 4;
  habits.forward_ops = 363;
  habits.backward_ops = 410;
  habits.collective_ops = 42.7;
  habits.transfer_ops = 216;
  habits.microbatch_ops = 8.06;
  habits.step_ops = 12500;
  habits.streaming_forward = 1;
  habits.streaming_backward = 1.5;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 28;
  return habits;
}

TimeHabits MegatronDeepspeed() {
  TimeHabits habits;
  habits.fused_attention = false;
  habits.zero_all_reduces = true;
  habits.tensor_hidden_forward = 0.5;
  habits.tensor_hidden_backward = 0.323;
  habits.reduce_window = 0.603;
  habits.overlap_slowdown = 0.00545;
  habits.bucket_bytes = 2e+09;
  habits.gradient_bytes = 4;
  habits.forward_ops = 458;
  habits.backward_ops = 315;
  habits.collective_ops = 13.5;
  habits.transfer_ops = 71.9;
  habits.microbatch_ops = 456;
  habits.step_ops = 1120;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 11.7;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28.1;
  habits.straggler_sigma = 0.004;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.pipeline_hidden = 0.992;
  habits.reduce_window = 0.0308;
  habits.overlap_slowdown = 1.64e-05;
  habits.bucket_bytes = 3.09e+08;
  habits.gradient_bytes = 2;
  habits.forward_ops = 425;
  habits.backward_ops = 189;
  habits.collective_ops = 35.7;
  habits.transfer_ops = 984;
  habits.microbatch_ops = 1540;
  habits.step_ops = 9150;
  habits.streaming_forward = 1;
  habits.streaming_backward = 2.98;
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
