// Whether the backend orders its streams by waits alone. Each scenario has the same result in every
// order that CUDA allows, and each wait in it is left out in turn: in some order that must show, or
// the wait is listed as one that another makes up for.
#include "tests/gpu/emulation/streams.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/all_ranks.h"
#include "worker/backend/cuda/comm/nccl_comm.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

using emulation::StreamOrder;
using ::testing::ElementsAre;

using Scenario = std::function<std::vector<float>()>;

struct OrderOfTrial {
  StreamOrder order = StreamOrder::kAtOnce;
  uint64_t seed = 0;
};
constexpr OrderOfTrial kOrders[] = {{StreamOrder::kLazy},      {StreamOrder::kOthersFirst},
                                    {StreamOrder::kRandom, 1}, {StreamOrder::kRandom, 2},
                                    {StreamOrder::kRandom, 3}, {StreamOrder::kRandom, 4}};

struct Trial {
  std::vector<float> result;
  int64_t waits = 0;
};

// On a thread of its own, which has a device of its own.
Trial TryIn(const Scenario& scenario, const OrderOfTrial& order, int64_t dropped_wait = -1) {
  emulation::SetStreamOrder(order.order, order.seed);
  Trial trial;
  std::thread([&] {
    emulation::num_waits = 0;
    emulation::dropped_wait = dropped_wait;
    trial.result = scenario();
    trial.waits = emulation::num_waits;
  }).join();
  emulation::SetStreamOrder(StreamOrder::kAtOnce);
  return trial;
}

// The numbers of the waits without which some order has another result.
std::vector<int64_t> NeededWaits(const Scenario& scenario) {
  const std::vector<float> expected = TryIn(scenario, {}).result;
  int64_t waits = 0;
  for (const OrderOfTrial& order : kOrders) {
    const Trial trial = TryIn(scenario, order);
    EXPECT_EQ(trial.result, expected) << "order " << static_cast<int>(order.order);
    waits = trial.waits;
  }
  std::vector<int64_t> needed;
  for (int64_t wait = 0; wait < waits; ++wait) {
    const bool is_missed = std::any_of(
        std::begin(kOrders), std::end(kOrders),
        [&](const OrderOfTrial& order) { return TryIn(scenario, order, wait).result != expected; });
    if (is_missed) needed.push_back(wait);
  }
  return needed;
}

std::unique_ptr<Device> Open() {
  std::unique_ptr<Device> device;
  const BackendStatus opened = OpenCudaDevice({}, &device);
  EXPECT_TRUE(opened.ok()) << opened.text;
  return device;
}

View RowAt(void* data, int64_t count) {
  return {data, 1, count};
}

std::vector<float> Ramp(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = first + static_cast<float>(i);
  return values;
}

// Copies of more than the pinned slots hold, of which the host overwrites its own side at once.
std::vector<float> CopyInAndOut() {
  constexpr int64_t kCount = 5 << 20;  // 20 MiB: five slots, where there are four
  const std::unique_ptr<Device> device = Open();
  void* const data = device->Allocate(kCount * 4);
  std::vector<float> values = Ramp(kCount, 1);
  device->CopyIn(RowAt(data, kCount), values.data());
  values.assign(values.size(), 0);
  device->Scale(RowAt(data, kCount / 1024), 3);
  device->CopyOut(values.data(), RowAt(data, kCount));
  EXPECT_TRUE(device->Synchronize().ok());
  device->Free(data, kCount * 4);
  // Enough to tell: each slot's first, last and some between.
  std::vector<float> some;
  for (size_t i = 0; i < values.size(); i += 4099) some.push_back(values[i]);
  some.push_back(values.back());
  return some;
}

