#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"

namespace weft {
namespace {

struct AddUp {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};

struct ScaleBy {
  float factor;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0] * factor; }
};

template <typename T>
__global__ void AddBiasKernel(const T* bias, T* x, int64_t count, int64_t cols) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStride()) {
    x[i] = FromFloat<T>(ToFloat(x[i]) + ToFloat(bias[i % cols]));
  }
}

template <typename From, typename To>
__global__ void ConvertKernel(const From* from, To* to, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStride()) {
    to[i] = FromFloat<To>(ToFloat(from[i]));
  }
}

struct RotateShape {
  int64_t seq_len;
  int64_t half;  // of a head
  int64_t cols;
  float direction;
};

// One thread per pair.
template <typename T>
__global__ void RotateKernel(RotateShape shape, const float* table, T* x, int64_t pairs) {
  const int64_t half = shape.half;
  for (int64_t pair = FirstIndex(); pair < pairs; pair += IndexStride()) {
    const int64_t i = pair % half;
    const int64_t head = pair / half;  // of all rows
    const int64_t row = head * 2 * half / shape.cols;
    const float* const angles = table + row % shape.seq_len * 2 * half;
    const float cosine = angles[i];
    const float sine = shape.direction * angles[half + i];
    T* const first = x + head * 2 * half + i;
    const float a = ToFloat(first[0]);
    const float b = ToFloat(first[half]);
    first[0] = FromFloat<T>(a * cosine - b * sine);
    first[half] = FromFloat<T>(b * cosine + a * sine);
  }
}

}  // namespace

cudaError_t QueueAdd(const Queue& queue, View x, View y) {
  return WithType(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const sums = static_cast<T*>(y.data);
    return Map<T, 2, 1>(queue.stream, AddUp{}, {{static_cast<const T*>(x.data), sums}, {sums}},
                        y.elements());
  });
}

cudaError_t QueueScale(const Queue& queue, double factor, View x) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const data = static_cast<T*>(x.data);
    return Map<T, 1, 1>(queue.stream, ScaleBy{static_cast<float>(factor)}, {{data}, {data}},
                        x.elements());
  });
}

cudaError_t QueueConvert(const Queue& queue, View from, View to) {
  return WithType(from.dtype, [&](auto narrow) {
    return WithType(to.dtype, [&](auto wide) {
      using From = decltype(narrow);
      using To = decltype(wide);
      return Launch(ConvertKernel<From, To>, {.blocks = MapBlocks(to.elements())}, queue.stream,
                    static_cast<const From*>(from.data), static_cast<To*>(to.data), to.elements());
    });
  });
}

cudaError_t QueueAddBias(const Queue& queue, View bias, View x) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(AddBiasKernel<T>, {.blocks = MapBlocks(x.elements())}, queue.stream,
                  static_cast<const T*>(bias.data), static_cast<T*>(x.data), x.elements(), x.cols);
  });
}

cudaError_t QueueRotate(const Queue& queue, View table, Turn turn, View x) {
  const RotateShape shape = {table.rows, table.cols / 2, x.cols,
                             turn == Turn::kForth ? 1.0F : -1.0F};
  const int64_t pairs = x.elements() / 2;
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(RotateKernel<T>, {.blocks = MapBlocks(pairs)}, queue.stream, shape,
                  static_cast<const float*>(table.data), static_cast<T*>(x.data), pairs);
  });
}

}  // namespace weft
