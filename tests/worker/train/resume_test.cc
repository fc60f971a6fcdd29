#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/verify.h"
#include "plan/estimate/goodput.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/checkpoint_io.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The part of `outcome`'s losses from `step` on.
std::vector<double> LossesFrom(const TrainingOutcome& outcome, int64_t step) {
  const std::vector<double> losses = outcome.losses();
  return {losses.begin() + step - 1, losses.end()};
}

std::vector<std::string> BitsFrom(const TrainingOutcome& outcome, int64_t step) {
  const std::vector<std::string> bits = Bits(outcome.reports.front());
  return {bits.begin() + step - 1, bits.end()};
}

JobSpec JobThatSaves(const TestFolder& folder, int64_t interval) {
  JobSpec job = SmallJob(folder.path());
  job.checkpoint.interval = interval;
  return job;
}

std::string Step10(const std::string& run_folder) {
  return run_folder + "/checkpoint/step-10";
}

TEST(Resume, OnTheSameLayoutContinuesBitForBit) {
  for (const bool with_sgd : {false, true}) {
    const TestFolder folder;
    JobSpec job = JobThatSaves(folder, 10);
    job.lr_scheduler.type = LrSchedule::kCosine;
    if (with_sgd) job.optimizer.name = OptimizerKind::kSgd;
    for (const Layout& layout :
         {MakeLayout(1, 1, 1, k1f1b, 4, job), MakeLayout(2, 2, 2, k1f1b, 2, job)}) {
      const std::string run_folder = folder.Make(LayoutText(layout));
      const TrainingOutcome whole = TrainWith(job, layout, run_folder);
      ASSERT_EQ(whole.status(), absl::OkStatus());
      const TrainingOutcome resumed =
          TrainWith(job, layout, folder.Make("resumed"), Step10(run_folder));
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      ASSERT_EQ(resumed.reports.front().size(), 10U);
      EXPECT_EQ(Bits(resumed.reports.front()), BitsFrom(whole, 11)) << LayoutText(layout);
      EXPECT_EQ(resumed.weights, whole.weights);
    }
  }
}

TEST(Resume, SaysByWhatElseTheCheckpointWasComputed) {
  const TestFolder folder;
  JobSpec job = JobThatSaves(folder, 10);
  job.training.steps = 10;
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = MakeLayout(2, 1, 1, k1f1b, 4, job),
                    .run_folder = folder.Make("run"),
                    .load_checkpoint = "",
                    .run = {"00000000000000aa", {}}};
  run.computes_by = {{"libraries", "OpenBLAS 1"}, {"device", "H100"}};
  const TrainingOutcome first = Train(run);
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_THAT(first.differences, testing::Each(testing::IsEmpty()));
  run.assignment.load_checkpoint = Step10(run.assignment.run_folder);
  run.assignment.job.training.steps = 11;
  const auto resumed = [&](std::map<std::string, std::string> computes_by) {
    run.computes_by = std::move(computes_by);
    const TrainingOutcome outcome = Train(run);
    EXPECT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_THAT(outcome.differences[1], testing::IsEmpty()) << "rank 0 speaks for all";
    return outcome.differences[0];
  };
  EXPECT_THAT(resumed({{"libraries", "OpenBLAS 1"}, {"device", "H100"}}), testing::IsEmpty());
  EXPECT_THAT(resumed({{"libraries", "OpenBLAS 2"}, {"device", "H100"}}),
              testing::ElementsAre(testing::StartsWith(
                  "checkpoint of step 10: computed_by.libraries was \"OpenBLAS 1\", but is now "
                  "\"OpenBLAS 2\"; ")));
  EXPECT_THAT(resumed({{"libraries", "OpenBLAS 1"}, {"instruction set", "new to it"}}),
              testing::IsEmpty())
      << "what the checkpoint does not state";
  // On other devices than the CPU bits repeat where that is asked for.
  run.assignment.job.cluster.device.backend = BackendKind::kCuda;
  EXPECT_THAT(resumed({{"libraries", "OpenBLAS 2"}}), testing::IsEmpty());
  run.assignment.job.deterministic = true;
  EXPECT_THAT(resumed({{"device", "H200"}}), testing::SizeIs(1));
}