TEST(StreamWaits, OfCopiesThroughPinnedSlotsAreNeeded) {
  // 0 to 3 are for slots that nobody has used; 4 is for the first one again. On the way out each
  // slot is taken (5, 6, 8, 10, 12) for a copy that the stream itself orders behind the one that
  // used it before, and waited for before the host reads it. 15 is the end's: all is done.
  EXPECT_THAT(NeededWaits(CopyInAndOut), ElementsAre(4, 7, 9, 11, 13, 14));
}

// Each promise of Fetch, Store and AwaitTransfers (worker/backend/device.h) in turn.
std::vector<float> MoveStates() {
  constexpr int64_t kCount = 300;
  const std::unique_ptr<Device> device = Open();
  auto* const host = static_cast<float*>(device->AllocateHost(2 * kCount * 4));
  for (int64_t i = 0; i < 2 * kCount; ++i) host[i] = static_cast<float>(i);
  void* const memory[] = {device->Allocate(kCount * 4), device->Allocate(kCount * 4)};
  const View x = RowAt(memory[0], kCount);
  const View y = RowAt(memory[1], kCount);
  const View first = RowAt(host, kCount);
  const View second = RowAt(host + kCount, kCount);
  device->Zero(y);
  device->Fetch(x, first);   // 0: the work before, 1: the stores before
  device->AwaitTransfers();  // 2: the fetches, 3: the stores
  device->Add(x, y);
  device->Fetch(x, second);  // 4, 5
  device->AwaitTransfers();  // 6, 7
  device->Add(x, y);
  device->Scale(y, 2);
  device->Store(first, y);   // 8: the work before
  device->Fetch(x, first);   // 9, 10
  device->AwaitTransfers();  // 11, 12
  device->Add(x, y);
  device->Store(second, y);  // 13
  device->AwaitTransfers();  // 14, 15
  device->Scale(y, 5);
  EXPECT_TRUE(device->Synchronize().ok());  // 16 and 17 as above, 18: the host for the work
  std::vector<float> values(host, host + 2 * kCount);
  const auto* const on_device = static_cast<const float*>(memory[1]);
  values.insert(values.end(), on_device, on_device + kCount);
  device->FreeHost(host, 2 * kCount * 4);
  for (void* data : memory) device->Free(data, kCount * 4);
  return values;
}

TEST(StreamWaits, OfStatesOnTheHostAreNeeded) {
  // 2, 6, 11: work needs what was fetched. 4: a fetch must not overwrite what work still reads. 8
  // and 13: a store needs the work's result. 10: a fetch needs what was stored. 15: work must not
  // overwrite what is still being stored. 18: the host needs it all. The rest are promised too, but
  // nothing here moves that they would have to hold back.
  EXPECT_THAT(NeededWaits(MoveStates), ElementsAre(2, 4, 6, 8, 10, 11, 13, 15, 18));
}

constexpr int64_t kElements = 500;

// Rank `rank` of two: sums of `use` that run beside what is computed from other memory, one whose
// input is computed just before, one whose result is used right after the wait, and memory that is
// used again.
std::vector<float> ReduceBeside(GroupUse use, int rank, const NcclIds& ids) {
  const std::unique_ptr<Device> device = Open();
  std::unique_ptr<Comm> comm;
  const CommOptions options = {.init_timeout_ms = 20000,
                               .timeout_ms = 20000,
                               .rank = rank,
                               .world_size = 2,
                               .starts_calls = true,
                               .starts_beside = true};
  const BackendStatus opened = OpenNcclComm(options, ids, QueueOf(*device), "a test", &comm);
  EXPECT_TRUE(opened.ok()) << opened.text;
  const int world = World(*comm, use);
  void* const memory[] = {device->Allocate(kElements * 4), device->Allocate(kElements * 4),
                          device->Allocate(kElements * 4)};
  const View gradient = RowAt(memory[0], kElements);
  const View other = RowAt(memory[1], kElements);
  const View total = RowAt(memory[2], kElements);
  device->CopyIn(gradient, Ramp(kElements, static_cast<float>(rank + 1)).data());
  device->CopyIn(other, Ramp(kElements, 7).data());
  device->Zero(total);
  for (int step = 0; step < 3; ++step) {
    int64_t ticket = 0;
    device->Scale(gradient, 2);
    const CollectiveCall sum = {CollectiveKind::kAllReduce, world, ReduceOp::kSum, gradient};
    const bool is_beside = use == GroupUse::kBeside;
    EXPECT_TRUE((is_beside ? comm->StartBeside(sum) : comm->Start(sum, &ticket)).ok());
    device->Scale(other, 3);
    EXPECT_TRUE((is_beside ? comm->WaitBeside() : comm->Wait(ticket)).ok());
    device->Add(gradient, total);
    device->Add(other, total);
    device->Scale(gradient, 0.25);
  }
  std::vector<float> values(kElements);
  device->CopyOut(values.data(), total);
  EXPECT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(comm->FirstFailure().ok());
  comm.reset();
  for (void* data : memory) device->Free(data, kElements * 4);
  return values;
}

