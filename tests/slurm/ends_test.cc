// Whatever Slurm or chance does to an allocation, the job goes on from its last saved step, with
// the same losses, or ends because somebody has ended it; nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/hosts/equal_rates.h"
#include "tests/slurm/slurm_run.h"

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kShortLease[] =
    "fault_tolerance: {heartbeat_timeout_seconds: 4, steady_seconds: 1, max_restarts: 10, "
    "preflight: false}\n";

// Steps enough for a job that something is done to: they take four seconds at least.
SlurmJobWords Long() {
  return {.more = kShortLease, .steps = 200};
}

SlurmJobWords OnTwoNodes(const std::string& nodes) {
  SlurmJobWords words = Long();
  words.parallelism = "dp: 2, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  words.cluster = "slots: 2, nodes: " + nodes + ", scheduler: slurm";
  return words;
}

TEST_F(SlurmRun, ResumesWhenItIsRequeued) {
  const std::map<int64_t, std::string> alone = LocalCurve(Long());
  const std::string file = WriteJob(Long());
  const std::string job = Submit(file);
  ASSERT_TRUE(WaitForStep(30)) << Words();
  std::ofstream(file) << "what a person writes for the next run\n";
  bed_->Head("scontrol requeue " + job);
  LetGoOn(job);
  AwaitCompleted(job);
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(bed_->JobField(job, "Restarts"), "1");
}

// Slurm's own signal comes up to a minute early, so it is what ends the first run. Who has his
// steps early gets a limit that is over sooner.
TEST_F(SlurmRun, SavesAndIsRequeuedBeforeItsTimeIsOver) {
  SlurmJobWords words = Long();
  words.steps = 1000000;
  words.cluster += ", time: 2";
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(20)) << Words();
  const std::string so_far = bed_->JobField(job, "RunTime");  // 00:00:07
  if (so_far < "00:00:20") bed_->Head("scontrol update jobid=" + job + " timelimit=1");
  EXPECT_TRUE(Eventually(150, [&] {
    SleepSeconds(0.5);
    return bed_->JobField(job, "Restarts") == "1";
  })) << bed_->JobField(job, "JobState");
  const int64_t saved = LastStep();
  EXPECT_THAT(ReadText(folder() + "/logs/slurm-" + job + ".log"),
              HasSubstr("stopped at step " + std::to_string(saved) + ", saved"));
  LetGoOn(job);
  ASSERT_TRUE(WaitForStep(saved + 10)) << Words();
  Curve();
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
}

TEST_F(SlurmRun, IsPreemptedAndResumesOnFewerNodes) {
  SlurmJobWords words = Long();
  words.parallelism = "dp: auto, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  words.cluster = "slots: 2, nodes: '2:3', scheduler: slurm, partition: low";
  SlurmJobWords local = words;
  local.parallelism = "dp: 3, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  const std::map<int64_t, std::string> alone = LocalCurve(local);
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(30)) << Words();
  EXPECT_EQ(bed_->JobField(job, "NumNodes"), "3");
  const std::string high =
      bed_->Head("cd " + bed_->shared() +
                 " && sbatch --parsable -p high -N1 -c4 -o /dev/null --wrap 'exec sleep 300'");
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.2);
    return bed_->JobField(job, "Restarts") == "1";
  })) << bed_->Head("scontrol show job");
  const int64_t saved = LastStep();
  EXPECT_LT(saved, words.steps) << "it was done before";
  EXPECT_EQ(bed_->AwaitState(high, {"RUNNING"}, kPatienceS), "RUNNING");
  LetGoOn(job);
  ASSERT_TRUE(WaitForStep(saved + 10)) << Words();
  EXPECT_THAT(bed_->JobField(job, "NumNodes"), AnyOf("2", "2-3"));
  AwaitCompleted(job);
  ExpectNear(alone);
  Curve();  // no step was lost: each that was done again has the same loss
}

// TERM goes to all of its processes at once, srun and weftd among them, and KILL comes KillWait
// later, Slurm's default here.
TEST_F(SlurmRun, SavesAndLeavesNothingWhenItIsCancelled) {
  SlurmJobWords words = Long();
  words.save_every = words.steps = 1000000;
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(20)) << Words();
  bed_->Head("scancel " + job);
  EXPECT_EQ(bed_->AwaitState(job, {"CANCELLED", "PENDING"}, kPatienceS), "CANCELLED");
  EXPECT_EQ(bed_->Head("squeue -h"), "") << "nobody has requeued it";
  EXPECT_TRUE(std::filesystem::exists(folder() + "/checkpoint/step-" + std::to_string(LastStep())))
      << Words();
}

