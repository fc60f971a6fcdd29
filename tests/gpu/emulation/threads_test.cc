// The emulation itself: it must see what it is there to see.
#include "tests/gpu/emulation/threads.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/copy_async.h"
#include "worker/backend/cuda/kernels/launch.h"

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

enum class Missing { kNone, kBeforeReading, kBeforeWritingAgain };

// Twice the value of the same lane of the next warp. Lanes of a warp wait for each other.
template <Missing kMissing>
__global__ void HandOnKernel(int* values) {
  const int count = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  int* const shared = DynamicShared<int>();
  for (int round = 1; round <= 2; ++round) {
    shared[thread] = round * thread;
    __syncwarp();
    if (kMissing != Missing::kBeforeReading) __syncthreads();
    values[thread] += shared[(thread + 32) % count];
    __syncwarp();
    if (kMissing != Missing::kBeforeWritingAgain) __syncthreads();
  }
}

template <Missing kMissing>
std::vector<int> HandedOn(Order order) {
  emulation::SetOrder(order);
  std::vector<int> values(96);
  EXPECT_EQ(Launch(HandOnKernel<kMissing>, {.threads = 96, .shared_bytes = 96 * 4}, nullptr,
                   values.data()),
            cudaSuccess);
  return values;
}

TEST(EmulatedThreads, LetAWarpRunAheadToTheNextBarrierOfTheBlock) {
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    const std::vector<int> values = HandedOn<Missing::kNone>(order);
    for (int i = 0; i < 96; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 3 * ((i + 32) % 96));
    EXPECT_NE(HandedOn<Missing::kBeforeReading>(order), values);
    EXPECT_NE(HandedOn<Missing::kBeforeWritingAgain>(order), values);
  }
}

// Each thread's four values, by way of shared memory; the second half of the threads has none.
template <bool kWaits>
__global__ void CopyKernel(const float* from, float* to) {
  const int thread = static_cast<int>(threadIdx.x);
  float* const own = DynamicShared<float>() + 4 * thread;
  CopyAsync16(own, from + 4 * thread, thread < 32);
  if (kWaits) WaitForCopies();
  for (int i = 0; i < 4; ++i) to[4 * thread + i] = own[i];
  WaitForCopies();
}

template <bool kWaits>
std::vector<float> Copied(Order order) {
  emulation::SetOrder(order);
  struct alignas(16) Four {
    float at[4] = {1, 2, 3, 4};
  };
  const std::vector<Four> from(64);
  std::vector<float> to(256);
  EXPECT_EQ(Launch(CopyKernel<kWaits>, {.threads = 64, .shared_bytes = 64 * 16}, nullptr,
                   from.data()->at, to.data()),
            cudaSuccess);
  return to;
}

TEST(EmulatedCopies, AreThereForWhoWaitsAndZerosWhereThereIsNothing) {
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    const std::vector<float> to = Copied<true>(order);
    EXPECT_EQ(std::vector<float>(to.begin() + 124, to.begin() + 132),
              (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0}));
  }
}

TEST(EmulatedCopies, ShowAMissingWait) {
  EXPECT_TRUE(std::isnan(Copied<false>(Order::kDescending)[0]));
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
