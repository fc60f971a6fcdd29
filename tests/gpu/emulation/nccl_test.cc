// These tests cover what is NcclComm's own: calls beside the device's stream, faults that the watch
// has to see, and the end of communicators. The collectives' results are in comm_test.cc.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/emulation/fake_nccl.h"
#include "tests/worker/backend/all_ranks.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/comm.h"
#include "worker/backend/cuda/comm/call_watch.h"
#include "worker/backend/cuda/comm/nccl_comm.h"
#include "worker/backend/cuda/comm/nccl_watch.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kAborted = static_cast<int>(absl::StatusCode::kAborted);
constexpr int kDeadlineExceeded = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
constexpr int kFailedPreconditionCode = static_cast<int>(absl::StatusCode::kFailedPrecondition);
constexpr int kInvalidArgumentCode = static_cast<int>(absl::StatusCode::kInvalidArgument);
constexpr int kUnavailableCode = static_cast<int>(absl::StatusCode::kUnavailable);

template <typename Function>
Function* Fake(const char* name) {
  void* const handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(handle, name));
}
void Plant(int rank, int64_t call, const char* fault) {
  Fake<decltype(WeftFakeNcclPlant)>("WeftFakeNcclPlant")(rank, call, fault);
}
int OpenComms() {
  return Fake<decltype(WeftFakeNcclOpen)>("WeftFakeNcclOpen")();
}

int SetsOfResources() {
  return Fake<decltype(WeftFakeNcclResources)>("WeftFakeNcclResources")();
}

CollectiveCall SumOf(int group, std::vector<float>& values) {
  return {CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(values)};
}

// How many are open once there are `most` or fewer. The bound only ends a test that has failed.
int AwaitOpenComms(int most) {
  const Clock::time_point begin = Clock::now();
  while (OpenComms() > most && Clock::now() - begin < std::chrono::seconds(60)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return OpenComms();
}

class NcclFaults : public ::testing::Test {
 protected:
  void TearDown() override { Plant(-1, 0, ""); }
};

TEST(Nccl, SaysWhatItIsAndWhy) {
  const Comms comms = MakeThreadComms(1);
  EXPECT_STREQ(comms[0]->description(), "NCCL 2.28.9: a test");
}

TEST(Nccl, IsAskedToKeepTheOrderOfCallsBeforeItsFirstUse) {
  const Comms comms = MakeThreadComms(1);
  EXPECT_TRUE(Fake<decltype(WeftFakeNcclKeepsOrder)>("WeftFakeNcclKeepsOrder")());
}

TEST(Nccl, EndsEveryCommunicatorThatItMade) {
  {
    const Comms comms = MakeThreadComms(3);
    OnAllRanks(comms, [](Comm& comm) {
      World(comm);
      const int pair[] = {0, 1};
      int group = -1;
      ASSERT_TRUE(comm.NewGroup(GroupUse::kBlocking, pair, comm.rank() < 2 ? 2 : 0, &group).ok());
    });
    EXPECT_EQ(OpenComms(), 3 * 3 + 3 + 2) << "of each rank three that all ranks share";
  }
  EXPECT_EQ(OpenComms(), 0);
}

// Two ranks, each with its own sets.
TEST(Nccl, SharesResourcesAmongGroupsOfOneUseAlone) {
  const Comms comms = MakeThreadComms(2);
  const auto make = [&](GroupUse use) {
    OnAllRanks(comms, [&](Comm& comm) { World(comm, use); });
    return SetsOfResources();
  };
  EXPECT_EQ(make(GroupUse::kBlocking), 2);
  EXPECT_EQ(make(GroupUse::kBlocking), 2);
  EXPECT_EQ(OpenComms(), 2 * 4) << "no world of what is started before it is needed";
  EXPECT_EQ(make(GroupUse::kStarted), 4);
  EXPECT_EQ(make(GroupUse::kStarted), 4);
  EXPECT_EQ(OpenComms(), 2 * (4 + 3));
  EXPECT_EQ(make(GroupUse::kBeside), 6) << "nor do the two kinds of started calls share any";
  EXPECT_EQ(OpenComms(), 2 * (4 + 3 + 2));
}

// NCCL would start one for each call on a communicator that does not block.
TEST(Nccl, StartsNoThreadForACall) {
  const auto threads = Fake<decltype(WeftFakeNcclThreads)>("WeftFakeNcclThreads");
  const int64_t before = threads();
  const auto counted = Fake<decltype(WeftFakeNcclCalls)>("WeftFakeNcclCalls");
  const int64_t reduced = counted("ncclAllReduce");
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm);
    const int blocking = World(comm, GroupUse::kBlocking);
    std::vector<float> values(99, 1);
    int64_t ticket = 0;
    ASSERT_TRUE(comm.Start(SumOf(group, values), &ticket).ok());
    ASSERT_TRUE(comm.Wait(ticket).ok());
    ASSERT_TRUE(comm.AllReduce(blocking, ReduceOp::kSum, Row(values)).ok());
    ASSERT_TRUE(comm.AllReduce(blocking, ReduceOp::kMax, Row(values)).ok());
    ASSERT_TRUE(comm.AllGather(blocking, Row(values)).ok());
    const Transfer transfers[] = {{true, (comm.rank() + 1) % 3, Row(values)},
                                  {false, (comm.rank() + 2) % 3, Row(values)}};
    ASSERT_TRUE(comm.Exchange(transfers, 2).ok());
    ASSERT_TRUE(comm.Barrier(blocking).ok());
  });
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(counted("ncclAllReduce"), reduced + 2 * 3);
}

