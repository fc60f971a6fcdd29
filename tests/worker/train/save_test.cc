// Saves that fail on real folders: training goes on, every rank learns of it, what was staged goes,
// the last good checkpoint stays, and what is not this run's is left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FailingSave : public testing::Test {
 protected:
  void SetUp() override {
    job_ = SmallJob(folder_.path());
    job_.checkpoint.interval = 4;
    job_.training.steps = 12;
    run_.assignment = {.job = job_,
                       .layout = MakeLayout(2, 1, 2, ScheduleKind::kOneForwardOneBackward, 2, job_),
                       .run_folder = folder_.Make("run"),
                       .load_checkpoint = "",
                       .run = {"00000000000000aa", {}}};
  }
  std::string Checkpoints() const { return run_.assignment.run_folder + "/checkpoint"; }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(Checkpoints(), error)) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  // Losses of the same job with nothing in its way.
  std::vector<std::string> Undisturbed() {
    RankThreads run = run_;
    run.shard_written = {};
    run.save_over = {};
    run.assignment.run_folder = folder_.Make("undisturbed");
    const TrainingOutcome outcome = Train(run);
    EXPECT_EQ(outcome.status(), absl::OkStatus());
    return Bits(outcome.reports.front());
  }

  const TestFolder folder_;
  JobSpec job_;
  RankThreads run_;
};

// A file where the stage folder of step 8 would be: no rank can write there.
TEST_F(FailingSave, IsTriedAgainAtTheNextInterval) {
  const std::string stage = StageFolder(Checkpoints(), "00000000000000aa", 1, 8);
  fs::create_directories(Checkpoints());
  std::ofstream(stage) << "in the way";
  const TrainingOutcome outcome = Train(run_);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_THAT(outcome.committed,
              ElementsAre(Checkpoints() + "/step-4", Checkpoints() + "/step-12"));
  EXPECT_THAT(outcome.warnings, SizeIs(4)) << "every rank knows";
  EXPECT_THAT(outcome.warnings, Each(AllOf(HasSubstr("step 8 is not saved"), HasSubstr(stage))));
  EXPECT_EQ(Bits(outcome.reports.front()), Undisturbed());
}

// One rank alone cannot write: its peers' shards are of no use and go at once.
TEST_F(FailingSave, OfOneRankIsTheSaveOfNone) {
  const std::string stage = StageFolder(Checkpoints(), "00000000000000aa", 1, 8);
  fs::create_directories(stage + "/" + ShardFileName(2));
  std::atomic<int> over = 0;
  run_.save_over = [&](int, const SaveId& save) {
    if (save.step == 8) ++over;
  };
  const TrainingOutcome outcome = Train(run_);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(over, 4);
  EXPECT_THAT(outcome.committed,
              ElementsAre(Checkpoints() + "/step-4", Checkpoints() + "/step-12"));
  EXPECT_THAT(outcome.warnings, Each(HasSubstr(ShardFileName(2))));
  EXPECT_EQ(Names(), (std::set<std::string>{"step-4", "step-12"})) << "the stage is gone";
}

TEST_F(FailingSave, NeverTouchesTheStepOfAnother) {
  fs::create_directories(Checkpoints() + "/step-8");
  std::ofstream(Checkpoints() + "/step-8/__0_0.distcp") << "torchtitan's";
  const TrainingOutcome outcome = Train(run_);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_THAT(outcome.warnings, Each(HasSubstr("step-8 is another program's")));
  EXPECT_TRUE(fs::exists(Checkpoints() + "/step-8/__0_0.distcp"));
  EXPECT_EQ(Names(), (std::set<std::string>{"step-4", "step-8", "step-12"}));
}

// The last step has no next interval: it is tried until there is room.
TEST_F(FailingSave, AtTheEndIsTriedUntilThereIsRoom) {
  const std::string stage = StageFolder(Checkpoints(), "00000000000000aa", 1, 12);
  fs::create_directories(Checkpoints());
  std::ofstream(stage) << "in the way";
  run_.save_over = [&](int rank, const SaveId& save) {
    if (rank == 0 && save.number == 5) fs::remove(stage);  // steps 4 and 8, then 12 three times
  };
  const TrainingOutcome outcome = Train(run_);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.committed.back(), Checkpoints() + "/step-12");
  EXPECT_THAT(outcome.warnings, testing::SizeIs(testing::Ge(12u)));
}

TEST_F(FailingSave, AtTheEndForGoodFailsWithTheReason) {
  const std::string stage = StageFolder(Checkpoints(), "00000000000000aa", 1, 12);
  fs::create_directories(Checkpoints());
  std::ofstream(stage) << "in the way";
  const TrainingOutcome outcome = Train(run_);
  for (const absl::Status& status : outcome.statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("step 12, the last one, could not be saved"), HasSubstr(stage)));
  }
  EXPECT_THAT(Names(), Contains("step-8"));
}

TEST_F(FailingSave, OnAStopStillStops) {
  const std::string stage = StageFolder(Checkpoints(), "00000000000000aa", 1, 6);
  fs::create_directories(Checkpoints());
  std::ofstream(stage) << "in the way";
  run_.stop_requested = [](int rank, int64_t step) { return rank == 3 && step == 6; };
  const TrainingOutcome outcome = Train(run_);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_TRUE(outcome.results.front().stopped);
  EXPECT_THAT(outcome.committed, ElementsAre(Checkpoints() + "/step-4"));
}

// Ranks that are done early wait for the slow one where no collective's deadline runs: all others
// come to where the end of the save is waited for, or the shards, before the slow one has written.
TEST_F(FailingSave, OfASlowDiskIsWaitedForOutsideOfCollectives) {
  std::atomic<int> waiting = 0;
  run_.awaits_save_over = [&](int, const SaveId& save) {
    if (save.step == 4) ++waiting;
  };
  bool all_wait = false;
  run_.shard_written = [&](int rank, const SaveId& save) {
    if (save.step != 4) return;
    if (rank == 0) ++waiting;  // it waits for the shards next
    // Less than a collective's deadline, which would end a rank that waits in one.
    for (int i = 0; rank == 2 && i < 1500 && !all_wait; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      all_wait = waiting == 3;
    }
  };
  const TrainingOutcome outcome = Train(run_);
  EXPECT_TRUE(all_wait);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_THAT(outcome.committed, SizeIs(3));
}

// A full disk, as a file size limit shows it: nothing torn is left, the steps go on to the same
// bits.
TEST_F(FailingSave, OnAFullDiskKeepsTrainingToTheSameBits) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlim_t whole = limit.rlim_cur;
  const auto limit_to = [&](rlim_t bytes) {
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  std::mutex mutex;
  run_.save_over = [&](int rank, const SaveId& save) {
    const std::lock_guard lock(mutex);
    if (rank == 0 && save.step == 4) limit_to(20000);
    if (rank == 0 && save.step == 8) limit_to(whole);
  };
  const TrainingOutcome outcome = Train(run_);
  limit_to(whole);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_THAT(outcome.committed,
              ElementsAre(Checkpoints() + "/step-4", Checkpoints() + "/step-12"));
  EXPECT_THAT(outcome.warnings,
              Contains(AllOf(HasSubstr("step 8 is not saved"), HasSubstr("File too large"))));
  EXPECT_EQ(Names(), (std::set<std::string>{"step-4", "step-12"}));
  EXPECT_EQ(Bits(outcome.reports.front()), Undisturbed());
}

}  // namespace
}  // namespace weft
