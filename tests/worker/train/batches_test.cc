#include "worker/train/batches.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/thread_comm.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

std::vector<int32_t> IdsOf(const Batches& batches) {
  return {batches.tokens().ids.begin(), batches.tokens().ids.end()};
}

TEST(Batches, AreThoseOfTheStepHoweverEarlyTheyAreRead) {
  const TestFolder folder;
  const JobSpec job = SmallJob(folder.path());
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const std::vector<std::unique_ptr<Comm>> comms = MakeThreadComms(1);
  const auto groups = RankGroups::Create(layout, 1, *comms[0]);
  ASSERT_TRUE(groups.ok()) << groups.status();
  const auto open = [&] {
    absl::StatusOr<Dataset> data = Dataset::Open(job, /*train=*/true);
    EXPECT_TRUE(data.ok()) << data.status();
    return Batches(*std::move(data), job, **groups);
  };
  Batches in_turn = open();
  Batches ahead = open();
  ASSERT_TRUE(ahead.Read(1).ok());
  for (int64_t step = 1; step < 4; ++step) {
    ASSERT_TRUE(in_turn.Read(step).ok());
    ASSERT_TRUE(ahead.Read(step).ok());
    EXPECT_EQ(IdsOf(ahead), IdsOf(in_turn)) << "step " << step;
    const std::vector<int32_t> before = IdsOf(ahead);
    ahead.ReadAhead(step + 1);
    EXPECT_NE(IdsOf(ahead), before) << "nothing was read ahead of step " << step + 1;
  }
  ASSERT_TRUE(ahead.Read(1).ok());  // a step back
  ASSERT_TRUE(in_turn.Read(1).ok());
  EXPECT_EQ(IdsOf(ahead), IdsOf(in_turn));
}

}  // namespace
}  // namespace weft
