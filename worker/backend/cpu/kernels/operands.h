// Operands of an operation: views as typed pointers, and whether they have the shape and the type
// that it needs. All but IsRows and SameRows ask for rows that follow each other.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <initializer_list>

#include "worker/backend/device.h"

namespace weft {

template <typename T>
T* Data(View x) {
  return static_cast<T*>(x.data);
}
inline float* Floats(View x) {
  return Data<float>(x);
}
inline char* Byte(View x, int64_t element) {
  return Data<char>(x) + element * ElementBytes(x.dtype);
}
template <typename T>
T* Row(View x, int64_t row) {
  return Data<T>(x) + row * x.stride();
}
inline const int32_t* Ids(View x) {
  return static_cast<const int32_t*>(x.data);
}

// Loops are cut at multiples of so many elements: whole vectors, whole lines of the cache.
inline constexpr int64_t kVectorElements = 64;

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
inline double ScaleOf(View x) {
  return x.data == nullptr ? 1.0 : *Data<double>(x);
}
inline bool IsQuantised(const QuantisedView& x, int64_t count) {
  return IsVector(x.codes, count, DType::kU8) &&
         IsVector(x.scales, (count + kQuantisationBlock - 1) / kQuantisationBlock);
}
inline bool AreIds(View x, int64_t count) {
  return IsVector(x, count, DType::kI32);
}
// Activations: they set the element type of a call, which the others are compared with.
inline bool IsActivation(View x) {
  return IsElement(x.dtype) && IsMatrix(x, x.rows, x.cols, x.dtype);
}
inline bool SameShape(View x, View y) {
  return IsActivation(x) && IsMatrix(y, x.rows, x.cols, x.dtype);
}
// The same of columns of wider matrices.
inline bool SameRows(View x, View y) {
  return IsElement(x.dtype) && IsRows(x, x.rows, x.cols, x.dtype) &&
         IsRows(y, x.rows, x.cols, x.dtype);
}

// Tells whether `from` may be copied to `to`: both are of one type, or one is of the two wider;
// where one has gaps between its rows, both have the same rows.
inline bool AreCopies(View to, View from) {
  if (to.dtype == from.dtype && SameRows(to, from)) return true;
  const bool converts = IsElement(to.dtype) && IsElement(from.dtype) &&
                        (to.dtype == DType::kF32 || from.dtype == DType::kF32);
  return to.elements() == from.elements() && to.is_contiguous() && from.is_contiguous() &&
         (to.dtype == from.dtype || converts);
}

// Tells whether there is an id of a position for each row of `x`, or no positions at all.
inline bool HoldPositions(View positions, View position_ids, View x, DType dtype) {
  return positions.data == nullptr ||
         (IsMatrix(positions, positions.rows, x.cols, dtype) && AreIds(position_ids, x.rows));
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

inline bool FitsRows(View logits, View row_max, View row_sum, View targets) {
  return IsActivation(logits) && logits.cols >= 1 && IsVector(row_max, logits.rows) &&
         IsVector(row_sum, logits.rows) && AreIds(targets, logits.rows);
}

}  // namespace weft