TEST(Resume, OnAnyOtherLayoutContinuesTheSameRun) {
  const TestFolder folder;
  const JobSpec job = JobThatSaves(folder, 10);
  const Layout layouts[] = {MakeLayout(1, 1, 1, k1f1b, 2, job), MakeLayout(2, 1, 1, k1f1b, 2, job),
                            MakeLayout(1, 4, 1, k1f1b, 4, job), MakeLayout(1, 1, 4, kGpipe, 2, job),
                            MakeLayout(2, 2, 2, k1f1b, 1, job)};
  for (const Layout& from : layouts) {
    const std::string run_folder = folder.Make(LayoutText(from));
    const TrainingOutcome whole = TrainWith(job, from, run_folder);
    ASSERT_EQ(whole.status(), absl::OkStatus());
    for (const Layout& to : layouts) {
      const TrainingOutcome resumed =
          TrainWith(job, to, folder.Make("resumed"), Step10(run_folder));
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      EXPECT_LT(RelativeDifference(resumed.losses(), LossesFrom(whole, 11)), 1e-6)
          << LayoutText(from) << " -> " << LayoutText(to);
    }
  }
}

TEST(Resume, OnAnyOtherScheduleContinuesTheSameRun) {
  const TestFolder folder;
  const JobSpec job = JobThatSaves(folder, 10);
  Layout interleaved = MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 2, job);
  interleaved.virtual_stages = 2;
  Layout uneven = MakeLayout(2, 1, 2, ScheduleKind::kZeroBubbleH1, 1, job);
  uneven.layers_per_stage = {3, 1};
  const Layout layouts[] = {MakeLayout(1, 2, 1, k1f1b, 2, job), interleaved, uneven};
  for (const Layout& from : layouts) {
    const std::string run_folder = folder.Make(LayoutText(from));
    const TrainingOutcome whole = TrainWith(job, from, run_folder);
    ASSERT_EQ(whole.status(), absl::OkStatus());
    for (const Layout& to : layouts) {
      const TrainingOutcome resumed =
          TrainWith(job, to, folder.Make("resumed"), Step10(run_folder));
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      EXPECT_LT(RelativeDifference(resumed.losses(), LossesFrom(whole, 11)), 1e-6)
          << LayoutText(from) << " -> " << LayoutText(to);
    }
  }
}

TEST(Resume, OfAFinishedRunDoesNothing) {
  const TestFolder folder;
  JobSpec job = JobThatSaves(folder, 10);
  job.training.steps = 10;
  const Layout layout = MakeLayout(2, 1, 1, k1f1b, 4, job);
  const std::string run_folder = folder.Make("run");
  ASSERT_EQ(TrainWith(job, layout, run_folder).status(), absl::OkStatus());
  const TrainingOutcome again = TrainWith(job, layout, folder.Make("again"), Step10(run_folder));
  ASSERT_EQ(again.status(), absl::OkStatus());
  EXPECT_EQ(again.results.front().step, 10);
  EXPECT_FALSE(again.results.front().stopped);
  EXPECT_TRUE(again.reports.front().empty());
  EXPECT_TRUE(again.committed.empty());
}

TEST(Save, KeepsTheNewestCheckpointsAndTheLast) {
  const TestFolder folder;
  JobSpec job = JobThatSaves(folder, 4);
  job.training.steps = 14;
  job.checkpoint.keep_latest_k = 2;
  const std::string run_folder = folder.Make("run");
  const TrainingOutcome outcome = TrainWith(job, MakeLayout(1, 1, 2, k1f1b, 4, job), run_folder);
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  const std::string checkpoints = run_folder + "/checkpoint/step-";
  EXPECT_THAT(outcome.committed, testing::ElementsAre(checkpoints + "4", checkpoints + "8",
                                                      checkpoints + "12", checkpoints + "14"));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(run_folder + "/checkpoint")) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre("step-12", "step-14"));
}

