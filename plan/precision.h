// The number formats that a step computes in. What each engine keeps beside them (master weights,
// gradients' width) is its profile's. Pure values.
#pragma once
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Of matrix products. kFp8: weights and inputs of linear layers in 8 bits, the rest in bf16.
enum class Precision { kFp32, kBf16, kFp16, kFp8 };

// Bytes of an activation outside linear layers: 4 for fp32, else 2.
int ActivationBytes(Precision precision);

absl::string_view PrecisionName(Precision precision);  // "fp32", "bf16", "fp16", "fp8"
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

}  // namespace weft
