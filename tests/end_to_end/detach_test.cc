// A run without a terminal: left with --detach, looked at, followed, stopped from elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TinyRun::Outcome Say(TinyRun& run, const std::vector<std::string>& arguments) {
  const std::unique_ptr<Child> weft = run.Weft(arguments);
  return TinyRun::Finish(*weft, 60);
}

TEST(Detached, RunGoesOnIsSeenAndStopsOnRequest) {
  TinyRun run;
  // Long enough that it cannot end before it is told to.
  const TinyRun::Outcome detached = run.RunToEnd({"--detach", "--set", "training.steps=5000"}, 20);
  ASSERT_EQ(detached.exit_code, 0) << detached.err;
  EXPECT_THAT(detached.out, HasSubstr("weft attach " + run.run_folder()));
  run.WaitForStep(12);
  const TinyRun::Outcome status = Say(run, {"status", run.run_folder()});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("RUNNING"));
  const TinyRun::Outcome stopped = Say(run, {"stop", run.run_folder()});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  const int64_t last = run.LastStep();
  EXPECT_LT(last, 5000);
  EXPECT_EQ(run.Checkpoints().count("step-" + std::to_string(last)), 1u) << last;
  run.ExpectNothingLeft();
  EXPECT_THAT(Say(run, {"status", run.run_folder()}).out, HasSubstr("not running"));
}

TEST(Detached, RunIsFollowedToItsEndAndCanBeLeftAgain) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--detach"}, 20).exit_code, 0);
  run.WaitForStep(5);
  {
    const std::unique_ptr<Child> watcher = run.Weft({"attach", run.job_path()});
    SleepSeconds(0.3);
    watcher->Signal(SIGINT);  // leaves; the run goes on
    TinyRun::Finish(*watcher, 10);
  }
  const TinyRun::Outcome followed = Say(run, {"attach", run.run_folder()});
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(run.LastStep(), TinyRun::kSteps);
  EXPECT_EQ(run.Curve(), UndisturbedCurve());
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