// The limit is that of what is started, and of what that is split from; the others take what NCCL
// takes by itself.
TEST(Nccl, LimitsTheBlocksOfWhatRunsBesideCompute) {
  const auto open_with = Fake<decltype(WeftFakeNcclOpenWith)>("WeftFakeNcclOpenWith");
  const Comms comms = MakeThreadComms(2);
  OnAllRanks(comms, [](Comm& comm) { World(comm, GroupUse::kBlocking); });
  EXPECT_EQ(open_with(16), 0);
  OnAllRanks(comms, [](Comm& comm) { World(comm, GroupUse::kStarted); });
  EXPECT_EQ(open_with(16), 2 * 2);
  OnAllRanks(comms, [](Comm& comm) { World(comm, GroupUse::kBeside); });
  EXPECT_EQ(open_with(16), 2 * 4);
  EXPECT_EQ(open_with(INT_MIN), 2 * 3);
}

// A sum in rank order takes several calls, so it has no world of its own, and blocks.
TEST(Nccl, CarriesSumsInRankOrderByTheBlockingWorld) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = 20000, .rank_order = true}});
  const int open = OpenComms();
  OnAllRanks(comms, [](Comm& comm) {
    const int group = World(comm, GroupUse::kBeside);
    std::vector<float> values(99, 1);
    ASSERT_TRUE(comm.StartBeside(SumOf(group, values)).ok());
    ASSERT_TRUE(comm.WaitBeside().ok());
    EXPECT_EQ(values, std::vector<float>(99, 2));
  });
  EXPECT_EQ(OpenComms(), open + 2);
}

TEST(Nccl, MakesNoGroupOfStartedCallsWhereNoneWereAnnounced) {
  const NcclLibrary* nccl = nullptr;
  ASSERT_TRUE(LoadNccl(&nccl).ok());
  NcclIds ids;
  ASSERT_EQ(nccl->get_unique_id(ids.of_use), ncclSuccess);
  cudaStream stream;
  std::unique_ptr<Comm> comm;
  ASSERT_TRUE(OpenNcclComm({}, ids, {.stream = &stream}, "a test", &comm).ok());
  const int self = 0;
  int group = -1;
  const BackendStatus s = comm->NewGroup(GroupUse::kStarted, &self, 1, &group);
  EXPECT_EQ(s.code, kInvalidArgumentCode);
  EXPECT_STREQ(s.text, "new group: this communicator was opened for calls that block");
  EXPECT_EQ(OpenComms(), 2);
}

