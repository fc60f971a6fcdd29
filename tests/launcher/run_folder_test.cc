#include "launcher/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "launcher/job_yaml.h"
#include "process/version.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class RunFolder : public ::testing::Test {
 protected:
  JobSpec Job(std::vector<std::string> sets = {}) {
    sets.push_back("cluster.slots=1");
    for (const char* degree : {"dp", "pp"})
      sets.push_back(std::string("parallelism.") + degree + "=1");
    const auto file =
        ReadJobText(kGoodJob, folder_.job(), {.sets = std::move(sets), .check_files = true});
    EXPECT_TRUE(file.ok()) << file.status();
    return Resolve(file->job, Layout{.micro_batch_size = 8});
  }
  std::vector<std::string> Data(const JobSpec& job) { return *Fingerprints(job); }
  std::string run() const { return folder_.path() + "/outputs/small"; }
  JobFolder folder_;
};

TEST_F(RunFolder, IsHeldByOneRunAtATime) {
  EXPECT_FALSE(IsRunning(run()));
  {
    const auto lock = RunLock::Take(run());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE(lock->WritePid(4242).ok());
    EXPECT_TRUE(IsRunning(run()));
    const auto second = RunLock::Take(run());
    EXPECT_TRUE(absl::IsUnavailable(second.status()));
    EXPECT_THAT(second.status().message(), HasSubstr("is in use by another weft (pid 4242)"));
  }
  EXPECT_FALSE(IsRunning(run()));
  EXPECT_TRUE(RunLock::Take(run()).ok());
}

TEST_F(RunFolder, MovesAnOldRunAsideAndDeletesNothing) {
  const JobSpec job = Job();
  ASSERT_TRUE(RunLock::Take(run()).ok());
  EXPECT_EQ(*MoveAside(job, run()), "");  // nothing was run yet
  for (int n = 1; n <= 2; ++n) {
    ASSERT_TRUE(RunLock::Take(run()).ok());
    ASSERT_TRUE(WriteWhole(run() + "/resolved.yaml", "x").ok());
    EXPECT_EQ(*MoveAside(job, run()), run() + ".old-" + std::to_string(n));
    EXPECT_TRUE(std::filesystem::exists(run() + ".old-" + std::to_string(n) + "/resolved.yaml"));
  }
}

TEST_F(RunFolder, GoesOnFromTheNewestCheckpointThatVerifies) {
  const JobSpec job = Job();
  const std::string folder = CheckpointFolder(job);
  EXPECT_EQ(folder, run() + "/checkpoint");
  for (const int64_t step : {5, 10}) {
    const std::vector<float> values = {1, 2};
    const BoxToSave box{"w", {2}, {0}, {2}, values};
    std::filesystem::create_directories(folder);
    const auto shard = WriteShard(StageFolder(folder, 1, step), 0, {box});
    ASSERT_TRUE(shard.ok()) << shard.status();
    Manifest manifest;
    manifest.step = step;
    manifest.generation = 1;
    manifest.shards = {*shard};
    ASSERT_TRUE(CommitCheckpoint(folder, manifest).ok());
  }
  auto going_on = Continue(job, Data(job), std::nullopt);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 10);
  EXPECT_EQ(going_on->load_checkpoint, folder + "/step-10");
  EXPECT_THAT(going_on->notes, testing::IsEmpty());

  ASSERT_EQ(truncate((folder + "/step-10/rank-00000.safetensors").c_str(), 20), 0);
  going_on = Continue(job, Data(job), std::nullopt);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 5);
  EXPECT_THAT(going_on->notes, testing::IsEmpty());
  EXPECT_THAT(going_on->damaged, testing::ElementsAre(HasSubstr("step-10: ")));

  going_on = Continue(Job({"checkpoint.resume=none"}), Data(job), std::nullopt);
  EXPECT_EQ(going_on->after_step, 0);
}

