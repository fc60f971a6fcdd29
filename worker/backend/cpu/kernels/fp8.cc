#include "worker/backend/fp8.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "worker/backend/cpu/kernels/element.h"
#include "worker/backend/cpu/kernels/fp8.h"
#include "worker/backend/cpu/kernels/matmul.h"
#include "worker/backend/cpu/kernels/operands.h"

namespace weft {
namespace {

// Returns the largest finite magnitude of bf16, as bits: magnitudes are in the order of their bits.
uint16_t LargestFinite(const Bf16* x, int64_t count) {
  uint16_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<uint16_t>(x[i].bits & 0x7fff);
    largest = std::max(largest, magnitude < 0x7f80 ? magnitude : uint16_t{0});
  }
  return largest;
}

float LargestMagnitude(const Threads& threads, View x) {
  std::atomic<uint16_t> largest = 0;
  threads.ForEach(x.elements(), kVectorElements, 1, [&](int64_t first, int64_t count) {
    const uint16_t own = LargestFinite(Data<Bf16>(x) + first, count);
    uint16_t seen = largest.load();
    while (own > seen && !largest.compare_exchange_weak(seen, own)) {
    }
  });
  return Widen(Bf16{largest.load()});
}

void QuantiseRun(const Fp8Format& format, float inverse, const Bf16* x, int64_t count,
                 uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = ToFp8(format, Widen(x[i]) * inverse);
}

// Columns [first, first + count) of x become rows of `to`.
void QuantiseColumns(const Fp8Format& format, float inverse, View x, int64_t first, int64_t count,
                     uint8_t* to) {
  constexpr int64_t kTile = 64;
  uint8_t tile[kTile * kTile];
  for (int64_t col = first; col < first + count; col += kTile) {
    const int64_t cols = std::min(kTile, first + count - col);
    for (int64_t row = 0; row < x.rows; row += kTile) {
      const int64_t rows = std::min(kTile, x.rows - row);
      for (int64_t r = 0; r < rows; ++r) {
        QuantiseRun(format, inverse, Row<Bf16>(x, row + r) + col, cols, tile + r * kTile);
      }
      for (int64_t c = 0; c < cols; ++c) {
        uint8_t* const out = to + (col + c) * x.rows + row;
        for (int64_t r = 0; r < rows; ++r) out[r] = tile[r * kTile + c];
      }
    }
  }
}

// Elements that are multiplied at a time: 4 MiB of blocks, whatever the operands.
constexpr int64_t kBlockRows = 512;
constexpr int64_t kBlockDepth = 512;

// Rows [row, row + rows) and columns [at, at + depth) of x, rows next to each other.
void WidenBlock(View codes, int64_t row, int64_t rows, int64_t at, int64_t depth, float* to) {
  static const std::array<std::array<float, 256>, 2> kNumbers = {Fp8Numbers(kE4m3Format),
                                                                 Fp8Numbers(kE5m2Format)};
  const std::array<float, 256>& numbers = kNumbers[codes.dtype == DType::kE4m3 ? 0 : 1];
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* const from = Row<uint8_t>(codes, row + r) + at;
    for (int64_t i = 0; i < depth; ++i) to[r * depth + i] = numbers[from[i]];
  }
}

// Elements of T: bf16 or float.
template <typename T>
void PutScaled(const float* sums, int64_t count, float scale, bool adds, T* c) {
  for (int64_t i = 0; i < count; ++i) {
    const float before = adds ? Widen(c[i]) : 0.0F;
    Narrow(before + sums[i] * scale, &c[i]);
  }
}

}  // namespace

void QuantiseToFp8(const Threads& threads, View x, View codes, View transposed, View scale) {
  const Fp8Format& format = Fp8FormatOf(codes.data != nullptr ? codes.dtype : transposed.dtype);
  const float factor = Fp8Scale(format, LargestMagnitude(threads, x));
  const float inverse = 1 / factor;  // exact
  *Floats(scale) = factor;
  if (codes.data != nullptr) {
    threads.ForEach(x.elements(), kVectorElements, 1, [&](int64_t first, int64_t count) {
      QuantiseRun(format, inverse, Data<Bf16>(x) + first, count, Data<uint8_t>(codes) + first);
    });
  }
  if (transposed.data != nullptr) {
    threads.ForEach(x.cols, kVectorElements, x.rows, [&](int64_t first, int64_t count) {
      QuantiseColumns(format, inverse, x, first, count, Data<uint8_t>(transposed));
    });
  }
}

void Fp8Products::Multiply(const Fp8View& a, const Fp8View& b, float beta, View c) {
  a_.resize(static_cast<size_t>(kBlockRows * kBlockDepth));
  b_.resize(static_cast<size_t>(kBlockRows * kBlockDepth));
  c_.resize(static_cast<size_t>(kBlockRows * kBlockRows));
  const float scale = *Floats(a.scale) * *Floats(b.scale);
  const int64_t k = a.codes.cols;
  for (int64_t row = 0; row < c.rows; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, c.rows - row);
    for (int64_t col = 0; col < c.cols; col += kBlockRows) {
      const int64_t cols = std::min(kBlockRows, c.cols - col);
      for (int64_t at = 0; at < k; at += kBlockDepth) {
        const int64_t depth = std::min(kBlockDepth, k - at);
        WidenBlock(a.codes, row, rows, at, depth, a_.data());
        WidenBlock(b.codes, col, cols, at, depth, b_.data());
        MatMulStrided({rows, cols, depth, depth, depth, cols}, 1, a_.data(), Transpose::kNo,
                      b_.data(), Transpose::kYes, at == 0 ? 0.0F : 1.0F, c_.data());
      }
      WithElement(c.dtype, [&](auto element) {
        using T = decltype(element);
        for (int64_t r = 0; r < rows; ++r) {
          PutScaled(c_.data() + r * cols, cols, scale, beta != 0, Row<T>(c, row + r) + col);
        }
      });
    }
  }
}

}  // namespace weft
