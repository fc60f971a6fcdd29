#include <algorithm>
#include <type_traits>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/map.h"

namespace weft {
namespace {

struct AddUp {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};

struct ScaleBy {
  float factor;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0] * factor; }
};

// `count` and `cols` are of packs.
template <typename T, int kWidth>
__global__ void AddBiasKernel(const Pack<T, kWidth>* bias, Pack<T, kWidth>* x, int64_t count,
                              int64_t cols) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStride()) {
    const Pack<T, kWidth> biases = bias[i % cols];
    Pack<T, kWidth> values = x[i];
    for (int e = 0; e < kWidth; ++e) {
      values.at[e] = FromFloat<T>(ToFloat(values.at[e]) + ToFloat(biases.at[e]));
    }
    x[i] = values;
  }
}

template <typename From, typename To, int kWidth>
__global__ void ConvertKernel(const Pack<From, kWidth>* from, Pack<To, kWidth>* to, int64_t packs) {
  for (int64_t i = FirstIndex(); i < packs; i += IndexStride()) {
    const Pack<From, kWidth> values = from[i];
    Pack<To, kWidth> converted;
    for (int e = 0; e < kWidth; ++e) converted.at[e] = FromFloat<To>(ToFloat(values.at[e]));
    to[i] = converted;
  }
}

struct RotateShape {
  int64_t seq_len;
  int64_t half;  // of what turns of a head
  int64_t head_dim;
  int64_t heads;   // of a row
  int64_t stride;  // elements from one row to the next
  float direction;
};

template <int kWidth>
__device__ void LoadFloats(const float* from, float (&to)[kWidth]) {
  constexpr int kRun = kWidth < 4 ? kWidth : 4;
  for (int at = 0; at < kWidth; at += kRun) {
    const auto values = *reinterpret_cast<const Pack<float, kRun>*>(from + at);
    for (int e = 0; e < kRun; ++e) to[at + e] = values.at[e];
  }
}

// A thread takes kWidth neighbouring pairs at a time, in two packs: of the pairs' first and second
// elements or, where these lie beside each other, of twice as many neighbours.
template <typename T, int kWidth, bool kInterleaved>
__global__ void RotateKernel(RotateShape shape, const float* table, T* x, int64_t packs) {
  using Wide = Pack<T, kWidth>;
  const int64_t half = shape.half;
  for (int64_t pack = FirstIndex(); pack < packs; pack += IndexStride()) {
    const int64_t i = pack % (half / kWidth) * kWidth;
    const int64_t head = pack / (half / kWidth);  // of all rows
    const int64_t row = head / shape.heads;
    T* const at =
        x + row * shape.stride + head % shape.heads * shape.head_dim + (kInterleaved ? 2 * i : i);
    const float* const angles = table + row % shape.seq_len * 2 * half;
    float cosines[kWidth];
    float sines[kWidth];
    LoadFloats(angles + i, cosines);
    LoadFloats(angles + half + i, sines);
    auto* const first = reinterpret_cast<Wide*>(at);
    auto* const second = reinterpret_cast<Wide*>(at + (kInterleaved ? kWidth : half));
    Wide a = *first;
    Wide b = *second;
    const auto element = [&](int n) -> T& { return n < kWidth ? a.at[n] : b.at[n - kWidth]; };
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float sine = shape.direction * sines[e];
      T& one = element(kInterleaved ? 2 * e : e);
      T& other = element(kInterleaved ? 2 * e + 1 : kWidth + e);
      const float from = ToFloat(one);
      const float to = ToFloat(other);
      one = FromFloat<T>(from * cosines[e] - to * sine);
      other = FromFloat<T>(to * cosines[e] + from * sine);
    }
    *first = a;
    *second = b;
  }
}

// Calls launch(width) with the elements of a pack as an integral constant: kMost if `is_wide`.
template <int kMost, typename F>
cudaError_t WithWidth(bool is_wide, const F& launch) {
  if (is_wide) return launch(std::integral_constant<int, kMost>{});
  return launch(std::integral_constant<int, 1>{});
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

cudaError_t QueueCopy(const Queue& queue, View from, View to) {
  const auto bytes = [&](int64_t elements) {
    return static_cast<size_t>(elements * ElementBytes(to.dtype));
  };
  if (to.is_contiguous() && from.is_contiguous()) {
    return cudaMemcpyAsync(to.data, from.data, bytes(to.elements()), cudaMemcpyDeviceToDevice,
                           queue.stream);
  }
  return cudaMemcpy2DAsync(to.data, bytes(to.stride()), from.data, bytes(from.stride()),
                           bytes(to.cols), static_cast<size_t>(to.rows), cudaMemcpyDeviceToDevice,
                           queue.stream);
}

cudaError_t QueueConvert(const Queue& queue, View from, View to) {
  return WithType(from.dtype, [&](auto narrow) {
    return WithType(to.dtype, [&](auto wide) {
      using From = decltype(narrow);
      using To = decltype(wide);
      constexpr int kMost = std::min(kWidest<From>, kWidest<To>);
      const bool is_wide = to.elements() % kMost == 0 && IsWide(from.data) && IsWide(to.data);
      return WithWidth<kMost>(is_wide, [&](auto width) {
        constexpr int kWidth = decltype(width)::value;
        const int64_t packs = to.elements() / kWidth;
        return Launch(ConvertKernel<From, To, kWidth>, {.blocks = MapBlocks(packs)}, queue.stream,
                      static_cast<const Pack<From, kWidth>*>(from.data),
                      static_cast<Pack<To, kWidth>*>(to.data), packs);
      });
    });
  });
}

cudaError_t QueueAddBias(const Queue& queue, View bias, View x) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool is_wide = x.cols % kWidest<T> == 0 && IsWide(bias.data) && IsWide(x.data);
    return WithWidth<kWidest<T>>(is_wide, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t packs = x.elements() / kWidth;
      return Launch(AddBiasKernel<T, kWidth>, {.blocks = MapBlocks(packs)}, queue.stream,
                    static_cast<const Pack<T, kWidth>*>(bias.data),
                    static_cast<Pack<T, kWidth>*>(x.data), packs, x.cols / kWidth);
    });
  });
}

cudaError_t QueueRotate(const Queue& queue, View table, Turn turn, const RotatedHeads& heads,
                        View x) {
  const int64_t head_dim = heads.head_dim == 0 ? table.cols : heads.head_dim;
  const RotateShape shape = {table.rows, table.cols / 2,
                             head_dim,   x.cols / head_dim,
                             x.stride(), turn == Turn::kForth ? 1.0F : -1.0F};
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool is_wide = shape.half % kWidest<T> == 0 && head_dim % kWidest<T> == 0 &&
                         IsWide(table.data) && HasWideRows<T>(x);
    return WithWidth<kWidest<T>>(is_wide, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t packs = x.rows * shape.heads * shape.half / kWidth;
      const auto kernel =
          heads.are_interleaved ? RotateKernel<T, kWidth, true> : RotateKernel<T, kWidth, false>;
      return Launch(kernel, {.blocks = MapBlocks(packs)}, queue.stream, shape,
                    static_cast<const float*>(table.data), static_cast<T*>(x.data), packs);
    });
  });
}

}  // namespace weft
