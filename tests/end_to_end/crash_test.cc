// A run through the real binaries, and what is killed, torn or interrupted in the middle of it.
// The bar each time: the losses of the steps are those of an undisturbed run, bit for bit, and
// nothing of the run is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// The gate's victims; WEFT_CRASH_SEED=random takes others.
size_t AnyOfThem(size_t count) {
  static auto* const random = new std::mt19937(SeedFromEnvironment("WEFT_CRASH_SEED", 1));
  return (*random)() % count;
}

// Every line of metrics.jsonl, repeated steps too, agrees with the undisturbed run.
void ExpectUndisturbedCurve(const TinyRun& run) {
  const std::map<int64_t, std::string> expected = UndisturbedCurve();
  for (const StepMetrics& metrics : run.Metrics()) {
    EXPECT_EQ(metrics.loss_hex, expected.at(metrics.step))
        << "step " << metrics.step << " of generation " << metrics.generation;
  }
  EXPECT_EQ(run.Curve(), expected);
}

TEST(Crash, OfAnyWorkerIsNamedAndTheRunGoesOnWithTheSameLosses) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(25);
  const std::vector<Found> workers = run.Processes("weft-worker");
  ASSERT_EQ(workers.size(), 4u);
  const Found& victim = workers[AnyOfThem(workers.size())];
  const std::string rank = VariableOf(victim.pid, "OMPI_COMM_WORLD_RANK");
  ASSERT_FALSE(rank.empty());
  SCOPED_TRACE("killed rank " + rank);
  ASSERT_TRUE(KillFound(victim, SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string said = outcome.out + outcome.err;
  EXPECT_THAT(said, HasSubstr("rank " + rank));
  EXPECT_THAT(said, AnyOf(HasSubstr("signal 9"), HasSubstr("SIGKILL")));
  EXPECT_EQ(run.Metrics().back().generation, 2) << said;
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

TEST(Crash, TwiceInOneRunIsSurvivedTwice) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  for (const int64_t step : {12, 33}) {
    run.WaitForStep(step);
    const std::vector<Found> workers = run.Processes("weft-worker");
    ASSERT_EQ(workers.size(), 4u);
    ASSERT_TRUE(KillFound(workers[AnyOfThem(workers.size())], SIGKILL));
  }
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(run.Metrics().back().generation, 3);
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

TEST(Crash, WithoutRestartsLeftFailsTheJobAndSaysWhy) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run({"--set", "fault_tolerance.max_restarts=0"});
  run.WaitForStep(12);
  const std::vector<Found> workers = run.Processes("weft-worker");
  ASSERT_EQ(workers.size(), 4u);
  ASSERT_TRUE(KillFound(workers[AnyOfThem(workers.size())], SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank "));
  run.ExpectNothingLeft();
}

// Kills one process of the run (`with`: a word of its command) at step 25 and expects the whole run
// to be gone within 10 s; then the same command resumes.
void ExpectKillEndsRunThatResumes(const std::string& program, const std::string& with) {
  TinyRun run;
  {
    const std::unique_ptr<Child> weft = run.Run();
    run.WaitForStep(25);
    std::vector<Found> victims = run.Processes(program);
    std::erase_if(
        victims, [&](const Found& found) { return found.command.find(with) == std::string::npos; });
    ASSERT_EQ(victims.size(), 1u);
    ASSERT_TRUE(KillFound(victims[0], SIGKILL));
    const double killed_s = NowSeconds();
    EXPECT_TRUE(
        Eventually(kLeavesWithinS, [&] { return weft->Wait(0) && run.Processes().empty(); }));
    for (const Found& process : run.Processes()) ADD_FAILURE() << "left: " << process.command;
    ::testing::Test::RecordProperty("gone_after_ms",
                                    static_cast<int>(1000 * (NowSeconds() - killed_s)));
  }
  const int64_t reached = run.LastStep();
  EXPECT_LT(reached, TinyRun::kSteps);
  const TinyRun::Outcome outcome = run.RunToEnd();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

// Another coordinator is there before any lease ends, and everybody comes back to it.
TEST(Crash, OfTheCoordinatorStopsNobody) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run({"--set", TinyRun::kEndless});
  for (const int64_t step : {25, 60}) {
    run.WaitForStep(step);
    const std::vector<Found> found = run.Processes("weftd");
    ASSERT_EQ(found.size(), 1u);
    ASSERT_TRUE(KillFound(found[0], SIGKILL));
    ASSERT_TRUE(Eventually(kPatienceS, [&] {
      const std::vector<Found> now = run.Processes("weftd");
      return now.size() == 1 && now[0].pid != found[0].pid;
    }));
  }
  run.WaitForStep(100);
  const std::unique_ptr<Child> stop = run.Weft({"stop", run.run_folder()});
  EXPECT_EQ(TinyRun::Finish(*stop, 240).exit_code, 0);
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err,
              HasSubstr("the coordinator (weftd) was killed by signal 9"));
  EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was started again";
  const auto steps = run.Metrics();
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, steps[i - 1].step + 1) << "each step is done and told once";
  }
  run.ExpectNothingLeft();
}

