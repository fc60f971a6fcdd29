#include <algorithm>

#include "worker/backend/cuda/elementwise.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any device; longer arrays go round.
constexpr int64_t kMostBlocks = 132 * 16;

unsigned Blocks(int64_t count) {
  return static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
}

__device__ int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t Stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

__global__ void AddKernel(const float* x, float* y, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) y[i] += x[i];
}

__global__ void ScaleKernel(float factor, float* x, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) x[i] *= factor;
}

__global__ void AddBiasKernel(const float* bias, float* x, int64_t count, int64_t cols) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) x[i] += bias[i % cols];
}

}  // namespace

cudaError_t QueueAdd(const float* x, float* y, int64_t count, cudaStream_t stream) {
  if (count > 0) AddKernel<<<Blocks(count), kThreads, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

cudaError_t QueueScale(float factor, float* x, int64_t count, cudaStream_t stream) {
  if (count > 0) ScaleKernel<<<Blocks(count), kThreads, 0, stream>>>(factor, x, count);
  return cudaGetLastError();
}

cudaError_t QueueAddBias(const float* bias, float* x, int64_t rows, int64_t cols,
                         cudaStream_t stream) {
  const int64_t count = rows * cols;
  if (count > 0) AddBiasKernel<<<Blocks(count), kThreads, 0, stream>>>(bias, x, count, cols);
  return cudaGetLastError();
}

}  // namespace weft
