// The emulation itself: it must see what it is there to see.
#include "tests/gpu/emulation/threads.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

using emulation::Order;

// Each thread's successor's value; without the barrier a thread that is early reads what was there.
template <bool kWithBarrier>
__global__ void ShiftKernel(int* values) {
  const int count = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  int* const shared = DynamicShared<int>();
  shared[thread] = thread;
  if (kWithBarrier) __syncthreads();
  values[thread] = shared[(thread + 1) % count];
}

template <bool kWithBarrier>
std::vector<int> Shifted(Order order) {
  emulation::SetOrder(order);
  std::vector<int> values(96);
  EXPECT_EQ(Launch(ShiftKernel<kWithBarrier>, {.threads = 96, .shared_bytes = 96 * 4}, nullptr,
                   values.data()),
            cudaSuccess);
  return values;
}

TEST(EmulatedThreads, SeeWhatOthersWroteBeforeABarrierInAnyOrder) {
  const std::vector<int> values = Shifted<true>(Order::kAscending);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[95], 0);
  EXPECT_EQ(values, Shifted<true>(Order::kDescending));
}

TEST(EmulatedThreads, ShowAMissingBarrierByTheirOrder) {
  EXPECT_NE(Shifted<false>(Order::kAscending), Shifted<false>(Order::kDescending));
}

__global__ void SumKernel(double* total) {
  const double sum = ReduceBlock(SumOf{}, static_cast<double>(threadIdx.x + 1));
  const double again = ReduceBlock(SumOf{}, sum);
  if (threadIdx.x == 77) *total = again;
}

TEST(EmulatedThreads, ReduceOverWarpsAndBlocks) {
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    emulation::SetOrder(order);
    double total = 0;
    EXPECT_EQ(Launch(SumKernel, {.threads = 160}, nullptr, &total), cudaSuccess);
    EXPECT_EQ(total, 160 * 161 / 2 * 160);
  }
}

__global__ void HalfABarrierKernel() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void HalfAWarpKernel(float* out) {
  if (threadIdx.x < 16) *out = __shfl_xor_sync(0xffffffffU, 1.0F, 1);
}

TEST(EmulatedThreadsDeathTest, EndWhereABarrierIsNotReachedByAll) {
  EXPECT_DEATH(Launch(HalfABarrierKernel, {.threads = 64}, nullptr), "emulated kernel");
  float out = 0;
  EXPECT_DEATH(Launch(HalfAWarpKernel, {.threads = 32}, nullptr, &out), "emulated kernel");
}

}  // namespace
}  // namespace weft
