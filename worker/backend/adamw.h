// This file checks what Device::Adamw asks of its operands. It is header only, as both backends use
// it and neither depends on the other.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

// Returns the type of the segments' weights; kF32: there are none.
inline DType WeightTypeOf(const AdamwSegment* segments, int64_t count) {
  for (const AdamwSegment* at = segments; at != segments + count; ++at) {
    if (at->weight.data != nullptr) return at->weight.dtype;
  }
  return DType::kF32;
}

// The first segment of a call that does not fit it; null: all do.
inline const AdamwSegment* FirstUnfit(const AdamwParameters& adamw, const AdamwSegment* segments,
                                      int64_t count) {
  const View& scale = adamw.gradient_scale;
  const bool has_scale = scale.data == nullptr || (scale.dtype == DType::kF64 &&
                                                   scale.elements() == 1 && scale.is_contiguous());
  const DType type = WeightTypeOf(segments, count);
  const bool has_type = type == DType::kF32 || type == DType::kBf16 || type == DType::kF16;
  for (const AdamwSegment* at = segments; at != segments + count; ++at) {
    const auto fits = [&](const View& x, DType dtype) {
      return x.data != nullptr && x.dtype == dtype && x.is_contiguous() &&
             x.elements() == at->param.elements();
    };
    if (!has_scale || !has_type || adamw.step < 1 || !fits(at->param, DType::kF32) ||
        !fits(at->gradient, DType::kF32) || !fits(at->exp_avg, DType::kF32) ||
        !fits(at->exp_avg_sq, DType::kF32) ||
        (at->weight.data != nullptr && (type == DType::kF32 || !fits(at->weight, type)))) {
      return at;
    }
  }
  return nullptr;
}

}  // namespace weft