TEST_F(RunFolder, RefusesAnotherMathematicsWithTheListAndTakesAnotherExecution) {
  const JobSpec job = Job();
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  const auto going_on = [&](const JobSpec& now) {
    return Continue(now, *Fingerprints(now), PreviousRun{job, record});
  };
  EXPECT_THAT(going_on(job)->notes, testing::IsEmpty());
  EXPECT_THAT(going_on(Job({"checkpoint.interval=3"}))->notes,
              testing::ElementsAre("checkpoint.interval: 0 -> 3"));
  const auto refused = going_on(Job({"optimizer.lr=0.5", "training.seed=1"}));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_EQ(
      refused.status().message(),
      "this is another run than the one in " + run() +
          ":\n  training.seed: 42 -> 1\n  optimizer.lr: 0.001 -> 0.5\nundo these changes, give "
          "the run another job.name, or start anew with --fresh (the old run is moved aside)");
}

// A cosine decays until training.steps unless told otherwise.
TEST_F(RunFolder, SaysHowToGoOnAlongTheSameCurveWithOtherSteps) {
  const auto resolved = [&](std::vector<std::string> sets) {
    sets.emplace_back("lr_scheduler.type=cosine");
    return Resolve(Job(std::move(sets)), Layout{});
  };
  const JobSpec job = resolved({});
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  for (const std::string steps : {"12", "40"}) {
    const JobSpec other = resolved({"training.steps=" + steps});
    EXPECT_THAT(Continue(other, Data(job), PreviousRun{job, record}).status().message(),
                HasSubstr("lr_scheduler.decay_steps: 20 -> " + steps +
                          " (it follows training.steps unless it is given; to go on along the same "
                          "curve, set lr_scheduler.decay_steps: 20)"));
    const JobSpec cured = resolved({"training.steps=" + steps, "lr_scheduler.decay_steps=20"});
    const auto going_on = Continue(cured, Data(job), PreviousRun{job, record});
    EXPECT_TRUE(going_on.ok()) << going_on.status();
  }
}

TEST_F(RunFolder, NoticesDataThatChangedAndDataThatOnlyMoved) {
  const JobSpec job = Job();
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  std::filesystem::copy(folder_.path() + "/corpus.txt", folder_.path() + "/moved.txt");
  const JobSpec moved = Job({"data.train=[{path: moved.txt}]"});
  const auto accepted = Continue(moved, Data(moved), PreviousRun{job, record});
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_EQ(accepted->notes.size(), 1);

  folder_.Write("corpus.txt", std::string(4000, 'b'));
  const auto refused = Continue(job, Data(job), PreviousRun{job, record});
  EXPECT_THAT(refused.status().message(), HasSubstr("corpus.txt: its content changed: 4000:"));
}

TEST_F(RunFolder, KeepsItsSocketShortEnoughForTheKernel) {
  EXPECT_EQ(SocketPath("/runs/a", ""), "/runs/a/weftd.sock");
  const std::string deep = "/" + std::string(120, 'd');
  const std::string id = RunId(deep);
  EXPECT_EQ(id.size(), 16);
  EXPECT_EQ(SocketPath(deep, "/run/user/0"), "/run/user/0/weft-" + id + "/weftd.sock");
  EXPECT_EQ(SocketPath(deep, ""), "/tmp/weft-" + id + "/weftd.sock");
  EXPECT_EQ(SocketPath(deep, deep), "/tmp/weft-" + id + "/weftd.sock");
  EXPECT_NE(RunId(deep), RunId("/runs/a"));
}

TEST_F(RunFolder, IsFoundByItsPathOrItsJobFile) {
  folder_.Write("job.yaml", kGoodJob);
  EXPECT_THAT(FindRun(folder_.job()).status().message(), HasSubstr("no run in " + run()));
  ASSERT_TRUE(RunLock::Take(run()).ok());
  EXPECT_EQ(FindRun(folder_.job())->folder, run());
  EXPECT_EQ(FindRun(run() + "/")->folder, run());
}

TEST_F(RunFolder, RefusesAFolderItCannotWrite) {
  folder_.Write("outputs", "a file where a folder should be");
  const auto lock = RunLock::Take(run());
  EXPECT_TRUE(absl::IsInvalidArgument(lock.status()));
  EXPECT_THAT(lock.status().message(), HasSubstr("set job.output_dir to a writable folder"));
}

}  // namespace
}  // namespace weft
