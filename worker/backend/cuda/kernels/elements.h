// The element types of tensors in kernels: how they become float and back, and several of them in
// one access of 16 bytes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

__device__ __forceinline__ float ToFloat(float x) {
  return x;
}
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float ToFloat(__half x) {
  return __half2float(x);
}

// Rounds to the nearest even.
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}

// kCount elements that are loaded and stored at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// Elements in 16 bytes, the widest access.
template <typename T>
inline constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

// Whether packs of 16 bytes may start there.
inline bool IsWide(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// Whether each row may be taken in packs of 16 bytes.
template <typename T>
bool HasWideRows(View x) {
  return x.cols % kWidest<T> == 0 && x.stride() % kWidest<T> == 0 && IsWide(x.data);
}

// Calls f with a value of the element type that `dtype` names; cudaErrorInvalidValue for one that
// is not computed in.
template <typename F>
cudaError_t WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBf16:
      return f(__nv_bfloat16{});
    case DType::kF16:
      return f(__half{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace weft
