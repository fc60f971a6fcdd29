// The number formats that a step computes in. What each engine keeps beside them (master weights,
// gradients' width) is its profile's. Pure values.
#pragma once
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/words.h"

namespace weft {

// Matrix products are computed in this format. kFp8: weights and inputs of linear layers in 8 bits,
// the rest in bf16.
enum class Precision { kFp32, kBf16, kFp16, kFp8 };

// Bytes of an activation outside linear layers: 4 for fp32, else 2.
int ActivationBytes(Precision precision);

// The frozen base of a fine-tuning run is held in this format. kNf4: 4 bits and a scale per 64
// values; kNf4Double: those scales quantised once more (Dettmers et al., arXiv:2305.14314, 3).
enum class FrozenFormat { kBf16, kInt8, kNf4, kNf4Double };

// Gradients travel in this format when they are summed over the data group; they are accumulated,
// and updates read them, in fp32.
enum class ReduceDtype { kFp32, kBf16 };

Words WordsOf(Precision);
Words WordsOf(ReduceDtype);
Words WordsOf(FrozenFormat);
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

}  // namespace weft