TEST(Nccl, StartsNothingInAGroupThatWasMadeForBlockingCalls) {
  const Comms comms = MakeThreadComms(1);
  const int group = World(*comms[0], GroupUse::kBlocking);
  std::vector<float> values(10, 1);
  int64_t ticket = 0;
  const BackendStatus s = comms[0]->Start(SumOf(group, values), &ticket);
  EXPECT_EQ(s.code, kInvalidArgumentCode);
  EXPECT_STREQ(s.text, "start: group 0 was made for blocking calls alone");
  EXPECT_TRUE(comms[0]->Barrier(group).ok()) << "nothing is broken by it";
}

View SixteenBits(std::vector<uint16_t>& values, DType dtype) {
  return {values.data(), 1, static_cast<int64_t>(values.size()), dtype};
}

constexpr ThreadCommOptions kInRankOrder = {.comm = {.timeout_ms = 20000, .rank_order = true}};

// 256 and 69 halves: 290.5, which is 290 in eight bits; rounded after 64 ranks too, it is 292.
TEST(Nccl, RoundsSixteenBitSumsOfAnyNumberOfRanksOnceInRankOrder) {
  OnAllRanks(MakeThreadComms(70, kInRankOrder), [](Comm& comm) {
    const int group = World(comm, GroupUse::kBlocking);
    const uint16_t own = comm.rank() == 0 ? 0x4380 : 0x3f00;
    std::vector<uint16_t> sum(1000, own);
    std::vector<uint16_t> part(70 * 8, own);
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, SixteenBits(sum, DType::kBf16)).ok());
    EXPECT_THAT(sum, Each(0x4391));
    ASSERT_TRUE(comm.ReduceScatter(group, ReduceOp::kSum, SixteenBits(part, DType::kBf16)).ok());
    const auto first = part.begin() + 8 * comm.rank();
    EXPECT_THAT(std::vector<uint16_t>(first, first + 8), Each(0x4391));
  });
}

// The calls into NCCL of all ranks for one call of each: {all-reduces, reduce-scatters, messages,
// groups of messages}.
std::array<int64_t, 4> CallsFor(const Comms& comms, const CollectiveCall& collective) {
  constexpr const char* kEntries[] = {"ncclAllReduce", "ncclReduceScatter", "ncclSend",
                                      "ncclGroupEnd"};
  const auto counted = Fake<decltype(WeftFakeNcclCalls)>("WeftFakeNcclCalls");
  std::array<int64_t, 4> made = {};
  for (size_t i = 0; i < made.size(); ++i) made[i] = -counted(kEntries[i]);
  OnAllRanks(comms, [&](Comm& comm) {
    std::vector<float> values(128 * static_cast<size_t>(comm.world_size()), 1);
    View data = Row(values);
    data.dtype = collective.data.dtype;
    const BackendStatus s = collective.kind == CollectiveKind::kAllReduce
                                ? comm.AllReduce(collective.group, collective.op, data)
                                : comm.ReduceScatter(collective.group, collective.op, data);
    EXPECT_TRUE(s.ok()) << s.text;
  });
  for (size_t i = 0; i < made.size(); ++i) made[i] += counted(kEntries[i]);
  return made;
}

// Four ranks make one call each, or twelve messages in a group for each rank and, of an all-reduce,
// the same back. The figures of bench/README.md.
TEST(Nccl, AddsByItsOwnCallsUnlessInRankOrder) {
  using Calls = std::array<int64_t, 4>;
  constexpr CollectiveKind kAllReduces = CollectiveKind::kAllReduce;
  constexpr CollectiveKind kScatters = CollectiveKind::kReduceScatter;
  for (const bool rank_order : {false, true}) {
    const Comms comms =
        MakeThreadComms(4, {.comm = {.timeout_ms = 20000, .rank_order = rank_order}});
    OnAllRanks(comms, [](Comm& comm) { World(comm, GroupUse::kBlocking); });
    const Calls reduces = rank_order ? Calls{0, 0, 24, 8} : Calls{4, 0, 0, 0};
    const Calls scatters = rank_order ? Calls{0, 0, 12, 4} : Calls{0, 4, 0, 0};
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(static_cast<int>(dtype));
      const View data = {.data = nullptr, .rows = 1, .cols = 0, .dtype = dtype};
      EXPECT_EQ(CallsFor(comms, {kAllReduces, 0, ReduceOp::kSum, data}), reduces);
      EXPECT_EQ(CallsFor(comms, {kScatters, 0, ReduceOp::kSum, data}), scatters);
      EXPECT_EQ(CallsFor(comms, {kAllReduces, 0, ReduceOp::kMax, data}), (Calls{0, 0, 24, 8}));
      EXPECT_EQ(CallsFor(comms, {kScatters, 0, ReduceOp::kMax, data}), (Calls{0, 0, 12, 4}));
    }
  }
}

