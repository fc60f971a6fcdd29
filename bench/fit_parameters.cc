#include "bench/fit_parameters.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

void AddGeneration(const std::string& name, GenerationConstants& constants,
                   std::vector<FitParameter>& parameters) {
  const FitParameter own[] = {
      {"matmul_bf16", &constants.matmul_bf16, 0.45, 0.95},
      {"matmul_fp8", &constants.matmul_fp8, 0.2, 1},
      {"attention", &constants.attention, 0.28, 0.75},
      {"streaming", &constants.streaming, 0.75, 0.92},
      {"intra_node", &constants.intra_node, 0.65, 1},
      {"intra_latency_s", &constants.intra_latency_s, 2e-6, 1.5e-5},
      {"inter_latency_s", &constants.inter_latency_s, 5e-6, 1.5e-5},
  };
  for (const FitParameter& parameter : own) {
    parameters.push_back(parameter);
    parameters.back().name = absl::StrCat(name, ".", parameter.name);
  }
}

void AddEngine(const std::string& name, TimeHabits& habits, std::vector<FitParameter>& parameters) {
  const FitParameter own[] = {
      {"tensor_hidden_forward", &habits.tensor_hidden_forward, 0, 0.5},
      {"tensor_hidden_backward", &habits.tensor_hidden_backward, 0, 1},
      {"reduce_window", &habits.reduce_window, 0, 1},
      {"gather_window", &habits.gather_window, 0, 1},
      {"overlap_slowdown", &habits.overlap_slowdown, 0, 0.3},
      {"bucket_bytes", &habits.bucket_bytes, 1e7, 2e9},
      {"gradient_bytes", &habits.gradient_bytes, 2, 4},
      {"forward_ops", &habits.forward_ops, 10, 800},
      {"backward_ops", &habits.backward_ops, 10, 800},
      {"collective_ops", &habits.collective_ops, 0, 100},
      {"transfer_ops", &habits.transfer_ops, 0, 1500},
      {"microbatch_ops", &habits.microbatch_ops, 0, 3000},
      {"step_ops", &habits.step_ops, 0, 30000},
      {"streaming_forward", &habits.streaming_forward, 1, 2.5},
      {"streaming_backward", &habits.streaming_backward, 1.5, 3},
      {"score_passes_forward", &habits.score_passes_forward, 3, 14},
      {"score_passes_backward", &habits.score_passes_backward, 4, 18},
      {"logit_passes", &habits.logit_passes, 4, 30},
      {"optimizer_bytes", &habits.optimizer_bytes, 28, 60},
      {"straggler_sigma", &habits.straggler_sigma, 0, 0.004},
  };
  for (const FitParameter& parameter : own) {
    parameters.push_back(parameter);
    parameters.back().name = absl::StrCat(name, ".", parameter.name);
  }
}

}  // namespace

std::vector<FitParameter> FitParameters(TimeConstants& constants) {
  std::vector<FitParameter> parameters;
  parameters.push_back({"matmul.half_rate_inner", &constants.matmul.half_rate_inner, 20, 600});
  parameters.push_back({"matmul.wave_loss", &constants.matmul.wave_loss, 0, 1});
  parameters.push_back({"matmul.small_tile_loss", &constants.matmul.small_tile_loss, 0, 0.3});
  parameters.push_back({"matmul.odd_size_rate", &constants.matmul.odd_size_rate, 0.02, 1});
  AddGeneration("ampere", constants.ampere, parameters);
  AddGeneration("hopper", constants.hopper, parameters);
  AddGeneration("blackwell", constants.blackwell, parameters);
  AddEngine("megatron", constants.megatron, parameters);
  AddEngine("megatron_deepspeed", constants.megatron_deepspeed, parameters);
  AddEngine("pytorch_eager", constants.pytorch_eager, parameters);
  return parameters;
}

}  // namespace weft
