// LoRA: low-rank adapters beside frozen linear layers (Hu et al., arXiv:2106.09685, 4.1), as a job
// asks for them and as estimates count them. Names are PEFT's. Pure values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/spec/precision.h"

namespace weft {

struct LoraSpec {
  int64_t r = 8;
  double lora_alpha = 8;
  std::vector<std::string> target_modules = {"q_proj", "v_proj"};  // each once, in a fixed order
  FrozenFormat quantization = FrozenFormat::kBf16;                 // of the frozen base
  friend bool operator==(const LoraSpec&, const LoraSpec&) = default;
};

// LoraTargets says which linear layers of a block have an adapter, each module by itself. In a
// block with experts every expert has the feed-forward's modules, and so has the shared one.
struct LoraTargets {
  bool q = false, k = false, v = false;
  bool qkv = false;  // c_attn, gpt2's q, k and v in one: one adapter for the three
  bool o = false;
  bool gate = false;  // where a feed-forward has one
  bool up = false, down = false;
  friend bool operator==(const LoraTargets&, const LoraTargets&) = default;
};
LoraTargets TargetsOf(const LoraSpec& lora);

// Each adapted [out, in] weight trains r * (out + in) parameters.
struct LowRankAdapters {
  int64_t rank = 0;
  LoraTargets targets = {.q = true, .v = true};
  FrozenFormat frozen = FrozenFormat::kBf16;
  friend bool operator==(const LowRankAdapters&, const LowRankAdapters&) = default;
};

}  // namespace weft
