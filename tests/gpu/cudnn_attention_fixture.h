// Attention by cuDNN against the same operation in f32 by weft's own kernels on the same numbers.
// Results are poisoned before the calls, and so is the scratch memory. The bound is norm-wise,
// twice the unit of the type: fused kernels round probabilities to 16 bits before they are
// multiplied.
#pragma once
#include <vector>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"

namespace weft {

struct Results {
  std::vector<std::vector<float>> tensors;  // o, dq, dk, dv
  std::vector<float> lse;
};

class CudnnAttention : public DeviceTest {
 protected:
  struct Error {
    const char* of;
    double found, bound;
  };

  // More than any device's kernels take.
  View Scratch(const AttentionShape& shape) {
    const int64_t elements = shape.batch * shape.heads * shape.seq_len * shape.head_dim;
    return Fresh(1, 4 * elements + shape.batch * shape.heads * shape.seq_len + 4096);
  }

  Results Run(const AttentionShape& shape, DType dtype, const std::vector<View>& inputs) {
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    std::vector<View> in;
    for (const View& input : inputs) in.push_back(As(dtype, input));
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    const View scratch = Scratch(shape);
    const View out[] = {As(dtype, Fresh(rows, cols)), As(dtype, Fresh(rows, cols)),
                        As(dtype, Fresh(rows, kv_cols)), As(dtype, Fresh(rows, kv_cols))};
    device().Attention(shape, in[0], in[1], in[2], {}, out[0], lse, scratch);
    device().AttentionGradient(shape, in[0], in[1], in[2], {}, out[0], lse, in[3], out[1], out[2],
                               out[3], scratch);
    Results results;
    for (const View& view : out) results.tensors.push_back(Download(As(DType::kF32, view)));
    results.lse = Download(lse);
    return results;
  }

  // Of one call of each pass in `dtype` against f32.
  std::vector<Error> ErrorsOf(const AttentionShape& shape, DType dtype) {
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    const View inputs[] = {Upload(rows, cols, Normal(rows * cols, 1)),
                           Upload(rows, kv_cols, Normal(rows * kv_cols, 2)),
                           Upload(rows, kv_cols, Normal(rows * kv_cols, 3)),
                           Upload(rows, cols, Normal(rows * cols, 4))};
    std::vector<View> rounded;  // both are given the same numbers
    for (const View& input : inputs) rounded.push_back(As(dtype, input));
    const Results wide = Run(shape, DType::kF32, rounded);
    const Results narrow = Run(shape, dtype, rounded);
    const double bound = 2 * (dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11);
    const char* const names[] = {"o", "dq", "dk", "dv"};
    std::vector<Error> errors;
    for (size_t i = 0; i < 4; ++i) {
      errors.push_back(
          {names[i], RelativeError(narrow.tensors[i], ToDoubles(wide.tensors[i])), bound});
    }
    errors.push_back({"lse", RelativeError(narrow.lse, ToDoubles(wide.lse)), 1e-5});
    return errors;
  }
};

}  // namespace weft
