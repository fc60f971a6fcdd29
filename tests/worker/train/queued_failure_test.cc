// Failures that show late: of collectives that were queued and have returned, on a device that may
// never be through again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Every call succeeds; that one was aborted after it had returned shows when it is asked for.
class LateComm final : public PassingComm {
 public:
  LateComm(Comm& inner, const std::atomic<bool>& broken) : PassingComm(inner), broken_(broken) {}
  BackendStatus FirstFailure() const override {
    return broken_ ? BackendStatus{.code = 14, .text = "all-gather of group 3: a peer has left"}
                   : BackendStatus{};
  }

 private:
  const std::atomic<bool>& broken_;
};

// Well until it has been asked `times`.
class CountingComm final : public PassingComm {
 public:
  CountingComm(Comm& inner, int times) : PassingComm(inner), left_(times) {}
  BackendStatus FirstFailure() const override {
    return left_-- > 0 ? BackendStatus{} : BackendStatus{.code = 14, .text = "a peer has left"};
  }

 private:
  mutable int left_;
};

// Notes what is freed, among what else happens.
class FreeingDevice final : public PassingDevice {
 public:
  FreeingDevice(Device& inner, std::vector<std::string>& events)
      : PassingDevice(inner), events_(events) {}
  void Free(void* data, int64_t bytes) override {
    events_.push_back("freed");
    inner_.Free(data, bytes);
  }

 private:
  std::vector<std::string>& events_;
};

class QueuedFailure : public testing::Test {
 protected:
  QueuedFailure() : job_(SmallJob(folder_.path())) {
    job_.training.steps = 4;
    job_.checkpoint.interval = 2;
  }
  RankThreads Ranks(int dp) const {
    RankThreads run;
    run.assignment.job = job_;
    run.assignment.layout = MakeLayout(dp, 1, 1, k1f1b, 2, job_);
    run.assignment.run_folder = folder_.Make("run");
    return run;
  }

  TestFolder folder_;
  JobSpec job_;
};

TEST_F(QueuedFailure, LeavesNoReportOfItsStep) {
  std::atomic<bool> broken = false;
  RankThreads run = Ranks(2);
  run.stop_requested = [&](int, int64_t step) {
    if (step == 2) broken = true;
    return false;
  };
  run.wrap_comm = [&](int, Comm& inner) -> std::unique_ptr<Comm> {
    return std::make_unique<LateComm>(inner, broken);
  };
  const TrainingOutcome outcome = Train(run);
  EXPECT_THAT(outcome.reports, Each(SizeIs(1)));
  EXPECT_THAT(outcome.committed, IsEmpty());
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("all-gather of group 3: a peer has left"));
}

TEST_F(QueuedFailure, IsAskedForBeforeACheckpointToo) {
  constexpr int kOfCreateAndTwoSteps = 3;
  RankThreads run = Ranks(1);
  run.wrap_comm = [&](int, Comm& inner) -> std::unique_ptr<Comm> {
    return std::make_unique<CountingComm>(inner, kOfCreateAndTwoSteps);
  };
  const TrainingOutcome outcome = Train(run);
  EXPECT_THAT(outcome.reports, ElementsAre(SizeIs(2)));
  EXPECT_THAT(outcome.committed, IsEmpty());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("save: a peer has left"));
}

TEST_F(QueuedFailure, IsAskedForBeforeAValidationLossIsBelieved) {
  constexpr int kOfCreateAndAStep = 2;
  job_.data.valid = job_.data.train;
  job_.validation.interval = 1;
  job_.validation.steps = 1;
  RankThreads run = Ranks(1);
  run.wrap_comm = [&](int, Comm& inner) -> std::unique_ptr<Comm> {
    return std::make_unique<CountingComm>(inner, kOfCreateAndAStep);
  };
  const TrainingOutcome outcome = Train(run);
  EXPECT_THAT(outcome.reports, Each(IsEmpty()));
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("validate: a peer has left"));
}

// Freeing may wait for ever.
TEST_F(QueuedFailure, IsToldBeforeAnythingIsFreed) {
  const auto events_of = [&](int times, const std::string& checkpoint) {
    std::vector<std::string> events;
    RankThreads run = Ranks(1);
    run.assignment.load_checkpoint = checkpoint;
    run.wrap_comm = [&](int, Comm& inner) -> std::unique_ptr<Comm> {
      return std::make_unique<CountingComm>(inner, times);
    };
    run.wrap_device = [&](int, Device& inner) -> std::unique_ptr<Device> {
      return std::make_unique<FreeingDevice>(inner, events);
    };
    run.failed = [&](int, const absl::Status&) { events.emplace_back("told"); };
    Train(run);
    return events;
  };
  constexpr int kAlways = 1000;
  EXPECT_THAT(events_of(kAlways, ""), ElementsAre("freed"));
  EXPECT_THAT(events_of(0, ""), ElementsAre("told", "freed")) << "while it is created";
  EXPECT_THAT(events_of(2, ""), ElementsAre("told", "freed")) << "while it runs";
  EXPECT_THAT(events_of(kAlways, folder_.path() + "/none"), ElementsAre("told", "freed"));
}

}  // namespace
}  // namespace weft
