// RankGroups where a rank goes no further, with ranks as threads.
#include "worker/state/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/backend/all_ranks.h"
#include "tests/worker/backend/thread_comm.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/state/world_sum.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Rank 1 does not come to the sum that rank 0 has started.
TEST(RankGroups, LeaveNothingUnderWayBehind) {
  const Clock::time_point begin = Clock::now();
  const Layout layout = {.dp = 2};
  OnAllRanks(MakeThreadComms(2), [&](Comm& comm) {
    std::vector<float> gradients(100'000, 3);
    int64_t ticket = 0;
    {
      const auto groups = RankGroups::Create(layout, 1, comm);
      ASSERT_TRUE(groups.ok()) << groups.status();
      if (comm.rank() == 1) return;
      ASSERT_TRUE((*groups)->StartSumOverReplicas(Row(gradients), &ticket).ok());
    }
    const BackendStatus waited = comm.Wait(ticket);
    EXPECT_EQ(waited.code, static_cast<int>(absl::StatusCode::kAborted));
    EXPECT_THAT(waited.text, HasSubstr("this rank goes no further"));
    EXPECT_THAT(gradients, Each(3.0F));
  });
  const std::chrono::milliseconds deadline(ThreadCommOptions().comm.timeout_ms);
  EXPECT_LT(Clock::now() - begin, deadline) << "it was the deadline that ended it";
}

TEST(RankGroups, LeaveTheCommToOthersOnceAllIsWaitedFor) {
  const Layout layout = {.dp = 2};
  OnAllRanks(MakeThreadComms(2), [&](Comm& comm) {
    const int world = World(comm);
    std::vector<float> gradients(100'000, 3);
    {
      const auto groups = RankGroups::Create(layout, 1, comm);
      ASSERT_TRUE(groups.ok()) << groups.status();
      int64_t ticket = 0;
      ASSERT_TRUE((*groups)->StartSumOverReplicas(Row(gradients), &ticket).ok());
      ASSERT_TRUE((*groups)->Wait(ticket).ok());
    }
    EXPECT_THAT(gradients, Each(6.0F));
    EXPECT_TRUE(comm.Barrier(world).ok());
  });
}

// Keeps back what is started beside products, which the CPU's Comm makes at once.
class WaitingComm final : public PassingComm {
 public:
  using PassingComm::PassingComm;
  BackendStatus StartBeside(const CollectiveCall& /*call*/) override { return {}; }
  BackendStatus WaitBeside() override {
    on_wait(*this);
    return inner_.WaitBeside();
  }
  std::function<void(WaitingComm&)> on_wait = [](WaitingComm&) {};
};

TEST(RankGroups, LeaveNothingOverTensorUnderWayBehind) {
  const auto comms = MakeThreadComms(2);
  OnAllRanks(comms, [](Comm& comm) {
    WaitingComm waiting(comm);
    int waits = 0;
    waiting.on_wait = [&](WaitingComm& own) {
      ++waits;
      const int self = own.rank();
      int group = -1;
      EXPECT_TRUE(own.NewGroup(GroupUse::kBlocking, &self, 1, &group).ok());
      EXPECT_THAT(own.Barrier(group).text, HasSubstr("this rank goes no further"));
    };
    std::vector<float> dx(10, 3);
    {
      const auto groups = RankGroups::Create({.tp = 2}, 1, waiting);
      ASSERT_TRUE(groups.ok()) << groups.status();
      ASSERT_TRUE((*groups)->StartSumOverTensor(Row(dx)).ok());
      EXPECT_EQ(waits, 0);
    }
    EXPECT_EQ(waits, 1);
  });
}

// A rank that waits shows which call over tp it waits for: the newest, counted among all of them.
TEST(RankGroups, ShowWhatTheyWaitForOverTensor) {
  const TestFolder folder;
  OnAllRanks(MakeThreadComms(2), [&](Comm& comm) {
    const std::string path = PagePath(folder.path(), comm.rank());
    ASSERT_TRUE(MakePageFile(path).ok());
    absl::StatusOr<ProgressWriter> page = ProgressWriter::Open(path, 1, comm.rank());
    ASSERT_TRUE(page.ok()) << page.status();
    WaitingComm waiting(comm);
    PageCall seen;
    int waits = 0;
    waiting.on_wait = [&](WaitingComm&) {
      ++waits;
      seen = PageReader::Open(path)->Read()->call;
    };
    std::vector<float> dx(10, 3);
    const auto groups = RankGroups::Create({.tp = 2}, 1, waiting, &*page);
    ASSERT_TRUE(groups.ok()) << groups.status();
    ASSERT_TRUE((*groups)->SumOverTensor(Row(dx)).ok());
    ASSERT_TRUE((*groups)->StartSumOverTensor(Row(dx)).ok());
    ASSERT_TRUE((*groups)->StartAllGatherOverTensor(Row(dx)).ok());
    ASSERT_TRUE((*groups)->AwaitTensor().ok());
    EXPECT_EQ(seen, (PageCall{CallKind::kAwaitStarted, MeetingAxis::kTensor, /*sequence=*/3, -1}));
    EXPECT_EQ(PageReader::Open(path)->Read()->call.kind, CallKind::kNone);
    ASSERT_TRUE((*groups)->AwaitTensor().ok());
    EXPECT_EQ(waits, 1) << "nothing is under way any more";
  });
}

TEST(WorldSum, IsRightForAnyNumberOfRanks) {
  for (const int world_size : {1, 2, 7, kMostPlaces, kMostPlaces + 1, 3 * kMostPlaces + 5}) {
    std::vector<double> sum(WorldPart(0, world_size).size());
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<double> part = WorldPart(rank, world_size);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_EQ(CheckWorldSum(sum, world_size), absl::OkStatus()) << world_size;
  }
}

TEST(WorldSum, NamesTheRankWhosePartIsLostOrAltered) {
  EXPECT_EQ(CheckWorldSum({1, 2, 0, 4}, 4).message(),
            "an all-reduce over all 4 ranks gave 0 instead of 3 for rank 2; look at the network "
            "and the memory of its host");
  EXPECT_EQ(CheckWorldSum({1, 2.5}, 2).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace weft
