// Operands of an operation as typed pointers.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"
#include "worker/backend/operands.h"

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
inline double ScaleOf(View x) {
  return x.data == nullptr ? 1.0 : *Data<double>(x);
}

}  // namespace weft
