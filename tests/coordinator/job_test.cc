// The job's state machine: histories as text, and what random histories can never do.
#include "coordinator/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/job_script.h"

namespace weft {
namespace {

using testing::HasSubstr;

using Step = std::pair<std::string, std::string>;  // a fact, the job after it

const char kPrelude[] = "submit r1;plan;launch 1;register 1/0;register 1/1;ready 1/0;ready 1/1";

Job Play(const std::string& facts, Job job = Job()) {
  size_t begin = 0;
  while (begin < facts.size()) {
    const size_t end = std::min(facts.find(';', begin), facts.size());
    job = Apply(std::move(job), ParseFact(facts.substr(begin, end - begin)));
    begin = end + 1;
  }
  return job;
}

// Plays each fact and compares what follows.
Job Expect(const std::vector<Step>& steps, Job job = Job()) {
  for (const auto& [fact, after] : steps) {
    job = Apply(std::move(job), ParseFact(fact));
    EXPECT_EQ(JobText(job), after) << "after: " << fact;
  }
  return job;
}

TEST(Job, RunsFromSubmissionToTheLastStep) {
  const Job job = Expect({
      {"submit r1", "SUBMITTED g0 closed | plan"},
      {"plan", "PLANNED g1 open | launch g1"},
      {"launch 1", "STARTING g1 launched | launch g1"},
      {"register 1/1", "STARTING g1 launched | launch g1"},
      {"register 1/0", "STARTING g1 sealed | train g1"},
      {"ready 1/0", "STARTING g1 sealed | train g1"},
      {"ready 1/1", "RUNNING g1 training | begin g1"},
      {"shard 1/1 10", "RUNNING g1 training | begin g1"},
      {"shard 1/0 10", "RUNNING g1 training | begin g1, commit g1 10"},
      {"committed 1/0 10", "RUNNING g1 training | begin g1, save_over 10"},
      {"shard 1/0 20", "RUNNING g1 training | begin g1, save_over 10"},
      {"shard 1/1 20", "RUNNING g1 training | begin g1, commit g1 20, save_over 10"},
      {"committed 1/0 20", "RUNNING g1 training | begin g1, save_over 20"},
      {"finish 1/0 20", "RUNNING g1 training | begin g1, save_over 20"},
      {"finish 1/1 20", "COMPLETED g1 stopping"},
      {"ended 1 clean", "COMPLETED g1 closed"},
  });
  EXPECT_EQ(job.newest(), (SavedCheckpoint{20, "/run/checkpoint/step-20"}));
  EXPECT_EQ(job.reason, "finished step 20 of 20");
}

TEST(Job, ThatFitsNowhereFailsWithThePlannersReason) {
  const Job job =
      Expect({{"submit r1", "SUBMITTED g0 closed | plan"}, {"refuse", "FAILED g0 closed"}});
  EXPECT_EQ(job.reason, "nothing fits");
}

TEST(Job, StartsTheNextGenerationOnlyOnceTheOldOneIsProvenDead) {
  const Job job = Expect(
      {
          {"committed 1/0 10", "RUNNING g1 training | begin g1"},
          {"lost 1/1", "RECOVERING g1 stopping | abort g1, stop_group g1"},
          {"ended 1 rank 0 signal 9", "RECOVERING g2 open | launch g2"},
          {"launch 2", "STARTING g2 launched | launch g2"},
          {"register 2/0", "STARTING g2 launched | launch g2"},
          {"register 2/1", "STARTING g2 sealed | train g2"},
          {"ready 2/0", "STARTING g2 sealed | train g2"},
          {"ready 2/1", "RUNNING g2 training | begin g2"},
      },
      Play(kPrelude));
  EXPECT_EQ(job.newest().step, 10);
  EXPECT_EQ(job.restarts_left, 2);
  EXPECT_EQ(job.last_failure->cause.text, "rank 1 (here) lost: silent");
}

TEST(Job, TakesSilenceLongerThanTheLeaseForDeath) {
  Expect({{"lost 1/1", "RECOVERING g1 stopping | abort g1, stop_group g1"},
          {"silent 1", "RECOVERING g2 open | launch g2"}},
         Play(kPrelude));
}

TEST(Job, IgnoresFactsOfOtherGenerations) {
  const Job job = Play(absl::StrCat(kPrelude, ";lost 1/1;ended 1 clean;launch 2;register 2/0"));
  for (const char* fact :
       {"register 1/1", "ready 1/0", "shard 1/0 10", "committed 1/0 10", "finish 1/0 20",
        "fault 1/0 INTERNAL x", "lost 1/0", "overdue 1", "ended 1 clean", "silent 1", "launch 2",
        "suspect 1/0", "ready 3/0", "ended 3 clean", "launch 3", "register 3/0"}) {
    EXPECT_EQ(Apply(job, ParseFact(fact)), job) << fact;
  }
}

TEST(Job, IgnoresWhatItKnows) {
  Job job = Play(absl::StrCat(kPrelude, ";shard 1/0 10;committed 1/0 5"));
  for (const char* fact : {"submit r1", "plan", "refuse", "register 1/0", "ready 1/0",
                           "shard 1/0 10", "committed 1/0 5", "launch 1", "silent 1 on m2"}) {
    EXPECT_EQ(Apply(job, ParseFact(fact)), job) << fact;
  }
}

TEST(Job, GrantsACommitOnlyOnceEveryRankOfItsGenerationHasWritten) {
  Expect(
      {
          {"shard 1/0 10", "RUNNING g1 training | begin g1"},
          {"shard 1/0 12", "RUNNING g1 training | begin g1"},  // the save of step 10 was given up
          {"shard 1/1 10", "RUNNING g1 training | begin g1"},
          {"shard 1/1 12", "RUNNING g1 training | begin g1, commit g1 12"},
          {"fault 1/0 INTERNAL disk", "RECOVERING g1 stopping | abort g1, stop_group g1"},
          {"shard 1/0 12", "RECOVERING g1 stopping | abort g1, stop_group g1"},
      },
      Play(kPrelude));
}

TEST(Job, AcceptsACommitReportFromRankZeroAlone) {
  const Job job = Play(kPrelude);
  EXPECT_EQ(Apply(job, ParseFact("committed 1/1 10")), job);
  EXPECT_EQ(Apply(job, ParseFact("committed 1/0 10")).newest().step, 10);
}

TEST(Job, EndsAfterThreeFailuresWithoutProgress) {
  std::string facts = "submit r1;plan";
  for (int g = 1; g <= 3; ++g) {
    absl::StrAppend(&facts, ";launch ", g, ";register ", g, "/0;register ", g, "/1;fault ", g,
                    "/1 INTERNAL boom");
    if (g < 3) absl::StrAppend(&facts, ";ended ", g, " exit 1");
  }
  const Job job = Play(facts);
  EXPECT_EQ(JobText(job), "FAILED g3 stopping | abort g3, stop_group g3");
  EXPECT_EQ(job.reason,
            "3 attempts failed without a new committed step; the last one: rank 1 (here): boom");
  EXPECT_EQ(JobText(Play("ended 3 exit 1", job)), "FAILED g3 closed");
}

// Where nothing is ever saved, no attempt could show progress: max_restarts is the limit then.
TEST(Job, WithoutCheckpointsRestartsAsOftenAsItMay) {
  Submitted submitted = std::get<Submitted>(ParseFact("submit r1"));
  submitted.spec.fault_tolerance.max_restarts = 5;
  submitted.spec.checkpoint.interval = 0;
  Job job = Play("plan", Apply(Job(), submitted));
  for (int g = 1; g <= 5; ++g) {
    job =
        Play(absl::StrCat("launch ", g, ";register ", g, "/0;lost ", g, "/0;ended ", g, " exit 1"),
             std::move(job));
    EXPECT_EQ(job.phase, Phase::kRecovering) << g;
  }
  job = Play("launch 6;register 6/0;lost 6/0", std::move(job));
  EXPECT_EQ(job.phase, Phase::kFailed);
  EXPECT_THAT(job.reason, HasSubstr("no restart is left (fault_tolerance.max_restarts: 5)"));
}

TEST(Job, RefillsItsRestartsWithEachNewCommittedStep) {
  Job job = Play("submit r1;plan");
  for (int g = 1; g <= 10; ++g) {
    job = Play(
        absl::StrCat("launch ", g, ";register ", g, "/0;register ", g, "/1;ready ", g, "/0;ready ",
                     g, "/1;committed ", g, "/0 ", g, ";lost ", g, "/1;ended ", g, " exit 1"),
        std::move(job));
    EXPECT_EQ(job.phase, Phase::kRecovering) << g;
    EXPECT_EQ(job.restarts_left, 2) << g;
  }
  EXPECT_EQ(job.saved.size(), 3u);
}

TEST(Job, HonoursMaxRestartsZero) {
  Submitted submitted = std::get<Submitted>(ParseFact("submit r1"));
  submitted.spec.fault_tolerance.max_restarts = 0;
  const Job job = Play("plan;launch 1;register 1/0;lost 1/0", Apply(Job(), submitted));
  EXPECT_EQ(job.phase, Phase::kFailed);
  EXPECT_THAT(job.reason, HasSubstr("max_restarts: 0"));
  EXPECT_THAT(job.reason, HasSubstr("rank 0 (here) lost: silent"));
}

TEST(Job, DoesNotRepeatWhatNoRestartCanCure) {
  for (const char* code : {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"}) {
    const Job job = Play(absl::StrCat(kPrelude, ";fault 1/1 ", code, " nan"));
    EXPECT_EQ(job.phase, Phase::kFailed) << code;
    EXPECT_EQ(job.reason, "rank 1 (here): nan") << code;
  }
}

TEST(Job, LetsARootCauseReplaceAConsequence) {
  Job job = Play(absl::StrCat(kPrelude, ";fault 1/0 ABORTED peer"));
  EXPECT_EQ(job.last_failure->cause.rank, 0);
  job = Play("ended 1 rank 1 signal 9", std::move(job));
  EXPECT_EQ(job.last_failure->cause.rank, 1);
  EXPECT_EQ(job.last_failure->cause.text, "rank 1 (here) killed by signal 9 (SIGKILL)");
  EXPECT_EQ(job.reason, "rank 1 (here) killed by signal 9 (SIGKILL); resuming after step 0");
  EXPECT_EQ(job.restarts_left, 2) << "one failure is counted once";
}

// All ranks of a collective give up at its deadline, say so, and exit with 1.
TEST(Job, NamesTheLeaseThatRanksHadToStopWith) {
  const Job training = Play(kPrelude);
  RankEnded end = {1, 1, "h1", 0, 1, "", ""};
  Job job = Apply(training, end);
  EXPECT_THAT(job.reason, HasSubstr("exited with 1"));
  end.rank = 0;
  end.exit_code = 75;
  end.lost_lease = true;
  job = Apply(std::move(job), end);
  EXPECT_THAT(job.reason, HasSubstr("rank 0 (h1) stopped: the host's lease had run out"));
  EXPECT_THAT(Apply(training, end).reason, HasSubstr("lease"));
}

TEST(Job, KeepsTheWordsOfAFaultWhenRanksThenExit) {
  Job job = Play(absl::StrCat(kPrelude, ";fault 1/1 DEADLINE_EXCEEDED slow"));
  job = Play("ended 1 rank 0 exit 1", std::move(job));
  const std::string text = "who is to blame is not known; reported by rank 1 (here): slow";
  EXPECT_EQ(job.last_failure->cause.text, text);
  EXPECT_EQ(job.reason, absl::StrCat(text, "; resuming after step 0"));
  EXPECT_EQ(job.last_failure->cause.rank, -1) << "who reports a timeout is not the culprit";
}

Hung HangOfRank1() {
  return {.generation = 1,
          .rank = 1,
          .host = "here",
          .hang = {.phase = "step",
                   .step = 12,
                   .collective = "all-reduce over tp (call 17)",
                   .why = "its process is stopped",
                   .waiting = "rank 0 in all-reduce over tp (call 17)",
                   .age_ms = 2100}};
}

TEST(Job, EndsTheGenerationOfARankThatHangsAndNamesIt) {
  const Job job = Apply(Play(kPrelude), HangOfRank1());
  EXPECT_EQ(job.phase, Phase::kRecovering);
  EXPECT_EQ(job.last_failure->cause.rank, 1);
  EXPECT_EQ(job.last_failure->cause.hang, HangOfRank1().hang);
  EXPECT_EQ(job.reason,
            "rank 1 (here) hangs in step, step 12, all-reduce over tp (call 17): its process is "
            "stopped; it holds up rank 0 in all-reduce over tp (call 17); resuming after step 0");
}

TEST(Job, BlamesTheHangNotTheRankThatReportedATimeoutBefore) {
  Job job = Play(absl::StrCat(kPrelude, ";fault 1/0 DEADLINE_EXCEEDED slow"));
  job = Apply(std::move(job), HangOfRank1());
  EXPECT_EQ(job.last_failure->cause.rank, 1);
}

TEST(Job, KeepsLastWordsOutOfItsReason) {
  AttemptEnded end = std::get<AttemptEnded>(ParseFact("ended 1 rank 1 exit 1"));
  end.last_stderr = "line one\nline two";
  const Job job = Apply(Play(kPrelude), end);
  EXPECT_EQ(job.reason, "rank 1 (here) exited with 1; resuming after step 0");
  EXPECT_EQ(job.last_failure->cause.detail, end.last_stderr);
}

// Only who was told to start a generation can say that nothing of it is left.
TEST(Job, TakesNoProofOfDeathFromAnotherMachine) {
  const std::string start = "submit r1;plan;launch 1 on m1;register 1/0;register 1/1";
  Job job = Play(absl::StrCat(start, ";lost 1/0;ended 1 rank 0 signal 9 on m2;ended 1 clean"));
  EXPECT_EQ(job.generation.phase, GenerationPhase::kStopping);
  EXPECT_EQ(job.generation.number, 1);
  job = Play("ended 1 rank 0 signal 9 on m1", std::move(job));
  EXPECT_EQ(job.generation.number, 2);
}

TEST(Job, HearsOfARanksEndBeforeTheGroupIsGone) {
  Job job = Play(absl::StrCat(kPrelude, ";rank_ended 1/1 signal 9;rank_ended 1/0 signal 9"));
  EXPECT_EQ(job.generation.phase, GenerationPhase::kStopping);
  EXPECT_EQ(job.reason, "rank 1 (here) killed by signal 9 (SIGKILL); resuming after step 0");
  job = Play("ended 1 exit 1", std::move(job));
  EXPECT_EQ(job.last_failure->cause.rank, 1);
  EXPECT_EQ(job.failures_since_progress, 1);
}

TEST(Job, TellsARankThatIsThroughFromOneThatLeftEarly) {
  Job through = Play(absl::StrCat(kPrelude, ";finish 1/1 20;rank_ended 1/1 exit 0"));
  EXPECT_EQ(through.phase, Phase::kRunning);
  const Job early = Play(absl::StrCat(kPrelude, ";rank_ended 1/1 exit 0"));
  EXPECT_EQ(early.reason,
            "rank 1 (here) exited with 0 before it had finished; resuming after step 0");
}

TEST(Job, KeepsTheFirstRootCause) {
  Job job = Play(absl::StrCat(kPrelude, ";fault 1/1 INTERNAL disk;fault 1/0 INTERNAL other"));
  job = Play("ended 1 rank 0 signal 15", std::move(job));
  EXPECT_EQ(job.last_failure->cause.text, "rank 1 (here): disk");
}

TEST(Job, FailsAtOnceWhenTheRootCauseTurnsOutToBePermanent) {
  const Job job =
      Play(absl::StrCat(kPrelude, ";fault 1/0 ABORTED peer;fault 1/1 FAILED_PRECONDITION nan"));
  EXPECT_EQ(job.phase, Phase::kFailed);
  EXPECT_EQ(job.reason, "rank 1 (here): nan");
}

// Whatever the reason: a disk that cannot be read, a folder that is gone, bytes that were altered.
TEST(Job, FallsBackToAnOlderCheckpointIfTheNewestDoesNotLoad) {
  for (const std::string code : {"DATA_LOSS", "UNAVAILABLE", "NOT_FOUND", "PERMISSION_DENIED",
                                 "FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNKNOWN"}) {
    const Job job = Play(absl::StrCat(
        kPrelude, ";committed 1/0 10;committed 1/0 15;lost 1/0;ended 1 exit 1;",
        "launch 2;register 2/0;register 2/1;unloadable 2/1 ", code, ";unloadable 2/0 ", code));
    EXPECT_EQ(job.phase, Phase::kRecovering) << code;
    EXPECT_EQ(job.newest().step, 10) << code;
  }
  const Job other = Play(absl::StrCat(kPrelude, ";committed 1/0 10;committed 1/0 15;lost 1/0;",
                                      "ended 1 exit 1;launch 2;register 2/0;register 2/1;",
                                      "fault 2/1 DATA_LOSS elsewhere"));
  EXPECT_EQ(other.newest().step, 15) << "it was not read when that came";
}

TEST(Job, NeverBeginsAnewWhereSomethingWasSaved) {
  const std::string begin = absl::StrCat(kPrelude, ";committed 1/0 10;lost 1/0;ended 1 exit 1;",
                                         "launch 2;register 2/0;register 2/1;unloadable 2/1 ");
  const Job lost = Play(begin + "DATA_LOSS");
  EXPECT_EQ(lost.phase, Phase::kFailed);
  EXPECT_EQ(lost.newest().step, 10);
  EXPECT_THAT(lost.reason, testing::HasSubstr("step 10 was saved, nothing usable is left"));
  // A fault that may be gone in a moment is tried again, from the same checkpoint.
  const Job again = Play(begin + "UNAVAILABLE");
  EXPECT_EQ(again.phase, Phase::kRecovering);
  EXPECT_EQ(again.newest().step, 10);
}

TEST(Job, KnowsOlderCheckpointsThanTheOneItBeginsWith) {
  Submitted submitted = std::get<Submitted>(ParseFact("submit r1"));
  submitted.load_checkpoint = "/run/checkpoint/step-30";
  submitted.after_step = 30;
  submitted.older = {{10, "/run/checkpoint/step-10"}, {20, "/run/checkpoint/step-20"}};
  submitted.last_generation = 7;
  Job job = Apply(Job(), submitted);
  for (const char* fact : {"plan", "launch 8", "register 8/0", "register 8/1",
                           "unloadable 8/1 UNAVAILABLE", "ended 8 exit 1"}) {
    job = Apply(job, ParseFact(fact));
  }
  EXPECT_EQ(job.newest().folder, "/run/checkpoint/step-20");
  EXPECT_EQ(job.generation.number, 9) << "a new journal goes on behind what is on the disk";
}

// A rank that could not write is no reason to end: all learn of it, and go on.
TEST(Job, GivesASaveUpOnceEveryRankHasSaidItsPart) {
  const Job job = Expect(
      {
          {"nosave 1/1 10", "RUNNING g1 training | begin g1"},
          {"shard 1/1 10", "RUNNING g1 training | begin g1"},
          {"shard 1/0 10", "RUNNING g1 training | begin g1, save_over 10"},
          {"shard 1/0 10",
           "RUNNING g1 training | begin g1, save_over 10"},  // repeated after a reconnect
          {"nosave 1/1 10", "RUNNING g1 training | begin g1, save_over 10"},
          {"shard 1/0 10 11",
           "RUNNING g1 training | begin g1, save_over 10"},  // the same step again
          {"shard 1/1 10 11", "RUNNING g1 training | begin g1, commit g1 10, save_over 10"},
          {"nosave 1/0 10 11",
           "RUNNING g1 training | begin g1, save_over 11"},  // the commit failed
          {"committed 1/1 10", "RUNNING g1 training | begin g1, save_over 11"},
          {"shard 1/0 20", "RUNNING g1 training | begin g1, save_over 11"},
          {"shard 1/1 20", "RUNNING g1 training | begin g1, commit g1 20, save_over 11"},
          {"committed 1/0 20", "RUNNING g1 training | begin g1, save_over 20"},
      },
      Play(kPrelude));
  EXPECT_EQ(job.newest().step, 20);
}

TEST(Job, SaysWhatAStopCouldNotSave) {
  const Job job = Play(absl::StrCat(kPrelude, ";shard 1/0 5;shard 1/1 5;committed 1/0 5;stop;",
                                    "shard 1/0 7;nosave 1/1 7;stopped 1/0 7;stopped 1/1 7"));
  EXPECT_EQ(job.phase, Phase::kSuspended);
  EXPECT_THAT(
      job.reason,
      testing::HasSubstr("step 7 could not be saved (disk full), so it will go on from step 5"));
}

TEST(Job, SavesOnRequestAndGoesOn) {
  const Job job = Expect(
      {
          {"save_now", "RUNNING g1 training | begin g1, save g1 wish 1"},
          {"save_now", "RUNNING g1 training | begin g1, save g1 wish 1"},
          {"shard 1/0 7", "RUNNING g1 training | begin g1, save g1 wish 1"},
          {"shard 1/1 7", "RUNNING g1 training | begin g1, save g1 wish 1, commit g1 7"},
          {"committed 1/0 7", "RUNNING g1 training | begin g1, save_over 7"},
          {"save_now", "RUNNING g1 training | begin g1, save g1 wish 2, save_over 7"},
      },
      Play(kPrelude));
  EXPECT_EQ(job.save_wishes, 2);
}

TEST(Job, AsksTheNextGenerationForTheCheckpointThatTheLastOneDidNotMake) {
  Expect({{"register 2/0", "STARTING g2 launched | launch g2"},
          {"register 2/1", "STARTING g2 sealed | train g2"},
          {"ready 2/0", "STARTING g2 sealed | train g2"},
          {"ready 2/1", "RUNNING g2 training | begin g2, save g2 wish 1"}},
         Play(absl::StrCat(kPrelude, ";save_now;lost 1/1;ended 1 rank 1 signal 9;launch 2")));
}

TEST(Job, SavesAndStopsOnRequest) {
  const Job job = Expect(
      {
          {"stop", "DRAINING g1 training | begin g1, stop_training g1"},
          {"stop", "DRAINING g1 training | begin g1, stop_training g1"},
          {"shard 1/0 7", "DRAINING g1 training | begin g1, stop_training g1"},
          {"shard 1/1 7", "DRAINING g1 training | begin g1, stop_training g1, commit g1 7"},
          {"committed 1/0 7", "DRAINING g1 training | begin g1, stop_training g1, save_over 7"},
          {"stopped 1/0 7", "DRAINING g1 training | begin g1, stop_training g1, save_over 7"},
          {"stopped 1/1 7", "SUSPENDED g1 stopping"},
          {"ended 1 clean", "SUSPENDED g1 closed"},
      },
      Play(kPrelude));
  EXPECT_THAT(job.reason, HasSubstr("run the same command again to resume"));
  EXPECT_EQ(job.newest().step, 7);
}

TEST(Job, StopsAtOnceOnDemand) {
  Expect({{"stop", "DRAINING g1 training | begin g1, stop_training g1"},
          {"kill", "DRAINING g1 stopping | abort g1, stop_group g1"},
          {"ended 1 rank 0 signal 15", "CANCELLED g1 closed"}},
         Play(kPrelude));
}

TEST(Job, StopsWithoutSavingBeforeTrainingHasBegun) {
  Expect({{"stop", "SUSPENDED g0 closed"}}, Play("submit r1"));
  Expect({{"stop", "SUSPENDED g1 closed"}}, Play("submit r1;plan"));
  Expect({{"kill", "CANCELLED g1 closed"}}, Play("submit r1;plan"));
  Expect({{"stop", "DRAINING g1 stopping | abort g1, stop_group g1"},
          {"ended 1 exit 1", "SUSPENDED g1 closed"}},
         Play("submit r1;plan;launch 1;register 1/0"));
}

TEST(Job, DoesNotRestartWhenAWorkerDiesWhileStopping) {
  const Job job = Expect({{"stop", "DRAINING g1 training | begin g1, stop_training g1"},
                          {"lost 1/1", "DRAINING g1 stopping | abort g1, stop_group g1"},
                          {"ended 1 exit 1", "SUSPENDED g1 closed"}},
                         Play(kPrelude));
  EXPECT_THAT(job.reason, HasSubstr("rank 1 (here) lost"));
  Expect({{"stop", "DRAINING g1 stopping | abort g1, stop_group g1"},
          {"ended 1 exit 1", "SUSPENDED g1 closed"}},
         Play(absl::StrCat(kPrelude, ";lost 1/1")));
}

TEST(Job, SuspendsWhenASignalStoppedTheWorkers) {
  Expect({{"stopped 1/1 7", "RUNNING g1 training | begin g1"},
          {"stopped 1/0 7", "SUSPENDED g1 stopping"}},
         Play(kPrelude));
}

TEST(Job, FailsWhenWorkersLeaveWithoutAWord) {
  const Job job = Expect({{"ended 1 clean", "RECOVERING g2 open | launch g2"}}, Play(kPrelude));
  EXPECT_THAT(job.reason, HasSubstr("exited with 0 before the last step"));
}

TEST(Job, AsksForTheEndOfFinishedWorkersThatDoNotExit) {
  Expect({{"overdue 1", "COMPLETED g1 stopping | abort g1, stop_group g1"},
          {"ended 1 rank 0 signal 9", "COMPLETED g1 closed"}},
         Play(absl::StrCat(kPrelude, ";finish 1/0 20;finish 1/1 20")));
}

TEST(Job, FailsAGenerationThatDoesNotStartInTime) {
  const Job job = Expect({{"overdue 1", "RECOVERING g1 stopping | abort g1, stop_group g1"},
                          {"ended 1 exit 1", "RECOVERING g2 open | launch g2"}},
                         Play("submit r1;plan;launch 1;register 1/0"));
  EXPECT_EQ(job.reason, "too late; resuming after step 0");
}

TEST(Job, AdoptsItsWorkersAfterARestartOfTheCoordinator) {
  Expect({{"restart", "RECOVERING g1 training | begin g1"},
          {"register 1/1", "RECOVERING g1 training | begin g1"},
          {"register 1/0", "RUNNING g1 training | begin g1"}},
         Play(kPrelude));
  Expect({{"restart", "RECOVERING g1 sealed | train g1"},
          {"register 1/1", "RECOVERING g1 sealed | train g1"},
          {"register 1/0", "STARTING g1 sealed | train g1"},
          {"ready 1/0", "STARTING g1 sealed | train g1"},
          {"ready 1/1", "RUNNING g1 training | begin g1"}},
         Play("submit r1;plan;launch 1;register 1/0;register 1/1"));
}

TEST(Job, RecoversIfAWorkerIsNotBackAfterARestartOfTheCoordinator) {
  Expect({{"restart", "RECOVERING g1 training | begin g1"},
          {"register 1/1", "RECOVERING g1 training | begin g1"},
          {"lost 1/0", "RECOVERING g1 stopping | abort g1, stop_group g1"},
          {"silent 1", "RECOVERING g2 open | launch g2"}},
         Play(kPrelude));
}

// Agents say which generation they hold; one that has not heard of the launch is told again.
TEST(Job, AdoptsALaunchAfterARestartOfTheCoordinator) {
  Expect({{"restart", "RECOVERING g1 launched | launch g1"},
          {"register 1/0", "RECOVERING g1 launched | launch g1"},
          {"register 1/1", "STARTING g1 sealed | train g1"}},
         Play("submit r1;plan;launch 1"));
}

TEST(Job, ANewerSubmissionWaitsForTheOlderOnesWorkersToBeGone) {
  Job job = Expect({{"submit r2", "SUBMITTED g1 stopping | plan, abort g1, stop_group g1"},
                    {"plan", "PLANNED g1 stopping | abort g1, stop_group g1"},
                    {"fault 1/0 ABORTED x", "PLANNED g1 stopping | abort g1, stop_group g1"},
                    {"committed 1/0 19", "PLANNED g1 stopping | abort g1, stop_group g1"},
                    {"ended 1 exit 1", "PLANNED g2 open | launch g2"}},
                   Play(kPrelude));
  EXPECT_EQ(job.id, "job-2");
  EXPECT_EQ(job.newest().step, 0);
  Expect({{"submit r2", "SUBMITTED g1 closed | plan"}, {"plan", "PLANNED g2 open | launch g2"}},
         Play(absl::StrCat(kPrelude, ";stopped 1/0 7;stopped 1/1 7;ended 1 clean")));
}

TEST(CheckRegistration, TurnsAwayWhoDoesNotBelong) {
  const Job job = Play("submit r1;plan;launch 1;register 1/0");
  const auto worker = [](int64_t generation, int rank, int64_t pid, int world_size) {
    return Registered{generation, rank, "here", pid, "v", world_size};
  };
  struct Case {
    Registered worker;
    absl::StatusCode code;
  };
  for (const Case& c : std::vector<Case>{{worker(1, 1, 5, 2), absl::StatusCode::kOk},
                                         {worker(1, 0, 100, 2), absl::StatusCode::kOk},
                                         {worker(0, 1, 5, 2), absl::StatusCode::kAborted},
                                         {worker(2, 1, 5, 2), absl::StatusCode::kAborted},
                                         {worker(1, 2, 5, 2), absl::StatusCode::kInvalidArgument},
                                         {worker(1, -1, 5, 2), absl::StatusCode::kInvalidArgument},
                                         {worker(1, 1, 5, 3), absl::StatusCode::kInvalidArgument},
                                         {worker(1, 0, 5, 2), absl::StatusCode::kAlreadyExists}}) {
    const absl::Status status = CheckRegistration(job, c.worker);
    EXPECT_EQ(status.code(), c.code) << status;
    const Job after = Apply(job, c.worker);
    if (!status.ok()) {
      EXPECT_EQ(after, job) << status;
    }
  }
  EXPECT_EQ(CheckRegistration(Play("lost 1/0", job), worker(1, 1, 5, 2)).code(),
            absl::StatusCode::kAborted);
}

// A world that obeys the duties, with processes that die, hang and talk too late, and a network
// that repeats and reorders what they say.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {}

  void Happen(const Event& event) {
    job_ = Apply(std::move(job_), event);
    if (job_.revision != static_cast<int64_t>(journal_.size())) journal_.push_back(event);
    ASSERT_EQ(job_.revision, static_cast<int64_t>(journal_.size()));
  }

  void Step() {
    for (const Command& command : Decide(job_)) Obey(command);
    RestIfOver();
    if (testing::Test::HasFatalFailure()) return;
    Happen(Chance(70) ? Plausible() : Wild());
  }

  const Job& job() const { return job_; }
  const std::vector<Event>& journal() const { return journal_; }

 private:
  bool Chance(int percent) { return Number(0, 99) < percent; }
  int Number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void Obey(const Command& command) {
    if (const auto* launch = std::get_if<LaunchWorkers>(&command)) {
      if (job_.generation.phase == GenerationPhase::kLaunched) return;  // told again, done already
      ASSERT_FALSE(alive_) << "generation " << launch->generation << " beside " << *alive_;
      ASSERT_GT(launch->generation, newest_);
      if (!Chance(50)) return;
      alive_ = newest_ = launch->generation;
      machine_ = Chance(50) ? "m1" : "m2";
      Happen(ParseFact(absl::StrCat("launch ", launch->generation, " on ", machine_)));
    } else if (const auto* train = std::get_if<StartTraining>(&command)) {
      ASSERT_EQ(alive_, train->generation) << "only living workers of the newest generation train";
      ASSERT_EQ(train->generation, newest_);
    } else if (const auto* grant = std::get_if<GrantCommit>(&command)) {
      ASSERT_EQ(alive_, grant->generation) << "a generation that is gone may publish";
      ASSERT_EQ(job_.generation.saving->shards.size(), 2u);
    } else if (const auto* stop = std::get_if<StopWorkers>(&command)) {
      if (!Chance(30)) return;
      Bury(stop->generation, ParseFact(absl::StrCat(Chance(50) ? "silent " : "ended ",
                                                    stop->generation, " on ", machine_)));
    }
  }

  void RestIfOver() {
    if (!IsOver(job_.phase) || job_.generation.phase != GenerationPhase::kClosed) return;
    ASSERT_FALSE(alive_) << "the job is over and somebody still runs";
    if (Chance(30)) Happen(ParseFact(absl::StrCat("submit r", ++submissions_)));
  }

  // The agent's word, or silence: only said when it is true.
  void Bury(int64_t generation, const Event& proof) {
    if (alive_ == generation) alive_.reset();
    Happen(proof);
  }

  Event Plausible() {
    const std::string at = absl::StrCat(job_.generation.number, "/", Number(0, 1));
    const int64_t step = job_.saved.empty() ? 1 : job_.newest().step + Number(0, 3);
    switch (Number(0, 11)) {
      case 0:
        return ParseFact(absl::StrCat("submit r", Chance(3) ? ++submissions_ : submissions_));
      case 1:
        return ParseFact("plan");
      case 2:
      case 3:
      case 4:
        return alive_ ? ParseFact("register " + at) : ParseFact("plan");
      case 5:
      case 6:
        return ParseFact("ready " + at);
      case 7:
      case 8:
        return ParseFact(absl::StrCat(Chance(80) ? "shard " : "nosave ", at, " ", step));
      case 9:
        return ParseFact(absl::StrCat("committed ", at, " ", step));
      case 10:
        return ParseFact(absl::StrCat(Chance(50) ? "finish " : "stopped ", at, " ", step));
      default:
        return ParseFact("suspect " + at);
    }
  }

  // Ghosts, faults, restarts, and the truth about the dead.
  Event Wild() {
    const int64_t generation = job_.generation.number + Number(-1, 1);
    const std::string at = absl::StrCat(generation, "/", Number(-1, 2));
    switch (Number(0, 9)) {
      case 0:
        return ParseFact("lost " + at);
      case 1:
        return ParseFact(absl::StrCat("fault ", at, Chance(50) ? " ABORTED x" : " INTERNAL x"));
      case 2:
        return ParseFact("restart");
      case 3:
        if (Chance(30)) return ParseFact(Chance(50) ? "offer m1" : "leaves m1");
        return ParseFact(Chance(80) ? "restart" : Chance(50) ? "stop" : "kill");
      case 4:
        return ParseFact(absl::StrCat("overdue ", generation));
      case 5:
        return ParseFact(absl::StrCat(Chance(50) ? "shard " : "nosave ", at, " ", Number(0, 30)));
      case 6:
        return ParseFact(absl::StrCat("committed ", at, " ", Number(0, 30)));
      case 7:
        return ParseFact("ready " + at);
      case 8: {
        const std::string how = Chance(20) ? " clean" : " rank 1 signal 9";
        // An agent that never had the processes vouches for their death.
        if (Chance(30)) {
          return ParseFact(absl::StrCat("ended ", newest_, how, " on ", Chance(50) ? "m3" : ""));
        }
        if (Chance(50)) return ParseFact(absl::StrCat("rank_ended ", at, " signal 9"));
        if (alive_) alive_.reset();  // the processes died, and their agent says so
        return ParseFact(absl::StrCat("ended ", newest_, how, " on ", machine_));
      }
      default:  // late words about a generation that is long gone
        return ParseFact(absl::StrCat(Chance(50) ? "ended " : "silent ", newest_ - 1));
    }
  }

  std::mt19937 random_;
  Job job_;
  std::vector<Event> journal_;
  std::optional<int64_t> alive_;  // generation whose processes run
  int64_t newest_ = 0;            // ever launched
  std::string machine_;           // of it
  int submissions_ = 1;
};

TEST(JobProperty, NeverRunsTwoGenerationsAtOnceAndReplaysToTheSameState) {
  std::set<Phase> seen;
  int64_t generations = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed);
    for (int step = 0; step < 400; ++step) {
      world.Step();
      ASSERT_FALSE(HasFatalFailure()) << "step " << step << ": " << JobText(world.job());
      seen.insert(world.job().phase);
    }
    generations += world.job().generation.number;
    Job replayed;
    for (const Event& event : world.journal()) replayed = Apply(std::move(replayed), event);
    ASSERT_EQ(replayed, world.job());
  }
  // Otherwise the histories would prove nothing.
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_GT(generations, 1000);
}

}  // namespace
}  // namespace weft
