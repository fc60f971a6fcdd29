// Rates of one device, measured through device.h. Timings are the best of a few repetitions: other
// processes only ever make an operation slower.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/cluster.h"
#include "worker/backend/device.h"

namespace weft {

struct DeviceRates {
  std::vector<MatmulPoint> matmuls;
  double stream_bytes_per_s = 0;     // y += x on arrays that no cache holds
  double operation_bytes_per_s = 0;  // norms, activations and sums of a block, read and written
  double attention_flops_per_s = 0;  // causal half only, forward and backward
  double op_overhead_s = 0;          // of an operation that has nothing to do
};

// threads: the device's (DeviceOptions). precisions: of the products. Takes about `seconds`.
// ResourceExhausted if the device lacks memory, else the device's failure.
absl::StatusOr<DeviceRates> MeasureRates(Device& device, int threads,
                                         absl::Span<const Precision> precisions, double seconds);

// The products that are worth timing on a device of about `flops_per_s` within `seconds`, smallest
// first: those of a grid of shapes whose three runs fit. Pure.
std::vector<MatmulPoint> ShapesWithin(double flops_per_s, double seconds);

}  // namespace weft
