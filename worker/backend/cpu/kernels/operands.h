// Operands of an operation as typed pointers, and their elements in pieces on threads.
#pragma once
#include <cstdint>
#include <type_traits>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/cpu/kernels/kernels.h"
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
inline RowShape ShapeOf(View x) {
  return {x.cols, x.stride()};
}
inline const int32_t* Ids(View x) {
  return static_cast<const int32_t*>(x.data);
}

// Loops are cut at multiples of so many elements: whole vectors, whole lines of the cache.
inline constexpr int64_t kVectorElements = 64;
// Calls work(first, count) for pieces of the elements of x, whose rows follow each other.
template <typename Work>
void ForElements(const Threads& threads, View x, const Work& work) {
  threads.ForEach(x.elements(), kVectorElements, 1, work);
}
// Copies between f32 and another type, of elements that follow each other. REQUIRES: FitsCopy.
inline void Convert(const Threads& threads, View from, View to) {
  const View narrow = to.dtype == DType::kF32 ? from : to;
  WithElement(narrow.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>) {
      ForElements(threads, to, [&](int64_t first, int64_t count) {
        if (to.dtype == DType::kF32) {
          ConvertInto(Data<T>(from) + first, Floats(to) + first, count);
        } else {
          ConvertInto(Floats(from) + first, Data<T>(to) + first, count);
        }
      });
    }
  });
}
inline double ScaleOf(View x) {
  return x.data == nullptr ? 1.0 : *Data<double>(x);
}

}  // namespace weft