// The same bits are 2, 2^-7 and 2^-15 in bf16: whoever takes them for that has another sum.
TEST(Nccl, AddsHalvesAsHalves) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm, GroupUse::kBlocking);
    constexpr uint16_t kTerms[] = {0x4000, 0x3c00, 0x3800};  // 2, 1, 0.5
    std::vector<uint16_t> sum(30, kTerms[comm.rank()]);
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, SixteenBits(sum, DType::kF16)).ok());
    EXPECT_THAT(sum, Each(0x4300));  // 3.5
  });
}

TEST(NcclStart, MovesBesideBlockingCallsOfOtherGroupsWithTheirBits) {
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    const int started = World(comm);
    const int blocking = World(comm, GroupUse::kBlocking);
    std::vector<float> sum(500'000, static_cast<float>(comm.rank() + 1));
    int64_t ticket = 0;
    if (comm.rank() == 0) {
      ASSERT_TRUE(comm.Start(SumOf(started, sum), &ticket).ok());
    }
    for (int i = 0; i < 10; ++i) {
      std::vector<float> other(5000, 1);
      const BackendStatus s = comm.AllReduce(blocking, ReduceOp::kSum, Row(other));
      ASSERT_TRUE(s.ok()) << s.text;
      ASSERT_THAT(other, Each(2.0F));
    }
    if (comm.rank() == 1) {
      ASSERT_TRUE(comm.Start(SumOf(started, sum), &ticket).ok());
    }
    ASSERT_TRUE(comm.Wait(ticket).ok());
    EXPECT_THAT(sum, Each(3.0F));
  });
}

TEST(NcclStart, RunsCallsOfAllKindsInTheirOrder) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm);
    std::vector<float> values(9'999, 1);
    int64_t ticket = 0;
    for (int round = 0; round < 30; ++round) {  // more than there are tickets at a time
      for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                        CollectiveKind::kAllGather}) {
        ASSERT_TRUE(comm.Start({kind, group, ReduceOp::kSum, Row(values)}, &ticket).ok());
      }
      ASSERT_TRUE(comm.Wait(ticket).ok());
      // Three ones, then three threes in each rank's range, which all others take.
      ASSERT_THAT(values, Each(9.0F));
      std::fill(values.begin(), values.end(), 1.0F);
    }
    EXPECT_EQ(ticket, 90);
    EXPECT_FALSE(comm.Wait(91).ok());
    EXPECT_TRUE(comm.Wait(0).ok());
  });
}

// Sums in rank order have the bits of the others here, where NCCL's are in rank order too; what
// differs is the way.
TEST(NcclRankOrder, TakesTheOtherWayToTheSameSums) {
  OnAllRanks(MakeThreadComms(3, kInRankOrder), [](Comm& comm) {
    EXPECT_STREQ(comm.description(), "NCCL 2.28.9, sums in rank order: a test");
    const int group = World(comm);
    for (const int count : {1, 65, 100'003}) {
      std::vector<float> values(static_cast<size_t>(count));
      const auto value = [](int rank, size_t i) {
        return static_cast<float>(i % 13 + 1) / static_cast<float>(3 + rank * rank);
      };
      for (size_t i = 0; i < values.size(); ++i) values[i] = value(comm.rank(), i);
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Row(values)).ok());
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], value(0, i) + value(1, i) + value(2, i)) << i;
      }
    }
  });
}

