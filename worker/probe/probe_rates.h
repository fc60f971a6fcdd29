// Rates of one device, measured through device.h. Timings are the best of a few repetitions: other
// processes only ever make an operation slower.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/spec/cluster.h"
#include "worker/backend/device.h"

namespace weft {

// RateSizes sets the sizes of what is measured, so that a device is as busy and its caches are as
// little help as in a job.
struct RateSizes {
  int64_t stream_elements = 0;  // f32, of each of two arrays that no cache holds
  int64_t operation_rows = 0;   // f32, by 1024: of each of four activations of a block
  AttentionShape attention;
  Precision attention_precision = Precision::kFp32;  // fp32 or bf16
};
// A host's: arrays of 64 MiB, activations of 8, attention in fp32.
RateSizes HostRateSizes();
// A GPU's: 256 and 128 MiB, more than its second-level cache (50 MB on an H100); attention in
// bf16 over whole sequences, with heads that cuDNN takes, which is what a job there computes.
RateSizes GpuRateSizes();

struct DeviceRates {
  std::vector<MatmulPoint> matmuls;
  double stream_bytes_per_s = 0;     // y += x on arrays that no cache holds
  double operation_bytes_per_s = 0;  // norms, activations and sums of a block, read and written
  double attention_flops_per_s = 0;  // causal half only, forward and backward
  Precision attention_precision = Precision::kFp32;
  double op_overhead_s = 0;  // of an operation that has nothing to do
};

// threads: the device's (DeviceOptions). precisions: of the products. Takes about `seconds`.
// Operands are random: zeros take less power, and PyTorch's 8192^3 product in bf16 on an H200 was
// 13 % faster on them (894 TFLOP/s, 788 on random numbers).
// ResourceExhausted if the device lacks memory, else the device's failure.
absl::StatusOr<DeviceRates> MeasureRates(Device& device, int threads, const RateSizes& sizes,
                                         absl::Span<const Precision> precisions, double seconds);

// The products that are worth timing on a device of about `flops_per_s` within `seconds`, smallest
// first: those of a grid of shapes whose three runs fit. Pure.
std::vector<MatmulPoint> ShapesWithin(double flops_per_s, double seconds);

}  // namespace weft
