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
  habits.tensor_hidden_forward = 0.351;
  habits.tensor_hidden_backward = 0.829;
  habits.chunks_hide_transfers = true;
  habits.reduce_window = 1;
  habits.gather_window = 0;
  habits.bucket_bytes = 6.43e+07;
  habits.gradient_bytes = 4;
  habits.forward_ops = 549;
  habits.backward_ops = 230;
  habits.collective_ops = 55.3;
  habits.transfer_ops = 1.63;
  habits.microbatch_ops = 8.06;
  habits.step_ops = 0;
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
  habits.scatters_transfers = true;
  habits.tensor_hidden_forward = 0.211;
  habits.tensor_hidden_backward = 0.225;
  habits.reduce_window = 0.543;
  habits.overlap_slowdown = 0.3;
  habits.bucket_bytes = 2e+09;
  habits.gradient_bytes = 4;
  habits.forward_ops = 458;
  habits.backward_ops = 315;
  habits.collective_ops = 17;
  habits.transfer_ops = 122;
  habits.microbatch_ops = 381;
  habits.step_ops = 596;
  habits.streaming_forward = 2.5;
  habits.streaming_backward = 3;
  habits.score_passes_forward = 3;
  habits.score_passes_backward = 12.4;
  habits.logit_passes = 30;
  habits.optimizer_bytes = 28;
  habits.straggler_sigma = 0.004;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.reduce_window = 0.029;
  habits.overlap_slowdown = 1.64e-05;
  habits.bucket_bytes = 3.09e+08;
  habits.gradient_bytes = 2;
  habits.forward_ops = 465;
  habits.backward_ops = 189;
  habits.collective_ops = 35.7;
  habits.transfer_ops = 746;
  habits.microbatch_ops = 1100;
  habits.step_ops = 9440;
  habits.streaming_forward = 1;
  habits.streaming_backward = 3;
  habits.logit_passes = 4;
  habits.optimizer_bytes = 60;
  habits.straggler_sigma = 0.004;
  habits.tensor_hidden_backward = 0.00363;
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