// Queued and never done: nobody waits for it on the host, the watch sees it.
TEST_F(NcclFaults, AQueuedCallThatNeverEndsIsNamedByItsDeadline) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
  std::vector<int> groups(2);
  OnAllRanks(comms, [&](Comm& c) { groups[static_cast<size_t>(c.rank())] = World(c); });
  Plant(0, 2, "late");
  OnAllRanks(comms, [&](Comm& comm) {
    const int group = groups[static_cast<size_t>(comm.rank())];
    std::vector<float> values(10, 1);
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Row(values)).ok());
    const BackendStatus queued = comm.AllReduce(group, ReduceOp::kSum, Row(values));
    EXPECT_EQ(queued.ok(), comm.rank() == 0) << queued.text;
    double loss = 1;
    const BackendStatus s = comm.AllReduceHost(group, ReduceOp::kSum, &loss, 1);
    EXPECT_EQ(s.code, kDeadlineExceeded);
    const std::string rank = std::to_string(comm.rank());
    EXPECT_THAT(s.text, HasSubstr("all-reduce of group 0 (call 3 of rank " + rank +
                                  "): not done after 1000 ms; it needs rank " +
                                  std::to_string(1 - comm.rank())));
    EXPECT_EQ(std::string(comm.Barrier(group).text), s.text) << "the first cause stays";
  });
}

// NCCL has not come back from the call, on a thread that nobody waits for.
TEST_F(NcclFaults, ACallThatBlocksInsideNcclIsNamedByItsDeadlineAndAborted) {
  {
    const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
    OnAllRanks(comms, [](Comm& comm) { World(comm); });
    Plant(0, 1, "hang");
    std::vector<float> values(10, 1);
    const BackendStatus s = comms[0]->AllReduce(0, ReduceOp::kSum, Row(values));
    EXPECT_EQ(s.code, kDeadlineExceeded);
    EXPECT_THAT(s.text,
                HasSubstr("all-reduce of group 0 (call 2 of rank 0): not done after 1000 ms; "
                          "it needs rank 1"));
    EXPECT_EQ(std::string(comms[0]->Barrier(0).text), s.text) << "nobody enters NCCL behind it";
    EXPECT_EQ(AwaitOpenComms(4), 4) << "those of rank 1, whose Comm is well";
  }
  EXPECT_EQ(OpenComms(), 0);
}

// How long Comm::Interrupt takes to end what rank 0 does after `before`, whose first call, or its
// own, `fault` has hit.
Clock::duration InterruptAfter(const char* fault, const std::function<void(Comm& comm)>& before,
                               const std::function<BackendStatus(Comm& comm)>& what) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = 60000}});
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  Plant(0, 1, fault);
  before(*comms[0]);
  BackendStatus status;
  Clock::time_point ended;
  std::thread waiting([&] {
    status = what(*comms[0]);
    ended = Clock::now();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const Clock::time_point interrupted = Clock::now();
  comms[0]->Interrupt("the lease has run out");
  waiting.join();
  EXPECT_EQ(status.code, kAborted);
  EXPECT_THAT(status.text, HasSubstr("the lease has run out"));
  return ended - interrupted;
}

TEST_F(NcclFaults, AnInterruptReturnsWithinATenthOfASecondWhereNcclBlocks) {
  const auto nothing = [](Comm&) {};
  const auto reduce = [](Comm& comm) {
    std::vector<float> values(10, 1);
    return comm.AllReduce(0, ReduceOp::kSum, Row(values));
  };
  EXPECT_LT(MiddleOfFive([&] { return InterruptAfter("hang", nothing, reduce); }),
            std::chrono::milliseconds(100));
}

// After the abort the device's stream is free again: Device::Synchronize() ends.
TEST_F(NcclFaults, AnAbortFreesTheStreamAndEndsEveryCommunicator) {
  {
    const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
    OnAllRanks(comms, [](Comm& comm) { World(comm); });
    Plant(0, 1, "late");
    std::vector<float> values(10, 1);
    ASSERT_TRUE(comms[0]->AllReduce(0, ReduceOp::kSum, Row(values)).ok());
    EXPECT_EQ(OpenComms(), 8);
    EXPECT_EQ(AwaitOpenComms(4), 4) << "those of rank 1, whose Comm is well";
  }
  EXPECT_EQ(OpenComms(), 0);
}

// The abort of the blocking groups' communicators waits for the kernel of the started ones.
TEST_F(NcclFaults, CommunicatorsOfOneUseAreNotAbortedBehindAKernelOfTheOther) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
  OnAllRanks(comms, [](Comm& comm) {
    World(comm, GroupUse::kBlocking);
    World(comm, GroupUse::kStarted);
  });
  EXPECT_EQ(OpenComms(), 10);
  Plant(0, 1, "late");
  std::vector<float> values(10, 1);
  int64_t ticket = 0;
  ASSERT_TRUE(comms[0]->Start(SumOf(1, values), &ticket).ok());
  EXPECT_EQ(AwaitOpenComms(5), 5) << "those of rank 1, whose Comm is well";
}