std::vector<float> ReduceOnTwoRanks(GroupUse use) {
  const NcclLibrary* nccl = nullptr;
  EXPECT_TRUE(LoadNccl(&nccl).ok());
  NcclIds ids;
  for (ncclUniqueId& id : ids.of_use) EXPECT_EQ(nccl->get_unique_id(&id), ncclSuccess);
  std::vector<float> own, theirs;
  std::thread peer([&] { theirs = ReduceBeside(use, 1, ids); });
  own = ReduceBeside(use, 0, ids);
  peer.join();
  own.insert(own.end(), theirs.begin(), theirs.end());
  return own;
}

TEST(StreamWaits, OfCallsThatAreStartedAreNeeded) {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/1);
  // 2, 4, 6: the sum needs what is computed before. 3, 5, 7: what comes after needs the sum. 9: the
  // host needs what is copied to it. 0, 1 and 8 are for slots that nobody has used, 10 is the
  // end's.
  for (const GroupUse use : {GroupUse::kStarted, GroupUse::kBeside}) {
    EXPECT_THAT(NeededWaits([use] { return ReduceOnTwoRanks(use); }),
                ElementsAre(2, 3, 4, 5, 6, 7, 9))
        << static_cast<int>(use);
  }
}

// The test of the tests: what two streams do to the same memory without a wait.
TEST(LazyStreams, ShowWorkThatNothingOrders) {
  const Scenario unordered = [] {
    cudaStream writer, reader;
    float* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
    const float one = 1;
    cudaMemcpyAsync(memory, &one, 4, cudaMemcpyHostToDevice, &writer);
    cudaMemcpyAsync(memory + 1, memory, 4, cudaMemcpyDeviceToDevice, &reader);
    cudaStreamSynchronize(&writer);
    cudaStreamSynchronize(&reader);
    const std::vector<float> seen(memory, memory + 2);
    cudaFree(memory);
    return seen;
  };
  EXPECT_THAT(TryIn(unordered, {}).result, ElementsAre(1, 1));
  EXPECT_THAT(TryIn(unordered, {StreamOrder::kLazy}).result, ElementsAre(1, 1));
  EXPECT_THAT(TryIn(unordered, {StreamOrder::kOthersFirst}).result, ElementsAre(1, 0));
}

TEST(LazyStreams, RunNothingBeforeTheHostWaits) {
  const Scenario unwaited = [] {
    cudaStream stream;
    std::vector<float> memory(2);
    const float one = 1;
    cudaMemcpyAsync(memory.data(), &one, 4, cudaMemcpyHostToDevice, &stream);
    const float before = memory[0];
    cudaStreamSynchronize(&stream);
    return std::vector<float>{before, memory[0]};
  };
  EXPECT_THAT(TryIn(unwaited, {}).result, ElementsAre(1, 1));
  EXPECT_THAT(TryIn(unwaited, {StreamOrder::kLazy}).result, ElementsAre(0, 1));
}

}  // namespace
}  // namespace weft
