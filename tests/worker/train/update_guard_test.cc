#include "worker/train/update_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(UpdateGuard, AdmitsWhatIsFinite) {
  UpdateGuard guard(1);
  EXPECT_TRUE(guard.Admit(1, 2.5, 0));
  EXPECT_EQ(guard.CheckGoingOn(), absl::OkStatus());
  EXPECT_EQ(guard.progress().skipped_steps, 0);
}

TEST(UpdateGuard, SkipsAndCountsWhateverIsNot) {
  const std::pair<double, double> cases[] = {
      {kNotANumber, 1}, {1, kNotANumber}, {kInf, 1}, {1, kInf}, {-kInf, 1}};
  for (const auto& [loss, norm] : cases) {
    UpdateGuard guard(2);
    EXPECT_FALSE(guard.Admit(7, loss, norm)) << loss << " " << norm;
    EXPECT_EQ(guard.progress().skipped_steps, 1);
    EXPECT_EQ(guard.CheckGoingOn(), absl::OkStatus());
  }
}

TEST(UpdateGuard, EndsTheRunAfterSoManyInARowWithTheCause) {
  UpdateGuard guard(2);
  EXPECT_FALSE(guard.Admit(1, kNotANumber, 1));
  EXPECT_TRUE(guard.Admit(2, 1, 1));  // starts the count again, not the total
  EXPECT_FALSE(guard.Admit(3, kNotANumber, 1));
  EXPECT_EQ(guard.CheckGoingOn(), absl::OkStatus());
  EXPECT_FALSE(guard.Admit(4, 1, kInf));
  EXPECT_EQ(guard.progress().skipped_steps, 3);
  const absl::Status over = guard.CheckGoingOn();
  EXPECT_EQ(over.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(over.message()),
              testing::AllOf(testing::HasSubstr("gradient norm of step 4 is inf"),
                             testing::HasSubstr("2 steps in a row were skipped"),
                             testing::HasSubstr("training.max_consecutive_skipped_steps")));
}

TEST(UpdateGuard, BlamesTheWeightsItStartsFromUntilTheFirstUpdate) {
  const auto cure_of = [](const UpdateGuard& guard) {
    return std::string(guard.CheckGoingOn().message());
  };
  UpdateGuard given(1);
  EXPECT_FALSE(given.Admit(1, kNotANumber, kNotANumber));
  EXPECT_THAT(cure_of(given), testing::HasSubstr("no update was made yet"));
  EXPECT_THAT(cure_of(given), testing::HasSubstr("model.init_from"));
  EXPECT_THAT(cure_of(given), testing::Not(testing::HasSubstr("optimizer.lr")));
  UpdateGuard updated(1);
  EXPECT_TRUE(updated.Admit(1, 2, 1));
  EXPECT_FALSE(updated.Admit(2, kNotANumber, 1));
  EXPECT_THAT(cure_of(updated), testing::HasSubstr("lower optimizer.lr"));
  UpdateGuard resumed(1);
  resumed.Resume({});
  EXPECT_FALSE(resumed.Admit(8, 1, kInf));
  EXPECT_THAT(cure_of(resumed), testing::HasSubstr("lower optimizer.lr"));
}

TEST(UpdateGuard, CountsOnFromACheckpoint) {
  UpdateGuard guard(3);
  guard.Resume({.skipped_steps = 9, .skipped_in_a_row = 2});
  EXPECT_FALSE(guard.Admit(20, kNotANumber, 1));
  EXPECT_EQ(guard.progress().skipped_steps, 10);
  EXPECT_FALSE(guard.CheckGoingOn().ok());
}

}  // namespace
}  // namespace weft
