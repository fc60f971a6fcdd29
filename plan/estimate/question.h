// A Question is what an estimate is asked about, besides the layout: model, machine, batch,
// numbers, and the habits of the engine that would run it. Pure values.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/engine/engine_profile.h"
#include "plan/memory/memory.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/precision.h"

namespace weft {

// Low-rank adapters beside frozen linear layers (Hu et al., arXiv:2106.09685, 4.1): each adapted
// [out, in] weight trains r * (out + in) parameters.
struct LowRankAdapters {
  int64_t rank = 0;
  bool on_attention_qv = true;  // q and v projections
  bool on_attention_ko = false;
  bool on_mlp = false;
  FrozenFormat frozen = FrozenFormat::kBf16;
  friend bool operator==(const LowRankAdapters&, const LowRankAdapters&) = default;
};

struct Question {
  ModelShape model;
  Cluster cluster;
  BatchShape batch;
  Numerics numerics;
  EngineProfile engine;
  std::optional<LowRankAdapters> adapters;  // nullopt: everything is trained
  // On GPUs: sums of ranks in their order, and attention's gradient in an order of its own.
  bool deterministic = false;
};

}  // namespace weft
