// Block-wise dynamic quantisation to 8 bits (Dettmers et al., arXiv:2110.02861, 2.1 and 2.2): each
// block of kQuantisationBlock elements is divided by its largest magnitude, its scale; each
// quotient is kept as the index of the nearest number of a map. The map's numbers are dense near
// zero: seven decades below 1, each with half as many numbers as the one above it.
//
// Two deviations from the paper. Its signed map reaches +1 and only almost -1; here both ends are
// kept exactly, so that what was quantised, made wide (a checkpoint) and quantised again has the
// same bits. And a second moment that is not zero never becomes zero, as its root divides.
//
// For host code of both backends and of the worker. std only.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "worker/backend/updates.h"

namespace weft {

// 256 numbers in ascending order.
using CodeMap = std::array<float, 256>;

// Means of equal parts of [0.1, 1], in each decade, and 0 and 1; signed: mirrored, with half as
// many parts.
inline CodeMap DynamicCodes(QuantisedSign sign) {
  constexpr int kDecades = 7;
  const bool is_signed = sign == QuantisedSign::kAny;
  CodeMap map = {};
  size_t next = 0;
  map[next++] = 0;
  map[next++] = 1;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = 1 << (kDecades - decade - (is_signed ? 1 : 0));
    for (int part = 0; part < parts; ++part) {
      const double mean = 0.1 + 0.9 * (part + 0.5) / parts;
      const auto value = static_cast<float>(std::pow(10.0, -decade) * mean);
      map[next++] = value;
      if (is_signed) map[next++] = decade == 0 && part == parts - 1 ? -1.0F : -value;
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

// The index of the number nearest to `share`, the lower of two. REQUIRES: not a NaN.
inline int NearestCode(const CodeMap& map, float share) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) {
    const auto at = static_cast<size_t>(code + step);
    if (share > 0.5F * (map[at - 1] + map[at])) code += step;
  }
  return code;
}

// One block: codes of values[0, count), whose largest magnitude is returned.
inline float QuantiseBlock(const CodeMap& map, QuantisedSign sign, const float* values,
                           int64_t count, uint8_t* codes) {
  float scale = 0;
  for (int64_t i = 0; i < count; ++i) scale = std::max(scale, std::abs(values[i]));
  for (int64_t i = 0; i < count; ++i) {
    int code = NearestCode(map, scale > 0 ? values[i] / scale : 0.0F);
    if (sign == QuantisedSign::kNone && values[i] > 0) code = std::max(code, 1);
    codes[i] = static_cast<uint8_t>(code);
  }
  return scale;
}

// Whole arrays, block by block.
inline void Quantise(QuantisedSign sign, const float* values, int64_t count, uint8_t* codes,
                     float* scales) {
  const CodeMap map = DynamicCodes(sign);
  for (int64_t begin = 0; begin < count; begin += kQuantisationBlock) {
    const int64_t size = std::min(kQuantisationBlock, count - begin);
    scales[begin / kQuantisationBlock] =
        QuantiseBlock(map, sign, values + begin, size, codes + begin);
  }
}

inline void Dequantise(QuantisedSign sign, const uint8_t* codes, const float* scales, int64_t count,
                       float* values) {
  const CodeMap map = DynamicCodes(sign);
  for (int64_t i = 0; i < count; ++i) values[i] = map[codes[i]] * scales[i / kQuantisationBlock];
}

}  // namespace weft
