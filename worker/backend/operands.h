// These functions say whether the operands of Device's operations fit together: shapes and types.
// Both backends ask them before they touch anything, so that what one refuses the other one does.
// Header only, as neither depends on the other. All but IsRows and SameRows ask for rows that
// follow each other, unless they say so.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <initializer_list>

#include "worker/backend/device.h"

namespace weft {

inline bool IsElement(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}
// A matrix that may be columns of a wider one.
inline bool IsRows(View x, int64_t rows, int64_t cols, DType dtype) {
  return x.dtype == dtype && x.rows == rows && x.cols == cols && x.stride() >= cols &&
         x.data != nullptr;
}
inline bool IsMatrix(View x, int64_t rows, int64_t cols, DType dtype) {
  return IsRows(x, rows, cols, dtype) && x.is_contiguous();
}
inline bool IsVector(View x, int64_t count, DType dtype = DType::kF32) {
  return x.dtype == dtype && x.elements() == count && x.is_contiguous() && x.data != nullptr;
}
// One of the totals that operations add to.
inline bool IsTotal(View x) {
  return IsVector(x, 1, DType::kF64);
}
// Tells whether x may be what an update multiplies gradients by; if that is not a number, the
// update does nothing.
inline bool IsScale(View x) {
  return x.data == nullptr || IsTotal(x);
}
inline bool AreIds(View x, int64_t count) {
  return IsVector(x, count, DType::kI32);
}
// Activations: they set the element type of a call, which the others are compared with.
inline bool IsActivation(View x) {
  return IsElement(x.dtype) && IsMatrix(x, x.rows, x.cols, x.dtype);
}
// Tells whether all of `others` have the shape and the type of the activations x.
inline bool SameShape(View x, std::initializer_list<View> others) {
  return IsActivation(x) && std::all_of(others.begin(), others.end(), [&](View y) {
           return IsMatrix(y, x.rows, x.cols, x.dtype);
         });
}
// The same of columns of wider matrices.
inline bool SameRows(View x, std::initializer_list<View> others) {
  return IsElement(x.dtype) && IsRows(x, x.rows, x.cols, x.dtype) &&
         std::all_of(others.begin(), others.end(),
                     [&](View y) { return IsRows(y, x.rows, x.cols, x.dtype); });
}

// A product's sizes: [m, k] x [k, n] after the transposes.
struct ProductSizes {
  int64_t m = 0, n = 0, k = 0;
};
inline ProductSizes SizesOf(View a, Transpose transpose_a, View b, Transpose transpose_b) {
  const bool flip_a = transpose_a == Transpose::kYes;
  return {flip_a ? a.cols : a.rows, transpose_b == Transpose::kYes ? b.rows : b.cols,
          flip_a ? a.rows : a.cols};
}
// c may be wider than what it is a product of, and columns of a wider matrix where it is not added
// to, as a may be in any case. One product's sizes are ints.
inline bool FitsMatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
                       View c) {
  const auto [m, n, k] = SizesOf(a, transpose_a, b, transpose_b);
  return SameRows(a, {}) && (transpose_b == Transpose::kYes ? b.cols : b.rows) == k &&
         IsMatrix(b, b.rows, b.cols, a.dtype) &&
         IsRows(c, m, n, c.dtype == DType::kF32 ? DType::kF32 : a.dtype) &&
         (beta == 0 || c.is_contiguous()) && std::max({m, n, k}) <= INT_MAX;
}

// Tells whether `from` may be copied to `to`: both are of one type, or one is of the two wider;
// where one has gaps between its rows, both have the same rows.
inline bool FitsCopy(View to, View from) {
  if (SameRows(to, {from})) return true;
  const bool converts = IsElement(to.dtype) && IsElement(from.dtype) &&
                        (to.dtype == DType::kF32 || from.dtype == DType::kF32);
  return to.elements() == from.elements() && to.is_contiguous() && from.is_contiguous() &&
         (to.dtype == from.dtype || converts);
}

inline bool FitsAdd(View x, View y) {
  return IsActivation(x) && IsVector(y, x.elements(), x.dtype);
}
inline bool FitsAddBias(View bias, View x) {
  return IsActivation(x) && IsVector(bias, x.cols, x.dtype);
}
inline bool FitsBiasGradient(View dy, View dbias) {
  return IsActivation(dy) && IsVector(dbias, dy.cols);
}