TEST_F(NcclFaults, ACallThatAPassWaitsForIsNamedAtItsDeadline) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
  OnAllRanks(comms, [](Comm& comm) {
    for (const GroupUse use : {GroupUse::kBlocking, GroupUse::kStarted, GroupUse::kBeside}) {
      World(comm, use);
    }
  });
  EXPECT_EQ(OpenComms(), 14);
  Plant(0, 1, "late");
  std::vector<float> values(10, 1);
  ASSERT_TRUE(comms[0]->StartBeside(SumOf(2, values)).ok());
  EXPECT_EQ(AwaitOpenComms(7), 7) << "those of rank 1, whose Comm is well";
  const BackendStatus waited = comms[0]->WaitBeside();
  EXPECT_THAT(waited.text, HasSubstr("all-reduce of group 2"));
  EXPECT_THAT(waited.text, HasSubstr("not done after 1000 ms; it needs rank 1"));
}

TEST_F(NcclFaults, ACommunicatorThatIsMadeAfterAFailureIsAbortedToo) {
  const NcclLibrary* nccl = nullptr;
  ASSERT_TRUE(LoadNccl(&nccl).ok());
  CallWatch calls(0, 1, 1000);
  NcclWatch watch(*nccl, calls);
  ASSERT_TRUE(watch.Start().ok());
  const auto make = [&] {
    NcclIds ids;
    EXPECT_EQ(nccl->get_unique_id(ids.of_use), ncclSuccess);
    ncclComm_t made = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    nccl->comm_init_rank_config(&made, 1, ids.of_use[0], 0, &config);
    return made;
  };
  watch.Add(make(), 0);
  EXPECT_EQ(OpenComms(), 1);
  watch.Fail(BackendStatus{.code = kAborted});
  EXPECT_EQ(AwaitOpenComms(0), 0);
  watch.Add(make(), 1);
  EXPECT_EQ(AwaitOpenComms(0), 0);
}

// It is aborted: destroying it could wait for ever.
TEST_F(NcclFaults, ACommunicatorThatReportsAnErrorAtTheEndIsNotDestroyed) {
  {
    const Comms comms = MakeThreadComms(2);
    OnAllRanks(comms, [](Comm& comm) { World(comm); });
    Plant(0, 1, "unclean");
    OnAllRanks(comms, [](Comm& comm) {
      std::vector<float> values(10, 1);
      ASSERT_TRUE(comm.AllReduce(0, ReduceOp::kSum, Row(values)).ok());
      ASSERT_TRUE(comm.Barrier(0).ok());
    });
  }
  EXPECT_EQ(OpenComms(), 0);
}

// Behind the kernel that hangs the host finds no room for the event that would tell of its end.
TEST_F(NcclFaults, ACallThatWaitsForRoomBehindItselfIsNamedByItsDeadline) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  Plant(0, 1, "full");
  std::vector<float> values(10, 1);
  const BackendStatus s = comms[0]->AllReduce(0, ReduceOp::kSum, Row(values));
  EXPECT_EQ(s.code, kDeadlineExceeded);
  EXPECT_THAT(s.text,
              HasSubstr("all-reduce of group 0 (call 2 of rank 0): not done after 1000 ms"));
}

TEST_F(NcclFaults, AnInterruptReturnsAtOnceWhereTheHostWaitsForRoom) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = 60000}});
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  Plant(0, 1, "full");
  BackendStatus status;
  std::thread waiting([&] {
    std::vector<float> values(10, 1);
    status = comms[0]->AllReduce(0, ReduceOp::kSum, Row(values));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const Clock::time_point begin = Clock::now();
  comms[0]->Interrupt("the lease has run out");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60)) << "it waited for the deadline";
  waiting.join();
  EXPECT_EQ(status.code, kAborted);
}

