// The rate of one short product, by which hosts that ought to be alike are compared before a job:
// MeasureRates (probe_rates.h) says more and takes seconds.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/backend/device.h"

namespace weft {

// Sides of the square matrices: small enough to be done between two turns of whatever else runs.
inline constexpr int64_t kHostProductSide = 256;
inline constexpr int64_t kGpuProductSide = 4096;

// FLOP/s of the fastest product of two fp32 matrices within `seconds`, of eight at least: what else
// runs meanwhile only makes others slower. ResourceExhausted without the memory, else the device's
// failure.
absl::StatusOr<double> MeasureProduct(Device& device, int64_t side, double seconds);

}  // namespace weft