inline bool FitsLayerNorm(View x, View weight, View bias, View y, View mean, View rstd) {
  return SameShape(x, {y}) && IsVector(weight, x.cols, x.dtype) &&
         (bias.data == nullptr || IsVector(bias, x.cols, x.dtype)) && IsVector(mean, x.rows) &&
         IsVector(rstd, x.rows);
}
inline bool FitsLayerNormGradient(View dy, View x, View weight, View mean, View rstd, View dx,
                                  View dweight, View dbias) {
  return SameShape(x, {dy, dx}) && IsVector(weight, x.cols, x.dtype) && IsVector(mean, x.rows) &&
         IsVector(rstd, x.rows) && IsVector(dweight, x.cols) &&
         (dbias.data == nullptr || IsVector(dbias, x.cols));
}
inline bool FitsRmsNorm(View x, View weight, View y, View rstd) {
  return SameShape(x, {y}) && IsVector(weight, x.cols, x.dtype) && IsVector(rstd, x.rows);
}
inline bool FitsRmsNormGradient(View dy, View x, View weight, View rstd, View dx, View dweight) {
  return SameShape(x, {dy, dx}) && IsVector(weight, x.cols, x.dtype) && IsVector(rstd, x.rows) &&
         IsVector(dweight, x.cols);
}
// Tells it of what PartNorms are given beside x.
inline bool FitsRmsNormPart(View x, View weight, View rstd, View means) {
  return IsActivation(x) && IsVector(weight, x.cols, x.dtype) && IsVector(rstd, x.rows) &&
         IsVector(means, x.rows);
}
inline bool FitsRotate(View table, const RotatedHeads& heads, View x) {
  const int64_t head_dim = heads.head_dim == 0 ? table.cols : heads.head_dim;
  return SameRows(x, {}) && IsMatrix(table, table.rows, table.cols, DType::kF32) &&
         table.rows >= 1 && x.rows % table.rows == 0 && table.cols >= 2 && table.cols % 2 == 0 &&
         table.cols <= head_dim && x.cols % head_dim == 0;
}
inline bool FitsGluGradient(View dy, View gate, View up, View dgate, View dup) {
  return SameRows(gate, {dy, up, dgate, dup}) && dgate.data != dup.data;
}

// Tells whether there is an id of a position for each row of `x`, or no positions at all.
inline bool HoldPositions(View positions, View position_ids, View x, DType dtype) {
  return positions.data == nullptr ||
         (IsMatrix(positions, positions.rows, x.cols, dtype) && AreIds(position_ids, x.rows));
}

inline bool FitsEmbed(View ids, View table, View positions, View position_ids, View out) {
  return AreIds(ids, out.rows) && IsActivation(out) &&
         IsMatrix(table, table.rows, out.cols, out.dtype) &&
         HoldPositions(positions, position_ids, out, out.dtype);
}
inline bool FitsEmbedGradient(View ids, View dout, View position_ids, View dtable,
                              View dpositions) {
  return AreIds(ids, dout.rows) && IsActivation(dout) &&
         IsMatrix(dtable, dtable.rows, dout.cols, DType::kF32) &&
         HoldPositions(dpositions, position_ids, dout, DType::kF32);
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
      return IsRows(x, shape.batch * rows, heads * shape.head_dim, dtype) && x.stride() == stride;
    });
  };
  const int64_t queries = shape.batch * shape.query_len();
  return IsElement(dtype) &&
         all_fit(of_queries, shape.query_len(), shape.heads, shape.query_stride()) &&
         all_fit(of_keys, shape.seq_len, shape.kv_heads, shape.key_stride()) &&
         all_fit(of_outputs, shape.query_len(), shape.heads, shape.heads * shape.head_dim) &&
         (first_visible.data == nullptr ? shape.documents == 0 : AreIds(first_visible, queries)) &&
         (shape.documents == 0 || shape.documents >= shape.batch) &&
         IsVector(lse, queries * shape.heads) && shape.seq_len <= INT_MAX;
}

// Logits may be columns of a wider matrix.
inline bool FitsRowMax(View logits, View row_max) {
  return SameRows(logits, {}) && IsVector(row_max, logits.rows);
}
inline bool FitsSoftmaxGradient(View row_max, View row_sum, View targets, View logits) {
  return FitsRowMax(logits, row_max) && logits.cols >= 1 && IsVector(row_sum, logits.rows) &&
         AreIds(targets, logits.rows);
}
// RowSumExp and CrossEntropy.
inline bool FitsRowSums(View logits, View row_max, View targets, View row_sum, View target_logit) {
  return FitsSoftmaxGradient(row_max, row_sum, targets, logits) &&
         IsVector(target_logit, logits.rows);
}
inline bool FitsAddLossSum(View row_max, View row_sum, View target_logit, View total) {
  const int64_t rows = row_max.elements();
  return IsVector(row_max, rows) && IsVector(row_sum, rows) && IsVector(target_logit, rows) &&
         IsTotal(total);
}
// Returns the first of AddSumOfSquares' views that does not fit; null: all do.
inline const View* FirstUnfit(const View* xs, int64_t count, View total) {
  const View* const unfit = std::find_if(
      xs, xs + count, [&](View x) { return !IsVector(x, x.elements()) || !IsTotal(total); });
  return unfit == xs + count ? nullptr : unfit;
}
inline bool FitsGradientScale(View loss, View squares, View scale) {
  return IsTotal(loss) && IsTotal(squares) && IsTotal(scale);
}

}  // namespace weft