TEST_F(NcclFaults, AnErrorThatComesLaterIsNamedWithTheCallThatWasDue) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = 60000}});
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  Plant(0, 1, "error");
  std::vector<float> values(10, 1);
  BackendStatus s = comms[0]->AllReduce(0, ReduceOp::kSum, Row(values));
  double loss = 1;  // unless the watch was there before the first call had returned
  if (s.ok()) s = comms[0]->AllReduceHost(0, ReduceOp::kSum, &loss, 1);
  EXPECT_EQ(s.code, kUnavailableCode);
  EXPECT_THAT(s.text,
              HasSubstr("all-reduce of group 0 (call 2 of rank 0): NCCL: all-reduce failed: "
                        "remote process exited (planted); a peer has left"))
      << "not its deadline";
}

TEST_F(NcclFaults, ACallThatNcclRefusesFailsAtOnce) {
  const Comms comms = MakeThreadComms(2);
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  Plant(1, 1, "refuse");
  std::vector<float> values(10, 1);
  const BackendStatus s = comms[1]->AllGather(0, Row(values));
  EXPECT_EQ(s.code, kFailedPreconditionCode);
  EXPECT_THAT(s.text,
              HasSubstr("all-gather of group 0 (call 2 of rank 1): NCCL: all-gather failed"));
  EXPECT_EQ(std::string(comms[1]->Barrier(0).text), s.text);
}

TEST_F(NcclFaults, AStartedCallThatHangsIsNamedByWaitOrTheNextCall) {
  const Comms comms = MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}});
  OnAllRanks(comms, [](Comm& comm) { World(comm); });
  std::vector<float> values(1000, 1);
  int64_t ticket = 0;
  // Rank 1 does not come.
  ASSERT_TRUE(comms[0]->Start(SumOf(0, values), &ticket).ok());
  (void)comms[0]->Wait(ticket);  // the device waits; the host may go on
  double loss = 1;
  const BackendStatus s = comms[0]->AllReduceHost(0, ReduceOp::kSum, &loss, 1);
  EXPECT_EQ(s.code, kDeadlineExceeded);
  EXPECT_THAT(s.text,
              HasSubstr("all-reduce of group 0 (call 2 of rank 0): not done after 1000 ms"));
}

TEST_F(NcclFaults, AnInterruptEndsWhatIsQueuedWithinATenthOfASecond) {
  std::vector<float> values(10, 1);
  const auto queue = [&](Comm& comm) {
    const BackendStatus queued = comm.AllReduce(0, ReduceOp::kSum, Row(values));
    EXPECT_TRUE(queued.ok()) << queued.text;
  };
  const auto wait = [](Comm& comm) {
    double loss = 1;
    return comm.AllReduceHost(0, ReduceOp::kSum, &loss, 1);
  };
  EXPECT_LT(MiddleOfFive([&] { return InterruptAfter("late", queue, wait); }),
            std::chrono::milliseconds(100));
}

// A rank that had no core until after the deadline looks once more before it blames its peers.
TEST(CallWatch, BlamesNobodyForWhatHasComeMeanwhile) {
  for (const bool comes : {true, false}) {
    CallWatch calls(0, 2, 20);
    Call call;
    ASSERT_TRUE(calls.Begin("barrier", -1, &call).ok());
    int looks = 0;
    const BackendStatus status = calls.Wait(call, [&](std::vector<int>* silent) {
      *silent = {1};
      if (++looks == 1) std::this_thread::sleep_for(std::chrono::milliseconds(40));
      return comes && looks == 2;
    });
    EXPECT_EQ(status.ok(), comes) << status.text;
  }
}