TEST_F(SlurmRun, IsStoppedFromTheHead) {
  SlurmJobWords words = Long();
  words.steps = 1000000;
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(20)) << Words();
  const HostBed::Answer answer = Weft("stop " + folder());
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("stopped and saved"));
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
}

// As a node that is dead for longer than SlurmdTimeout: the job needs as many as it has asked for.
TEST_F(SlurmRun, IsQueuedAgainWhenANodeIsTakenAway) {
  const std::map<int64_t, std::string> alone = LocalCurve(OnTwoNodes("2"));
  const std::string job = Submit(WriteJob(OnTwoNodes("2")));
  ASSERT_TRUE(WaitForStep(25)) << Words();
  ASSERT_EQ(bed_->JobField(job, "NodeList"), "h[1-2]");
  LoseNode(2);
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return bed_->JobField(job, "Restarts") == "1";
  })) << Words();
  LetGoOn(job);
  AwaitCompleted(job);
  EXPECT_EQ(Curve(), alone);
  BringBackNode(2);
}

// weftd and the batch script die with it, and Slurm goes on without the node (--no-kill).
TEST_F(SlurmRun, IsQueuedAgainWhenTheFirstOfMoreNodesThanItNeedsIsTakenAway) {
  SlurmJobWords words = OnTwoNodes("'1:2'");
  words.parallelism = "dp: auto, pp: 1, tp: 1, zero_stage: 1";
  words.steps = 1000000;
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(25)) << Words();
  ASSERT_EQ(bed_->JobField(job, "NodeList"), "h[1-2]");
  LoseNode(1);
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return bed_->JobField(job, "Restarts") == "1";
  })) << Words();
  LetGoOn(job);
  ASSERT_TRUE(WaitForStep(LastStep() + 10)) << Words();
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
  BringBackNode(1);
}

TEST_F(SlurmRun, GoesOnWithFewerNodesWhenOneIsTakenAway) {
  SlurmJobWords words = OnTwoNodes("'1:2'");
  words.parallelism = "dp: auto, pp: 1, tp: 1, zero_stage: 1";
  words.steps = 1000000;
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(25)) << Words();
  ASSERT_EQ(bed_->JobField(job, "NodeList"), "h[1-2]");
  LoseNode(2);
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return LastGeneration() > 1; })) << Words();
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return ReadText(folder() + "/logs/slurm-" + job + ".log").find("; it is left out") !=
           std::string::npos;
  })) << Words();
  ASSERT_TRUE(WaitForStep(LastStep() + 10)) << Words();
  EXPECT_EQ(bed_->JobField(job, "Restarts"), "0");
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
  BringBackNode(2);
}

// It takes the agent there along, and srun, whose step it was, waits on.
TEST_F(SlurmRun, GoesOnWhenSlurmsOwnProcessOfANodeIsKilled) {
  const std::map<int64_t, std::string> alone = LocalCurve(Long());
  const std::string job = Submit(WriteJob(Long()));
  ASSERT_TRUE(WaitForStep(25)) << Words();
  const HostBed::Answer killed = bed_->hosts().Run(
      2, "kill -9 $(pgrep -f '^slurmstepd: \\[" + job + R"(\.[0-9]' | head -1) && echo done)");
  ASSERT_EQ(killed.out, "done\n") << killed.err << bed_->hosts().Run(2, "pgrep -af slurm").out;
  const auto at = std::chrono::steady_clock::now();
  // The agent's lease of 4 s and a question are waited for, and not srun itself, which waits on for
  // as long as the job runs. A busy machine takes longer.
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return LastGeneration() > 1; })) << Words();
  std::printf("a step again after %.2f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - at).count());
  AwaitCompleted(job, 240);
  EXPECT_GT(LastGeneration(), 1);
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(bed_->JobField(job, "Restarts"), "0") << "it was restarted in the allocation";
}

