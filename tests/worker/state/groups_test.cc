// RankGroups where a rank goes no further, with ranks as threads.
#include "worker/state/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/backend/all_ranks.h"
#include "tests/worker/backend/thread_comm.h"
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
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5)) << "a deadline is 20 s";
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