// It is there, and answers nobody: a stopped process, or one that hangs on a disk.
TEST(Crash, OfACoordinatorThatStandsStillIsSeenAfterTwoLeases) {
  TinyRun run;
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "fault_tolerance.heartbeat_timeout_seconds=3"});
  run.WaitForStep(25);
  const std::vector<Found> found = run.Processes("weftd");
  ASSERT_EQ(found.size(), 1u);
  ASSERT_TRUE(KillFound(found[0], SIGSTOP));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("which is 2 leases or more: it is stopped"));
  // Whether ranks outlive that hangs on the agent's first lease, which is of 8 s: it was given
  // before the job was known.
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("killed by signal 9; it is started again"));
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

TEST(Crash, OfTheLauncherLeavesNothingRunningAndResumes) {
  ExpectKillEndsRunThatResumes("weft", " run ");
}

TEST(Crash, OfTheProcessManagerIsSurvived) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(25);
  const std::vector<Found> managers = run.Processes("mpirun");
  ASSERT_EQ(managers.size(), 1u);
  ASSERT_TRUE(KillFound(managers[0], SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

// A worker that stops without dying: the lease finds it.
TEST(Crash, OfAStoppedWorkerIsFoundByTheLease) {
  TinyRun run;
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "fault_tolerance.heartbeat_timeout_seconds=3"});
  run.WaitForStep(25);
  const std::vector<Found> workers = run.Processes("weft-worker");
  ASSERT_EQ(workers.size(), 4u);
  ASSERT_TRUE(KillFound(workers[AnyOfThem(workers.size())], SIGSTOP));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(run.Metrics().back().generation, 2);
  ExpectUndisturbedCurve(run);
  run.ExpectNothingLeft();
}

TEST(Interrupt, SavesAtAStepAndTheSameCommandGoesOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    TinyRun run;
    const std::unique_ptr<Child> weft = run.Run();
    run.WaitForStep(13);
    weft->Signal(signal);
    const TinyRun::Outcome stopped = TinyRun::Finish(*weft, 240);
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    const int64_t last = run.LastStep();
    EXPECT_LT(last, TinyRun::kSteps);
    EXPECT_EQ(run.Checkpoints().count("step-" + std::to_string(last)), 1u) << last;
    run.ExpectNothingLeft();
    const TinyRun::Outcome outcome = run.RunToEnd();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(run.Metrics().size(), static_cast<size_t>(TinyRun::kSteps)) << "no step ran twice";
    ExpectUndisturbedCurve(run);
    run.ExpectNothingLeft();
  }
}

TEST(Interrupt, TwiceStopsAtOnceAndLeavesNothing) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run({"--set", "training.global_batch_size=512"});
  run.WaitForStep(1);
  weft->Signal(SIGINT);
  SleepSeconds(0.05);  // two Ctrl-C of a hand
  weft->Signal(SIGINT);
  const double signalled_s = NowSeconds();
  EXPECT_EQ(TinyRun::Finish(*weft, 10).exit_code, 130);
  EXPECT_LT(NowSeconds() - signalled_s, 5);
  run.ExpectNothingLeft();
}

TEST(Interrupt, BeforeTheFirstStepEndsTheRun) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  ASSERT_TRUE(Eventually(120, [&] { return !run.Processes("weftd").empty(); }));
  weft->Signal(SIGINT);
  EXPECT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);
  run.ExpectNothingLeft();
}

TEST(Interrupt, OfAClosedTerminalIsNone) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(5);
  weft->Signal(SIGHUP);
  EXPECT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);
  EXPECT_EQ(run.LastStep(), TinyRun::kSteps);
  run.ExpectNothingLeft();
}

// Damages to the newest checkpoint's shard of rank 0, or to its manifest.
void Truncate(const std::string& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
}
void FlipBit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(std::filesystem::file_size(path) * 3 / 4));
  const int byte = file.peek();
  file.put(static_cast<char>(byte ^ 1));
}
void Remove(const std::string& path) {
  std::filesystem::remove(path);
}

struct Damage {
  const char* what;
  const char* file;  // prefix of the name
  void (*damage)(const std::string& path);
};

TEST(TornCheckpoint, IsRefusedByNameAndThePreviousOneUsed) {
  const Damage damages[] = {{"a truncated shard", "rank-", Truncate},
                            {"a flipped bit in a shard", "rank-", FlipBit},
                            {"a missing shard", "rank-", Remove},
                            {"a truncated manifest", "manifest", Truncate}};
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(TinyRun::kSteps - 15);
  weft->Signal(SIGINT);
  ASSERT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);
  const std::string checkpoints = run.run_folder() + "/checkpoint";
  const std::string backup = run.run_folder() + "/backup";
  std::filesystem::copy(checkpoints, backup, std::filesystem::copy_options::recursive);
  const std::string newest = "step-" + std::to_string(run.LastStep());
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    std::filesystem::remove_all(checkpoints);
    std::filesystem::copy(backup, checkpoints, std::filesystem::copy_options::recursive);
    std::string torn;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints + "/" + newest)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind(damage.file, 0) == 0) torn = name;
    }
    ASSERT_FALSE(torn.empty());
    damage.damage(checkpoints + "/" + newest + "/" + torn);
    const TinyRun::Outcome outcome = run.RunToEnd();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, AllOf(HasSubstr(newest), HasSubstr(torn)));
  }
  ExpectUndisturbedCurve(run);
}

}  // namespace
}  // namespace weft
