// Operands of an operation: views as typed pointers, and whether they have the shape and the type
// that it needs.
#pragma once
#include <cstdint>

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
  return Data<T>(x) + row * x.cols;
}
inline const int32_t* Ids(View x) {
  return static_cast<const int32_t*>(x.data);
}

// Loops are cut at multiples of so many elements: whole vectors, whole lines of the cache.
inline constexpr int64_t kVectorElements = 64;

inline bool IsElement(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}
inline bool IsMatrix(View x, int64_t rows, int64_t cols, DType dtype) {
  return x.dtype == dtype && x.rows == rows && x.cols == cols && x.data != nullptr;
}
inline bool IsVector(View x, int64_t count, DType dtype = DType::kF32) {
  return x.dtype == dtype && x.elements() == count && x.data != nullptr;
}
// One of the totals that operations add to.
inline bool IsTotal(View x) {
  return IsVector(x, 1, DType::kF64);
}
// What an update multiplies gradients by; not a number: it does nothing.
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
  return IsElement(x.dtype) && x.data != nullptr;
}
inline bool SameShape(View x, View y) {
  return IsActivation(x) && IsMatrix(y, x.rows, x.cols, x.dtype);
}

}  // namespace weft