// The watch alone, on a stream of the test's; its threads look when the test says.
class NcclWatchTest : public ::testing::Test {
 protected:
  void Begin(const NcclWatch::Pace& pace) {
    const NcclLibrary* nccl = nullptr;
    ASSERT_TRUE(LoadNccl(&nccl).ok());
    watch_ = std::make_unique<NcclWatch>(*nccl, calls_, pace);
    ASSERT_TRUE(watch_->Start().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until its threads sleep
  }
  // A call that the stream does not end.
  void QueueOne() {
    Call call;
    ASSERT_TRUE(calls_.Begin("all-reduce", -1, &call).ok());
    ASSERT_TRUE(watch_->MarkBeginning(call, 0, &stream_).ok());
    stream_.holds = 1;
    ASSERT_TRUE(watch_->Queued(call, 0, &stream_, nullptr, {1}).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until all who look have looked
  }
  // The failure, which comes within a quarter of a minute or not at all.
  BackendStatus WaitForFailure() {
    const Clock::time_point begin = Clock::now();
    while (watch_->failure().ok() && Clock::now() - begin < std::chrono::seconds(15)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const BackendStatus failure = watch_->failure();
    stream_.holds = 0;
    return failure;
  }

  static constexpr std::chrono::hours kNever{1};
  cudaStream stream_;
  CallWatch calls_{0, 2, 150};
  std::unique_ptr<NcclWatch> watch_;
};

TEST_F(NcclWatchTest, WhoDrainsLooksItself) {
  Begin({.due = kNever, .idle = kNever, .patience = kNever});
  QueueOne();
  stream_.holds = 0;
  std::future<BackendStatus> drained =
      std::async(std::launch::async, [&] { return watch_->Drain(); });
  const bool done = drained.wait_for(std::chrono::seconds(15)) == std::future_status::ready;
  EXPECT_TRUE(done);
  if (!done) watch_->Fail(BackendStatus{.code = kAborted});
  EXPECT_TRUE(drained.get().ok());
}

TEST_F(NcclWatchTest, WakesUpForTheFirstCallAfterAPause) {
  Begin({.due = std::chrono::milliseconds(1), .idle = kNever, .patience = kNever});
  QueueOne();
  EXPECT_EQ(WaitForFailure().code, kDeadlineExceeded);
}

// The device has more to compute before the call than the call may take.
TEST_F(NcclWatchTest, CountsACallsTimeFromWhenTheDeviceComesToIt) {
  Begin({});
  stream_.holds = 1;
  QueueOne();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // four times what it may take
  EXPECT_TRUE(watch_->failure().ok()) << watch_->failure().text;
  stream_.holds = 0;
  EXPECT_TRUE(watch_->Drain().ok());
}

TEST_F(NcclWatchTest, NamesACallThoughItsOwnLookAtTheDeviceDoesNotComeBack) {
  const std::chrono::milliseconds often(1);
  Begin({.due = often, .idle = often, .patience = std::chrono::milliseconds(50)});
  QueueOne();
  stream_.is_full = true;
  const BackendStatus s = WaitForFailure();
  EXPECT_EQ(s.code, kDeadlineExceeded);
  EXPECT_THAT(s.text, HasSubstr("all-reduce (call 1 of rank 0): not "));
}

// The host has no room for more behind what is computed: the look at the beginning stays away.
TEST_F(NcclWatchTest, NamesACallThoughItsLookAtTheBeginningDoesNotComeBack) {
  const std::chrono::milliseconds often(1);
  Begin({.due = often, .idle = often, .patience = std::chrono::milliseconds(50)});
  stream_.holds = 1;
  QueueOne();
  stream_.is_full = true;
  EXPECT_EQ(WaitForFailure().code, kDeadlineExceeded);
}

TEST(Nccl, OpeningEndsByItsOwnDeadlineWhereARankDoesNotCome) {
  const NcclLibrary* nccl = nullptr;
  ASSERT_TRUE(LoadNccl(&nccl).ok());
  NcclIds ids;
  ASSERT_EQ(nccl->get_unique_id(ids.of_use), ncclSuccess);
  cudaStream stream;
  const CommOptions options = {.init_timeout_ms = 120, .timeout_ms = 60000, .world_size = 2};
  std::unique_ptr<Comm> comm;
  const BackendStatus s = OpenNcclComm(options, ids, {.stream = &stream}, "a test", &comm);
  EXPECT_EQ(s.code, kDeadlineExceeded);
  EXPECT_THAT(s.text, HasSubstr("opening a communicator (call 1 of rank 0): not done after 120 ms; "
                                "it needs rank 1"));
  EXPECT_EQ(OpenComms(), 0);
}

}  // namespace
}  // namespace weft