// Each box is written by one of the ranks that hold it, the work is shared, and plans count what is
// written: master weights and moments in fp32, whatever the step computes in.
TEST(Save, DealsTheBoxesOverDataRanks) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    SCOPED_TRACE(WordOf(precision));
    const TestFolder folder;
    JobSpec job = JobThatSaves(folder, 0);
    job.training.steps = 1;
    job.training.mixed_precision = precision;
    const std::string run_folder = folder.Make("run");
    ASSERT_EQ(TrainWith(job, MakeLayout(4, 1, 1, k1f1b, 2, job), run_folder).status(),
              absl::OkStatus());
    const absl::StatusOr<Manifest> manifest = VerifyCheckpoint(run_folder + "/checkpoint/step-1");
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->next_sample, job.training.global_batch_size);
    ASSERT_EQ(manifest->shards.size(), 4U);
    Question question;
    question.model = job.model;
    question.numerics.precision = precision;
    question.numerics.optimizer = job.optimizer.states();
    const int64_t values_bytes = CheckpointBytes(question);
    int64_t sum = 0;
    for (const ShardRecord& shard : manifest->shards) {
      sum += shard.bytes;
      EXPECT_GT(shard.bytes, values_bytes / 5) << shard.file;
    }
    EXPECT_GT(sum, values_bytes);
    EXPECT_LT(sum, values_bytes + (int64_t{64} << 10)) << "more than the headers is written twice";
  }
}

class RefusedResume : public testing::Test {
 protected:
  void SetUp() override {
    job_ = JobThatSaves(folder_, 10);
    job_.training.steps = 10;
    layout_ = MakeLayout(1, 1, 2, k1f1b, 4, job_);
    ASSERT_EQ(TrainWith(job_, layout_, run_folder_).status(), absl::OkStatus());
    job_.training.steps = 20;
  }

  absl::Status Resume() {
    return TrainWith(job_, layout_, folder_.Make("resumed"), Step10(run_folder_)).statuses.front();
  }

  const TestFolder folder_;
  const std::string run_folder_ = folder_.Make("run");
  JobSpec job_;
  Layout layout_;
};

TEST_F(RefusedResume, NamesTheDataFileThatChanged) {
  std::ofstream(job_.data.train[0].path, std::ios::app) << "more text";
  const absl::Status status = Resume();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("data.train[0]"), testing::HasSubstr("train.txt"),
                             testing::HasSubstr("--fresh")));
}

TEST_F(RefusedResume, ButADataFileMayMove) {
  const std::string moved = folder_.path() + "/moved.txt";
  fs::rename(job_.data.train[0].path, moved);
  job_.data.train[0].path = moved;
  EXPECT_EQ(Resume(), absl::OkStatus());
}

TEST_F(RefusedResume, NamesTheSeedThatChanged) {
  job_.training.seed = 5;
  EXPECT_EQ(Resume(), absl::FailedPreconditionError(
                          "checkpoint of step 10: training.seed was 1234, but is now 5; set it "
                          "back, or start anew with --fresh"));
}

TEST_F(RefusedResume, NamesTheOptimizerThatChanged) {
  job_.optimizer.name = OptimizerKind::kSgd;
  EXPECT_EQ(Resume().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RefusedResume, NeverLoadsAnAlteredShard) {
  const std::string shard = Step10(run_folder_) + "/rank-00001.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-100, std::ios::end);
  const auto byte = static_cast<char>(file.peek() ^ 1);
  file.seekp(-100, std::ios::end);
  file.put(byte);
  file.close();
  // Ranks that read none of it wait for those that do.
  const TrainingOutcome outcome =
      TrainWith(job_, layout_, folder_.Make("resumed"), Step10(run_folder_));
  int found = 0;
  for (const absl::Status& status : outcome.statuses) {
    EXPECT_FALSE(status.ok());
    if (!absl::IsDataLoss(status)) continue;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank-00001.safetensors: xxh3"));
    ++found;
  }
  EXPECT_GT(found, 0);
  for (const auto& reports : outcome.reports) EXPECT_TRUE(reports.empty());
}

TEST_F(RefusedResume, NeverLoadsAnotherModel) {
  job_.model.ffn_size = 128;
  EXPECT_EQ(Resume().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weft
