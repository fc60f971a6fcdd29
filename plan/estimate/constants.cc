#include "plan/estimate/constants.h"

namespace weft {
namespace {

GenerationConstants Ampere() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.8;
  constants.attention = 0.55;
  constants.op_overhead_s = 1e-5;
  return constants;
}

GenerationConstants Hopper() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.7;
  constants.attention = 0.45;
  constants.op_overhead_s = 7e-6;
  return constants;
}

GenerationConstants Blackwell() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.72;
  constants.attention = 0.45;
  constants.op_overhead_s = 7e-6;
  return constants;
}

GenerationConstants Ada() {
  GenerationConstants constants;
  constants.matmul_bf16 = 0.8;
  constants.intra_node = 0.6;
  return constants;
}

// One kernel per operation of worker/backend/device.h, fp32, nothing overlapped.
TimeHabits Weft() {
  TimeHabits habits;
  habits.gradient_bytes = 4;
  habits.parameter_bytes = 4;
  return habits;
}

TimeHabits Megatron() {
  TimeHabits habits;
  habits.forward_ops = 25;
  habits.backward_ops = 40;
  habits.reduce_window = 0.9;
  habits.gather_window = 0.9;
  habits.pipeline_hidden = 0.5;
  habits.tensor_hidden_backward = 0.5;
  habits.optimizer_bytes = 30;
  habits.straggler_sigma = 0.003;
  return habits;
}

TimeHabits MegatronDeepspeed() {
  TimeHabits habits;
  habits.fused_attention = false;
  habits.forward_ops = 116;
  habits.backward_ops = 92;
  habits.microbatch_ops = 40;
  habits.optimizer_bytes = 40;
  habits.score_passes_forward = 5;
  habits.score_passes_backward = 7;
  habits.straggler_sigma = 0.003;
  habits.gradient_bytes = 2;
  return habits;
}

TimeHabits PytorchEager() {
  TimeHabits habits;
  habits.forward_ops = 60;
  habits.backward_ops = 80;
  habits.microbatch_ops = 40;
  habits.reduce_window = 0.8;
  habits.gather_window = 0.8;
  habits.optimizer_bytes = 40;
  habits.streaming_forward = 1.5;
  habits.streaming_backward = 3;
  habits.straggler_sigma = 0.005;
  return habits;
}

}  // namespace

TimeConstants FittedTimeConstants() {
  TimeConstants constants;
  constants.ampere = Ampere();
  constants.hopper = Hopper();
  constants.blackwell = Blackwell();
  constants.ada = Ada();
  constants.weft = Weft();
  constants.megatron = Megatron();
  constants.megatron_deepspeed = MegatronDeepspeed();
  constants.pytorch_eager = PytorchEager();
  return constants;
}

}  // namespace weft
