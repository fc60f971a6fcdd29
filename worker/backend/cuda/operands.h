// These functions check what the operations of CudaDevice ask of their operands: shapes and types
// that fit together. All but IsRows and SameRows ask for rows that follow each other.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <initializer_list>

#include "worker/backend/cuda/gemm.h"
#include "worker/backend/device.h"

namespace weft {

inline bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}
// A matrix that may be columns of a wider one.
inline bool IsRows(View x, int64_t rows, int64_t cols) {
  return IsFloat(x.dtype) && x.rows == rows && x.cols == cols && x.stride() >= cols &&
         x.data != nullptr;
}
inline bool IsMatrix(View x, int64_t rows, int64_t cols) {
  return IsRows(x, rows, cols) && x.is_contiguous();
}
// An array of any type.
inline bool IsArray(View x, int64_t count, DType dtype) {
  return x.dtype == dtype && x.elements() == count && x.is_contiguous() && x.data != nullptr;
}
// Checks arrays of single precision: statistics, gradients of weights, states of the optimizer.
inline bool IsF32(View x, int64_t count) {
  return IsArray(x, count, DType::kF32);
}
// One of the totals that operations add to.
inline bool IsTotal(View x) {
  return IsArray(x, 1, DType::kF64);
}
// Tells whether x may be what an update multiplies gradients by.
inline bool IsScale(View x) {
  return x.data == nullptr || IsTotal(x);
}
inline bool IsQuantised(const QuantisedView& x, int64_t count) {
  return IsArray(x.codes, count, DType::kU8) &&
         IsF32(x.scales, (count + kQuantisationBlock - 1) / kQuantisationBlock);
}
// Elements of a box of which `box` has what is by row and by column, from `begin`.
inline bool IsRunOf(const FactoredView& box, View run, int64_t begin) {
  const int64_t cols = box.cols.elements();
  const int64_t rows = box.rows.data == nullptr ? 1 : box.rows.elements();
  return run.elements() >= 1 && begin >= 0 && begin + run.elements() <= rows * cols &&
         IsF32(run, run.elements()) && IsF32(box.cols, cols) &&
         (box.rows.data == nullptr || IsF32(box.rows, rows));
}
inline bool FitsUpdate(View gradient, View param, int64_t begin, const FactoredView& moments,
                       View norms) {
  return IsRunOf(moments, gradient, begin) && IsF32(param, gradient.elements()) &&
         IsF32(moments.row_mean, 1) && IsF32(norms, 2);
}
// Tells whether x is a vector of the type of `like`.
inline bool IsVector(View x, int64_t count, View like) {
  return IsArray(x, count, like.dtype);
}
inline bool AreIds(View x, int64_t count) {
  return IsArray(x, count, DType::kI32);
}
inline bool SameShape(View x, View y) {
  return IsMatrix(x, y.rows, y.cols) && IsArray(y, y.elements(), x.dtype);
}
// The same of columns of wider matrices.
inline bool SameRows(View x, View y) {
  return IsRows(x, y.rows, y.cols) && x.dtype == y.dtype && IsRows(y, y.rows, y.cols);
}

// c may be wider than what it is a product of, and columns of a wider matrix where it is not added
// to. One product's sizes are ints.
inline bool IsProduct(const GemmCall& call) {
  const bool flip_a = call.transpose_a == Transpose::kYes;
  const bool flip_b = call.transpose_b == Transpose::kYes;
  const View a = call.a, b = call.b, c = call.c;
  const int64_t m = flip_a ? a.cols : a.rows;
  const int64_t k = flip_a ? a.rows : a.cols;
  const int64_t n = flip_b ? b.rows : b.cols;
  return IsMatrix(a, a.rows, a.cols) && (flip_b ? b.cols : b.rows) == k &&
         IsMatrix(b, b.rows, b.cols) && IsRows(c, m, n) && (call.beta == 0 || c.is_contiguous()) &&
         a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == DType::kF32) &&
         std::max({m, n, k}) <= INT_MAX;
}

// Checks a product with what it has of an epilogue. What a layer adds to is of single precision.
inline bool IsLinear(const GemmCall& call) {
  const auto is_like_c = [&](View x) { return SameShape(x, call.c) && x.data != call.c.data; };
  return IsProduct(call) && call.c.dtype == (call.beta == 0 ? call.a.dtype : DType::kF32) &&
         (call.c.is_contiguous() || !call.has_epilogue()) &&
         (!call.has_bias_gradient() || IsF32(call.bias_gradient, call.c.rows)) &&
         (call.bias.data == nullptr || IsVector(call.bias, call.c.cols, call.c)) &&
         (call.residual.data == nullptr || is_like_c(call.residual)) &&
         (call.gelu == GemmGelu::kNone || is_like_c(call.h));
}

// Tells whether `from` may be copied to `to`: both are of one type, or one is of the two wider;
// where one has gaps between its rows, both have the same rows.
inline bool AreCopies(View to, View from) {
  if (SameRows(to, from)) return true;
  const bool converts = IsFloat(to.dtype) && IsFloat(from.dtype) &&
                        (to.dtype == DType::kF32 || from.dtype == DType::kF32);
  return to.elements() == from.elements() && to.is_contiguous() && from.is_contiguous() &&
         (to.dtype == from.dtype || converts);
}

// Tells whether there is an id of a position for each row of `x`, or no positions at all.
inline bool HoldPositions(View positions, View position_ids, View x, DType dtype) {
  return positions.data == nullptr || (IsMatrix(positions, positions.rows, x.cols) &&
                                       positions.dtype == dtype && AreIds(position_ids, x.rows));
}

inline bool HasPieces(const AttentionShape& shape) {
  if (shape.runs < 1 || shape.seq_len % shape.runs != 0) return false;
  if (shape.pieces < 1 || shape.pieces > 2) return false;
  return std::all_of(shape.piece, shape.piece + shape.pieces,
                     [&](int64_t run) { return run >= 0 && run < shape.runs; });
}

// of_outputs: o and its gradient, which are matrices of their own.
inline bool FitsAttention(const AttentionShape& shape, std::initializer_list<View> of_queries,
                          std::initializer_list<View> of_keys,
                          std::initializer_list<View> of_outputs, View first_visible, View lse) {
  if (shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0 || !HasPieces(shape)) return false;
  const DType dtype = of_queries.begin()->dtype;
  const auto all_fit = [&](std::initializer_list<View> tensors, int64_t rows, int64_t heads,
                           int64_t stride) {
    return std::all_of(tensors.begin(), tensors.end(), [&](View x) {
      return x.dtype == dtype && IsRows(x, shape.batch * rows, heads * shape.head_dim) &&
             x.stride() == stride;
    });
  };
  const int64_t queries = shape.batch * shape.query_len();
  return all_fit(of_queries, shape.query_len(), shape.heads, shape.query_stride()) &&
         all_fit(of_keys, shape.seq_len, shape.kv_heads, shape.key_stride()) &&
         all_fit(of_outputs, shape.query_len(), shape.heads, shape.heads * shape.head_dim) &&
         (first_visible.data == nullptr ? shape.documents == 0 : AreIds(first_visible, queries)) &&
         (shape.documents == 0 || shape.documents >= shape.batch) &&
         IsF32(lse, queries * shape.heads) && shape.seq_len <= INT_MAX;
}

inline bool FitsRows(View logits, View row_max, View row_sum, View targets) {
  return IsMatrix(logits, logits.rows, logits.cols) && logits.cols >= 1 &&
         IsF32(row_max, logits.rows) && IsF32(row_sum, logits.rows) && AreIds(targets, logits.rows);
}

}  // namespace weft