// The allocation has three nodes again, but two are enough.
TEST_F(SlurmRun, LeavesANodeOutThatHasFailedBefore) {
  SlurmJobWords words{.more = kShortLease, .steps = 1000000};
  words.parallelism = "dp: auto, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  words.cluster = "slots: 2, nodes: '2:3', scheduler: slurm";
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(15)) << Words();
  EXPECT_EQ(bed_->JobField(job, "NumNodes"), "3");
  bed_->hosts().CutLink(3);
  const std::string left_out = "host h3 is left out until ";
  EXPECT_TRUE(Eventually(45, [&] {  // before Slurm itself ends the job for it
    SleepSeconds(0.1);
    return Weft("status " + folder()).out.find(left_out) != std::string::npos;
  })) << Words();
  bed_->Head("scontrol requeue " + job);
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return bed_->hosts().Run(1, "pgrep -x weft").out.empty();
  }));
  // Slurm may kill an agent whose srun is gone, rather than ask it to leave.
  bed_->hosts().Run(3, "pkill -KILL -x weft");
  EXPECT_THAT(bed_->hosts().Run(3, "ls /dev/shm").out, HasSubstr("weft-"));
  bed_->hosts().RestoreLink(3);
  LetGoOn(job);
  const std::string log = folder() + "/logs/slurm-" + job + ".log";
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return ReadText(log).find("took 2 hosts of Slurm job " + job) != std::string::npos;
  })) << Words();
  EXPECT_THAT(ReadText(log), HasSubstr("\n" + left_out));
  EXPECT_EQ(bed_->JobField(job, "NumNodes"), "3");
  const int64_t saved = LastStep();
  EXPECT_TRUE(WaitForStep(saved + 10)) << Words();
  EXPECT_THAT(Weft("ps").out, HasSubstr(job + ": " + left_out));
  EXPECT_EQ(bed_->hosts().Run(3, "pgrep -f '^weft-worker --generation'").out, "");
  EXPECT_TRUE(Eventually(kPatienceS, [&] {  // no agent comes that would remove it
    SleepSeconds(0.1);
    return bed_->hosts().Run(3, "ls /dev/shm").out.find("weft-") == std::string::npos;
  })) << bed_->hosts().Run(3, "find /dev/shm").out;
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
}

// It is there and answers, but its check before the first generation finds it of no use.
TEST_F(SlurmRun, LeavesANodeOutThatHasFailedItsCheck) {
  SlurmJobWords words{.more = "", .steps = 1000000};
  words.parallelism = "dp: auto, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  words.cluster = "slots: 2, nodes: '2:3', scheduler: slurm, remote_path: " +
                  ProgramsOfEqualRates(&bed_->hosts());
  EXPECT_EQ(bed_->hosts().Run(3, "mount -t tmpfs -o size=1m tmpfs /dev/shm").exit_code, 0);
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(15)) << Words();
  EXPECT_EQ(bed_->JobField(job, "NumNodes"), "3");
  const std::string left_out = "host h3 is left out until ";
  EXPECT_THAT(Weft("status " + folder()).out, HasSubstr(left_out));
  EXPECT_EQ(bed_->hosts().Run(3, "mount -o remount,size=64m /dev/shm").exit_code, 0);
  bed_->Head("scontrol requeue " + job);
  LetGoOn(job);
  const std::string log = folder() + "/logs/slurm-" + job + ".log";
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    SleepSeconds(0.1);
    return ReadText(log).find("took 2 hosts of Slurm job " + job) != std::string::npos;
  })) << Words();
  const size_t at = ReadText(log).find("\n" + left_out);
  ASSERT_NE(at, std::string::npos) << Words();
  EXPECT_THAT(ReadText(log).substr(at), HasSubstr(": shared memory: "));
  const int64_t saved = LastStep();
  EXPECT_TRUE(WaitForStep(saved + 10)) << Words();
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
  EXPECT_TRUE(Eventually(kPatienceS,
                         [&] { return bed_->hosts().Run(3, "umount /dev/shm").exit_code == 0; }));
}

// A job that cannot begin is queued again, and held before long.
TEST_F(SlurmRun, IsHeldOnceItIsPoisoned) {
  const std::string job = Submit(WriteJob(Long()));
  ASSERT_TRUE(WaitForStep(20)) << Words();
  // Somebody else has the run's lock from now on: each attempt ends with 75.
  const std::unique_ptr<Child> other = bed_->hosts().Start(
      SlurmBed::kHead,
      {"/bin/sh", "-c",
       "scontrol requeue " + job + "; exec flock " + folder() + "/lock sleep 300"});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    LetGoOn(job);
    EXPECT_TRUE(Eventually(kPatienceS, [&] {
      SleepSeconds(0.1);
      return bed_->JobField(job, "Restarts") == std::to_string(attempt + 1);
    })) << attempt;
  }
  EXPECT_EQ(bed_->AwaitState(job, {"SPECIAL_EXIT"}, kPatienceS), "SPECIAL_EXIT");
  bed_->Head("scancel " + job);
  bed_->Head("pkill -f '^sleep 300'");
  EXPECT_TRUE(other->Wait(kPatienceS).has_value());
}

}  // namespace
}  // namespace weft
