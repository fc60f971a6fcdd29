// The updates of parameters on a CPU, for a Device to own: it gives them its threads and the place
// where its failures are kept, which outlive them.
#pragma once
#include <cstdint>
#include <memory>

#include "worker/backend/adafactor_steps.h"
#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/failure.h"
#include "worker/backend/updates.h"

namespace weft {

std::unique_ptr<Updates> MakeCpuUpdates(const Threads& threads, FirstFailure& failure);
std::unique_ptr<AdafactorSteps> MakeCpuAdafactor(const Threads& threads, FirstFailure& failure);

// An array of 8 bits: its codes and the scales of its blocks.
struct QuantisedMoment {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
};
// The loop of Updates::QuantisedAdamw (quantised_adamw.cc).
void QuantisedAdamwUpdate(const AdamwParameters& adamw, double weight_decay, double gradient_scale,
                          const float* gradient, float* param, const QuantisedMoment& exp_avg,
                          const QuantisedMoment& exp_avg_sq, int64_t count);

}  // namespace weft
