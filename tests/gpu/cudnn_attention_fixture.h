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

// The position where its document starts, of each token of a sequence or of several: of documents
// of these lengths, which begin anew with each sequence.
inline std::vector<int32_t> StartsOf(const std::vector<int64_t>& lengths, int64_t seq_len) {
  std::vector<int32_t> starts;
  for (const int64_t length : lengths) {
    starts.insert(starts.end(), static_cast<size_t>(length),
                  static_cast<int32_t>(std::ssize(starts) % seq_len));
  }
  return starts;
}

class CudnnAttentionOps : public DeviceTest {
 protected:
  struct Error {
    const char* of;
    double found, bound;
  };

  // More than any device's kernels take.
  View Scratch(const AttentionShape& shape) {
    const int64_t elements = shape.batch * shape.heads * shape.seq_len * shape.head_dim;
    return Fresh(
        1, 4 * elements + shape.batch * shape.heads * shape.seq_len + 256 * shape.documents + 8192);
  }

  // A matrix of its own.
  View Whole(View x) {
    const View whole = As(x.dtype, Fresh(x.rows, x.cols));
    device().Copy(whole, x);
    return whole;
  }

  // With strides, q, k and v are columns of one matrix, and so are their gradients; with that of
  // queries alone q is, and its gradient.
  Results Run(const AttentionShape& shape, DType dtype, const std::vector<View>& inputs,
              View first_visible) {
    const int64_t rows = shape.batch * shape.query_len();
    const int64_t keys = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    std::vector<View> in;
    for (const View& input : inputs) in.push_back(As(dtype, input));
    const View lse = Fresh(shape.batch * shape.heads, shape.query_len());
    const View scratch = Scratch(shape);
    View out[] = {As(dtype, Fresh(rows, cols)), As(dtype, Fresh(rows, cols)),
                  As(dtype, Fresh(keys, kv_cols)), As(dtype, Fresh(keys, kv_cols))};
    if (shape.query_row_stride > 0) {
      const View of_inputs = As(dtype, Fresh(rows, shape.query_row_stride));
      const View of_gradients = As(dtype, Fresh(rows, shape.query_row_stride));
      int64_t begin = 0;
      for (size_t i = 0; i < (shape.key_row_stride > 0 ? 3 : 1); ++i) {
        const View columns = of_inputs.ColRange(begin, in[i].cols);
        device().Copy(columns, in[i]);
        out[1 + i] = of_gradients.ColRange(begin, in[i].cols);
        begin += in[i].cols;
        in[i] = columns;
      }
    }
    device().Attention(shape, in[0], in[1], in[2], first_visible, out[0], lse, scratch);
    // The scratch that the forward pass has left is of no use to the gradient.
    device().Copy(scratch, Fresh(scratch.rows, scratch.cols));
    device().AttentionGradient(shape, in[0], in[1], in[2], first_visible, out[0], lse, in[3],
                               out[1], out[2], out[3], scratch);
    Results results;
    for (const View& view : out) results.tensors.push_back(Download(As(DType::kF32, Whole(view))));
    results.lse = Download(lse);
    return results;
  }

  // [B*T, H] as [B*H, T].
  static std::vector<float> ByHead(const std::vector<float>& lse, const AttentionShape& shape) {
    std::vector<float> turned(lse.size());
    for (int64_t row = 0; row < shape.batch * shape.seq_len; ++row) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t sequence = row / shape.seq_len;
        const int64_t to = (sequence * shape.heads + head) * shape.seq_len + row % shape.seq_len;
        turned[static_cast<size_t>(to)] = lse[static_cast<size_t>(row * shape.heads + head)];
      }
    }
    return turned;
  }

  // [pieces, B*H, Tq / pieces], of which each is a kernel's, as [B*H, Tq].
  static std::vector<float> OfWholeRows(const std::vector<float>& lse,
                                        const AttentionShape& shape) {
    std::vector<float> turned(lse.size());
    const int64_t heads = shape.batch * shape.heads;
    for (int64_t from = 0; from < std::ssize(lse); ++from) {
      const int64_t piece = from / shape.run_len() / heads;
      const int64_t to = from / shape.run_len() % heads * shape.query_len() +
                         piece * shape.run_len() + from % shape.run_len();
      turned[static_cast<size_t>(to)] = lse[static_cast<size_t>(from)];
    }
    return turned;
  }

  // q, k, v and the gradient of the output.
  std::vector<View> InputsOf(const AttentionShape& shape) {
    const int64_t rows = shape.batch * shape.query_len();
    const int64_t keys = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    return {Upload(rows, cols, Normal(rows * cols, 1)),
            Upload(keys, kv_cols, Normal(keys * kv_cols, 2)),
            Upload(keys, kv_cols, Normal(keys * kv_cols, 3)),
            Upload(rows, cols, Normal(rows * cols, 4))};
  }

  // Returns the errors of one call of each pass in `dtype` against f32. `starts`: of documents that
  // do not see each other; none: all do.
  std::vector<Error> ErrorsOf(const AttentionShape& shape, DType dtype,
                              const std::vector<int32_t>& starts = {}) {
    std::vector<View> rounded;  // both are given the same numbers
    for (const View& input : InputsOf(shape)) rounded.push_back(As(dtype, input));
    const View first_visible = starts.empty() ? View() : UploadIds(starts);
    AttentionShape apart = shape;
    apart.query_row_stride = apart.key_row_stride = 0;
    const Results wide = Run(apart, DType::kF32, rounded, first_visible);
    Results narrow = Run(shape, dtype, rounded, first_visible);
    if (!starts.empty()) narrow.lse = ByHead(narrow.lse, shape);
    if (shape.pieces > 1) narrow.lse = OfWholeRows(narrow.lse, shape);
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
