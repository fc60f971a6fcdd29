#include "bench/fit_parameters.h"

#include <utility>

#include "absl/strings/match.h"
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
      {"intra_node", &constants.intra_node, 0.7, 0.85},
      {"intra_latency_s", &constants.intra_latency_s, 2e-6, 1e-5},
      {"inter_latency_s", &constants.inter_latency_s, 5e-6, 1.5e-5},
  };
  for (const FitParameter& parameter : own) {
    parameters.push_back(parameter);
    parameters.back().name = absl::StrCat(name, ".", parameter.name);
  }
}

// Fits no overlap and no size of a piece: plan/engine/constants.cc states those.
void AddEngine(const std::string& name, TimeHabits& habits, std::vector<FitParameter>& parameters) {
  std::vector<FitParameter> own = {
      {"overlap_slowdown", &habits.overlap_slowdown, 0, 0.3},
      {"forward_ops", &habits.forward_ops, 10, 800},
      {"backward_ops", &habits.backward_ops, 10, 800},
      {"collective_ops", &habits.collective_ops, 0, 100},
      {"collective_start_s", &habits.collective_start_s, 0, 8e-4},
      {"transfer_ops", &habits.transfer_ops, 0, 1500},
      {"microbatch_ops", &habits.microbatch_ops, 0, 3000},
      {"step_ops", &habits.step_ops, 0, 30000},
      {"streaming_forward", &habits.streaming_forward, 1, 2.5},
      {"streaming_backward", &habits.streaming_backward, 1.5, 3},
      {"logit_passes", &habits.logit_passes, 4, 30},
      {"optimizer_bytes", &habits.optimizer_bytes, 28, 60},
      {"straggler_sigma", &habits.straggler_sigma, 0, 0.004},
  };
  if (!habits.fused_attention) {
    own.push_back({"score_passes_forward", &habits.score_passes_forward, 3, 14});
    own.push_back({"score_passes_backward", &habits.score_passes_backward, 4, 18});
  }
  if (absl::StartsWith(name, "pytorch")) {
    own.push_back({"row_streaming_forward", &habits.row_streaming_forward, 1, 2.5});
    own.push_back({"row_streaming_backward", &habits.row_streaming_backward, 1.5, 3});
    own.push_back({"old_attention_rate", &habits.old_attention_rate, 0.4, 1});
  }
  if (name == "megatron") {
    own.push_back({"tensor_hidden_forward", &habits.tensor_hidden_forward, 0, 1});
    own.push_back({"tensor_hidden_backward", &habits.tensor_hidden_backward, 0, 1});
  }
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
  parameters.push_back({"ethernet.latency_s", &constants.ethernet_latency_s, 1e-5, 6e-4});
  AddGeneration("ampere", constants.ampere, parameters);
  AddGeneration("hopper", constants.hopper, parameters);
  AddGeneration("blackwell", constants.blackwell, parameters);
  AddEngine("megatron", constants.megatron, parameters);
  AddEngine("megatron_deepspeed", constants.megatron_deepspeed, parameters);
  AddEngine("pytorch_fsdp", constants.pytorch_fsdp, parameters);
  AddEngine("pytorch_eager", constants.pytorch_eager, parameters);
  return parameters;
}

}  // namespace weft
