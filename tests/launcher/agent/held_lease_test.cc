// These tests say for how long ranks may go on: by leases, and without a coordinator.
#include "launcher/agent/held_lease.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using ForRanks = HeldLease::ForRanks;

TEST(HeldLease, IsProlongedFromWhenItWasAskedFor) {
  HeldLease lease;
  EXPECT_EQ(lease.end_ms(), 0);
  lease.BeginStream();
  EXPECT_EQ(lease.Take(1000, 8000), (ForRanks{7400, 1000, false}));
  EXPECT_EQ(lease.end_ms(), 9000);
  EXPECT_EQ(lease.Take(500, 8000), (ForRanks{6900, 1000, false})) << "an older answer";
  EXPECT_EQ(lease.end_ms(), 9000) << "it shortens nothing";
  EXPECT_EQ(lease.ranks_stop_ms(), 7400);
}

TEST(HeldLease, LastsThroughAnAbsenceAndNoLongerThanTheFirstLeaseAfterIt) {
  HeldLease lease;
  lease.BeginStream();
  lease.Take(1000, 8000);
  EXPECT_EQ(lease.TakeAbsence(600000), (ForRanks{601000, 1000, false, true}));
  EXPECT_TRUE(lease.has_promise());
  EXPECT_EQ(lease.ranks_stop_ms(), 601000);
  EXPECT_EQ(lease.end_ms(), 602600) << "ranks have stopped before";
  EXPECT_EQ(lease.Take(2000, 8000), std::nullopt) << "from the one that is about to end";
  EXPECT_EQ(lease.end_ms(), 602600);
  lease.BeginStream();
  EXPECT_TRUE(lease.has_promise());
  EXPECT_EQ(lease.Take(50000, 8000), (ForRanks{56400, 1000, true}));
  EXPECT_FALSE(lease.has_promise());
  EXPECT_EQ(lease.end_ms(), 58000);
  EXPECT_EQ(lease.Take(51000, 8000), (ForRanks{57400, 1000, true}))
      << "a rank that was not there hears of it, too";
}

TEST(HeldLease, IsNotMadeOfAPromiseAlone) {
  HeldLease lease;
  EXPECT_EQ(lease.TakeAbsence(600000), std::nullopt);
  lease.Take(1000, 8000);
  EXPECT_EQ(lease.TakeAbsence(0), std::nullopt);
  EXPECT_EQ(lease.TakeAbsence(int64_t{1} << 60)->stop_at_ms, 1000 + HeldLease::kLongestMs);
}

}  // namespace
}  // namespace weft
