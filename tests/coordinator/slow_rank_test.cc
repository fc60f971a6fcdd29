#include "coordinator/slow_rank.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr uint64_t kStageKeys[] = {11, 13};

// Two stages of two data ranks; every rank does one step in 100 ms, of which it computes `busy_ms`.
// Data ranks have their replicas in common, or the shards of their state.
class TwoStages {
 public:
  explicit TwoStages(MeetingAxis data_axis = MeetingAxis::kReplicas) : data_axis_(data_axis) {}

  std::optional<SlowRank> After(int64_t ms, std::vector<int64_t> busy_ms) {
    now_ms_ += ms;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      RankSeen& seen = ranks_[i];
      seen.rank = static_cast<int>(i);
      seen.host = "h" + std::to_string(i);
      seen.page.step += ms / 100;
      seen.page.busy_ms += busy_ms[i] * ms / 100;
      seen.page.groups[static_cast<size_t>(data_axis_)].key = kStageKeys[i / 2];
    }
    return watch_.Look(now_ms_, ranks_);
  }

 private:
  MeetingAxis data_axis_;
  SlowWatch watch_;
  int64_t now_ms_ = 1000;
  std::vector<RankSeen> ranks_ = std::vector<RankSeen>(4);
};

TEST(SlowWatch, NamesARankAfterThreeWindowsWithItsShareAndOnce) {
  TwoStages ranks;
  const std::vector<int64_t> busy_ms = {30, 90, 10, 11};
  EXPECT_FALSE(ranks.After(0, busy_ms).has_value());
  EXPECT_FALSE(ranks.After(5000, busy_ms).has_value());
  EXPECT_FALSE(ranks.After(5000, busy_ms).has_value());
  const std::optional<SlowRank> slow = ranks.After(5000, busy_ms);
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->rank, 1);
  EXPECT_EQ(slow->host, "h1");
  EXPECT_NEAR(slow->share, 0.9, 1e-9);
  EXPECT_NEAR(slow->times, 3, 1e-9);
  EXPECT_EQ(slow->since_step, 0) << "it has been so from the first window on";
  EXPECT_FALSE(ranks.After(5000, busy_ms).has_value()) << "it is said once";
}

// ZeRO is the default: a data rank has no replica then.
TEST(SlowWatch, ComparesDataRanksThatShareTheirState) {
  TwoStages ranks(MeetingAxis::kShards);
  std::optional<SlowRank> slow;
  for (int i = 0; i < 4; ++i) slow = ranks.After(5000, {30, 90, 10, 11});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->rank, 1);
}

TEST(SlowWatch, SaysWhenNoneIsSlowAnyMore) {
  TwoStages ranks;
  for (int i = 0; i < 4; ++i) ranks.After(5000, {30, 90, 10, 11});
  EXPECT_FALSE(ranks.After(5000, {40, 41, 10, 11}).has_value());
  EXPECT_FALSE(ranks.After(5000, {40, 41, 10, 11}).has_value());
  const std::optional<SlowRank> slow = ranks.After(5000, {40, 41, 10, 11});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->rank, -1);
  EXPECT_EQ(slow->since_step, 200);
}

TEST(SlowWatch, ComparesNoStageWithAnotherOne) {
  TwoStages ranks;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(ranks.After(5000, {90, 91, 10, 11}).has_value());
}

TEST(SlowWatch, TakesNoShortOutlierForSlowness) {
  TwoStages ranks;
  for (int i = 0; i < 12; ++i) {
    const int64_t second_ms = i % 3 == 0 ? 30 : 90;
    EXPECT_FALSE(ranks.After(5000, {30, second_ms, 10, 11}).has_value()) << i;
  }
}

TEST(SlowWatch, TakesNoDifferenceThatIsSmallBesideTheStep) {
  TwoStages ranks;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(ranks.After(5000, {5, 20, 10, 11}).has_value());
}

}  // namespace
}  // namespace weft
