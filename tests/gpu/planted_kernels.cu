// Kernels with the faults that machine_code_test is there to find.
#include <cstdint>

namespace weft {

// An index that is not known keeps the array in local memory.
__global__ void PlantedSpillKernel(const float* from, const int* order, float* to) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[order[i]] = from[i * 32 + threadIdx.x];
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += values[order[i + 8]];
  to[threadIdx.x] = sum;
}

__global__ void PlantedNarrowKernel(const float* from, float* to) {
  to[threadIdx.x] = 2 * from[threadIdx.x];
}

__global__ void PlantedWideKernel(const float4* from, float4* to) {
  const float4 value = from[threadIdx.x];
  to[threadIdx.x] = {value.w, value.x, value.y, value.z};
}

__global__ void PlantedStrangerKernel(float* to) {
  to[threadIdx.x] = 1;
}

}  // namespace weft
