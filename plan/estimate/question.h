// A Question is what an estimate is asked about, besides the layout: model, machine, batch,
// numbers, and the habits of the engine that would run it. Pure values.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/engine/engine_profile.h"
#include "plan/memory/memory.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout.h"
#include "plan/spec/lora.h"
#include "plan/spec/model.h"
#include "plan/spec/precision.h"

namespace weft {

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
