#include "coordinator/service/call_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr char kAnn[] = "ann (submitter, uid 1000)";
constexpr char kBob[] = "bob (viewer)";

int CallsUntilRefused(CallLimits& limits, const std::string& caller, int64_t now_ms) {
  int calls = 0;
  while (calls < 100000 && limits.TakeCall(caller, now_ms).ok()) ++calls;
  return calls;
}

TEST(CallLimits, LetsEachCallerCallSoOftenAndNoMore) {
  CallLimits limits({.calls_per_s = 100});
  EXPECT_EQ(CallsUntilRefused(limits, kAnn, 5000), 200);
  const absl::Status refused = limits.TakeCall(kAnn, 5000);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(),
              HasSubstr("ann (submitter, uid 1000) makes more than 100 calls a second"));
  EXPECT_EQ(CallsUntilRefused(limits, kBob, 5000), 200) << "nobody pays for another one";
  EXPECT_EQ(CallsUntilRefused(limits, kAnn, 5500), 50);
  EXPECT_EQ(CallsUntilRefused(limits, kAnn, 500000), 200) << "never more at once";
}

TEST(CallLimits, MayBeNone) {
  CallLimits limits({.calls_per_s = 0});
  EXPECT_EQ(CallsUntilRefused(limits, kAnn, 0), 100000);
}

TEST(CallLimits, CountsStreamsUntilTheyAreClosed) {
  CallLimits limits({.streams = 2});
  absl::StatusOr<CallLimits::Held> first = limits.TakeStream(kAnn);
  const absl::StatusOr<CallLimits::Held> second = limits.TakeStream(kAnn);
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status refused = limits.TakeStream(kAnn).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("has 2 streams open already, 2 at most"));
  EXPECT_TRUE(limits.TakeStream(kBob).ok());
  // A caller that is idle for long is not forgotten while its streams are open.
  EXPECT_TRUE(limits.TakeCall(kBob, 1000000).ok());
  EXPECT_TRUE(limits.TakeCall(kBob, 2000000).ok());
  EXPECT_FALSE(limits.TakeStream(kAnn).ok());
  first->reset();
  EXPECT_TRUE(limits.TakeStream(kAnn).ok());
}

TEST(CallLimits, LetsPlansBeMadeOneByOneForACallerAndAFewForAll) {
  CallLimits limits({.plans = 1, .plans_of_all = 2});
  absl::StatusOr<CallLimits::Held> first = limits.TakePlan(kAnn);
  EXPECT_TRUE(absl::IsResourceExhausted(limits.TakePlan(kAnn).status()));
  const absl::StatusOr<CallLimits::Held> second = limits.TakePlan(kBob);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(limits.TakePlan("eve (viewer)").status().message(),
              HasSubstr("2 plans are being made already"));
  first->reset();
  EXPECT_TRUE(limits.TakePlan("eve (viewer)").ok());
  EXPECT_TRUE(limits.TakePlan(kAnn).ok());
}

}  // namespace
}  // namespace weft
