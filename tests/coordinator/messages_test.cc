#include "coordinator/messages.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// A job of which generation 3 trains, before and after `fact`.
std::vector<proto::JobEvent> EventsOfSlowness(const RankSlow& fact) {
  Job job;
  job.id = "job-1";
  job.phase = Phase::kRunning;
  job.reason = "training";
  job.generation.number = 3;
  job.generation.phase = GenerationPhase::kTraining;
  const Watched before = WatchedPart(job);
  const Job after = Apply(job, fact);
  return EventsOf(before, after, {.revision = 7, .unix_ms = 1000, .event = fact});
}

TEST(EventsOf, ASlowRankIsOneOfItsOwnBesideThePhase) {
  const auto events = EventsOfSlowness({.generation = 3,
                                        .rank = 2,
                                        .host = "h2",
                                        .share_percent = 92,
                                        .times_tenths = 31,
                                        .since_step = 40});
  ASSERT_EQ(events.size(), 2u);
  ASSERT_TRUE(events[0].has_rank_slow());
  EXPECT_EQ(events[0].revision(), 7);
  EXPECT_EQ(events[0].generation(), 3);
  EXPECT_EQ(events[0].unix_ms(), 1000);
  const proto::SlowRank& slow = events[0].rank_slow();
  EXPECT_EQ(slow.rank(), 2);
  EXPECT_EQ(slow.host(), "h2");
  EXPECT_DOUBLE_EQ(slow.share(), 0.92);
  EXPECT_DOUBLE_EQ(slow.times(), 3.1);
  EXPECT_EQ(slow.since_step(), 40);
  EXPECT_TRUE(events[1].has_phase());
}

TEST(EventsOf, ThatNoRankIsSlowAnyMoreIsOneToo) {
  const auto events = EventsOfSlowness({3, -1, "", 0, 0, 90});
  ASSERT_EQ(events.size(), 2u);
  ASSERT_TRUE(events[0].has_rank_slow());
  EXPECT_EQ(events[0].rank_slow().rank(), -1);
  EXPECT_EQ(events[0].rank_slow().since_step(), 90);
}

}  // namespace
}  // namespace weft
